from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hatrack.errors import HatrackError
from hatrack.measure import free_accuracy


def test_a_table_by_hand() -> None:
    """Two tasks, of two and three classes: five columns, the right one of each row is marked."""
    tables = [
        # task 0's head | task 1's head
        ([[2.0, 1.0], [0.0, 1.0], [5.0, 4.0]], [[0.0, 1.5, 0.0], [9.0, 0.0, 0.0], [4.9, 0.0, 4.9]], [0, 1, 1]),
        ([[0.0, 0.0], [3.0, 0.0]], [[0.0, 0.0, 0.1], [2.9, 2.0, 1.0]], [2, 0]),
    ]
    # right: the first of task 0; not the second (task 1's head is louder), not the third (the other class of its own);
    # of task 1 the first, though by little, and not the second, whose own head has it right
    logits = [[torch.tensor(a), torch.tensor(b)] for a, b, _ in tables]
    labels = [torch.tensor(y) for *_, y in tables]
    assert free_accuracy(logits, labels) == 2 / 5
    assert free_accuracy([logits[0][:1]], labels[:1]) == 2 / 3  # with task 0 alone it is the accuracy


def test_against_numpy_on_random_tables() -> None:
    rng = np.random.default_rng(0)
    widths, counts = (2, 5, 3), (40, 7, 60)
    joined = [rng.normal(size=(n, sum(widths))) for n in counts]
    labels = [rng.integers(w, size=n) for w, n in zip(widths, counts, strict=True)]
    starts = np.cumsum((0, *widths[:-1]))
    hits = [z.argmax(1) == y + s for z, y, s in zip(joined, labels, starts, strict=True)]
    tables: list[list[Tensor]] = [list(torch.from_numpy(z).split(widths, dim=1)) for z in joined]
    found = free_accuracy(tables, [torch.from_numpy(y) for y in labels])
    assert found == pytest.approx(np.concatenate(hits).mean(), abs=1e-15)
    assert found != pytest.approx(np.mean([h.mean() for h in hits]))  # samples count, not tasks


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        ([[torch.ones(2, 2)]], [], "labels of 0 tasks"),
        ([[torch.ones(2, 2)], [torch.ones(2, 2)]], [torch.zeros(2), torch.zeros(2)], r"widths \[\[2\], \[2\]\]"),
        (
            [[torch.ones(2, 2), torch.ones(2, 2)], [torch.ones(2, 3), torch.ones(2, 2)]],
            [torch.zeros(2), torch.zeros(2)],
            r"\[3, 2\]",
        ),
        ([[torch.ones(0, 2)]], [torch.zeros(0)], "at least one sample"),
    ],
)
def test_tables_that_do_not_fit_are_refused(logits: list[list[Tensor]], labels: list[Tensor], words: str) -> None:
    with pytest.raises(HatrackError, match=words):
        free_accuracy(logits, labels)
