"""What is held out for validation, and what is kept of finished tasks: all by the seed. (More in test_joint.py.)"""

from __future__ import annotations

import pytest
import torch

from hatrack import HatrackError, Task
from hatrack.learn.samples import Samples


def task(n: int) -> Task:
    return Task("t", (torch.randn(n, 5), torch.arange(n) % 2))


def test_a_task_without_validation_part_gets_one_from_the_seed() -> None:
    train, valid = (part.split for part in Samples(0, None).parts(task(100), 0))
    assert (len(train), len(valid)) == (85, 15)
    rows = torch.cat([train._rows, valid._rows]).sort().values
    assert torch.equal(rows, torch.arange(100))
    other = Samples(1, None).parts(task(100), 0)[1].split
    assert not torch.equal(other._rows, valid._rows)
    with pytest.raises(HatrackError, match="has 1 training samples: too few to hold any out"):
        Samples(0, None).parts(task(1), 0)


@pytest.mark.parametrize(("share", "kept"), [(None, []), (1.0, [85, 15]), (0.5, [42, 8]), (0.0, [1, 1])])
def test_a_share_of_both_parts_is_kept(share: float | None, kept: list[int]) -> None:
    samples = Samples(0, share)
    samples.keep(*samples.parts(task(100), 0))
    assert [len(part.split) for part in (*samples.train, *samples.valid)] == kept
    assert samples.tasks == (share is not None)


@pytest.mark.parametrize(("n", "held"), [(2, 1), (9, 1), (10, 2), (11, 2), (23, 3), (24, 4), (100, 15)])
def test_the_share_held_out_is_rounded_to_the_nearest(n: int, held: int) -> None:
    train, valid = (part.split for part in Samples(0, None).parts(task(n), 0))
    assert (len(train), len(valid)) == (n - held, held)
