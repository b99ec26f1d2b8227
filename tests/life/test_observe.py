"""Streams that name no tasks: what is known is left as it is, what is new is learned when there is enough of it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from hatrack import HAT, HatrackError, Learner


def stream(number: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return two classes of a task, labelled apart from those of others."""
    centres = 4 * torch.randn(2, 8, generator=torch.Generator().manual_seed(number))
    y = torch.arange(count) % 2
    x = centres[y] + 0.5 * torch.randn(count, 8, generator=torch.Generator().manual_seed(1000 * number + seed))
    return x, y + 10 * number


def made() -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU())
    return Learner(net, HAT(c=0.1), epochs=8, seed=0, device="cpu")


def test_tasks_that_switch_and_recur_are_each_learned_once() -> None:
    learner, found = made(), list[tuple[int, str | None, bool]]()
    for seed, number in enumerate([1, 2, 1, 3, 2, 3]):
        for part in range(6):
            got = learner.observe(*stream(number, 40, 10 * seed + part), enough=160)
            found.append((number, got.task, got.new))
    names = {number: f"observed {number - 1}" for number in (1, 2, 3)}
    assert [learned.name for learned in learner.tasks] == list(names.values())
    aside = [got for got in found if got[1] is None]
    assert len(aside) == 3 * 3  # three batches each, before the fourth makes it enough
    assert all(task == names[number] for number, task, _ in found if task is not None)
    assert [number for number, _, new in found if new] == [1, 2, 3]
    assert learner.verify().ok


def test_a_known_task_answers_in_the_streams_own_labels_and_changes_by_nothing() -> None:
    learner = made()
    learner.observe(*stream(4, 160, 0), enough=100)
    weights = {name: tensor.clone() for name, tensor in learner.model.tensors().items()}
    x, y = stream(4, 40, 1)
    got = learner.observe(x, y, enough=100)
    assert (got.task, got.new, got.aside) == ("observed 0", False, 0)
    assert got.share > 0.5
    assert all(torch.equal(tensor, weights[name]) for name, tensor in learner.model.tensors().items())
    answer = learner.predict(x)
    right = [label == str(int(truth)) for label, truth in zip(answer.label, y, strict=True) if label is not None]
    assert sum(right) > 0.9 * len(right)


def test_what_is_put_aside_goes_with_a_copy_and_not_into_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    learner = made()
    learner.observe(*stream(1, 160, 0), enough=100)
    x, y = stream(2, 40, 0)
    assert learner.observe(x, y, enough=100).aside == 40
    x += 1  # the caller's own
    other = copy.deepcopy(learner)
    assert other.observe(*stream(2, 30, 1), enough=100).aside == 70
    assert learner.observe(*stream(2, 30, 1), enough=100).aside == 70
    learner.save(tmp_path)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(row.numpy().tobytes() in stored for row in stream(2, 40, 0)[0])


@pytest.mark.parametrize("y", [torch.zeros(3, dtype=torch.long), torch.zeros(4), torch.zeros(4, 1, dtype=torch.long)])
def test_labels_that_are_none_are_one_line(y: Tensor) -> None:
    with pytest.raises(HatrackError, match="as many integer labels, got 4 inputs"):
        made().observe(torch.rand(4, 8), y)
