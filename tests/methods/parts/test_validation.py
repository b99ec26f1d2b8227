"""The figures of a phase's best epoch."""

from __future__ import annotations

import pytest
import torch

from hatrack.methods.parts.validation import Scores
from hatrack.targets import Classification, Regression


def test_the_epoch_with_the_lowest_mean_loss_counts() -> None:
    scores, cpu = Scores(torch.device("cpu"), rivals=2), torch.long
    right, wrong = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert scores.result() is None
    epochs = [  # two batches each, of 3 and 1 samples: their losses, and how many the two rivals get right
        ((1.0, 2.0), (3, 0)),
        ((0.5, 0.9), (1, 4)),
        ((0.7, 0.2), (4, 4)),
        ((float("nan"), 0.0), (0, 0)),
    ]
    for (first, second), hits in epochs:
        scores.start_epoch()
        answers = [torch.cat([right] * h + [wrong] * (4 - h)) for h in hits]
        y = torch.zeros(4, dtype=cpu)
        scores.add(torch.tensor(first), Classification(2), y[:3], *(a[:3] for a in answers))
        scores.add(torch.tensor(second), Classification(2), y[3:], *(a[3:] for a in answers))
    loss, accuracies = scores.result()
    assert loss == pytest.approx((3 * 0.7 + 0.2) / 4)  # 0.575 < 0.6 < 1.25
    assert accuracies == [1.0, 1.0]
    scores.reset()
    assert scores.result() is None


def test_rivals_without_classes_are_compared_by_their_loss() -> None:
    scores, target = Scores(torch.device("cpu"), rivals=2), Regression(mean=[0.0], std=[2.0])
    y = torch.tensor([[2.0], [-4.0]])
    scores.start_epoch()
    scores.add(torch.tensor(1.0), target, y, torch.tensor([[1.0], [-2.0]]), torch.tensor([[0.0], [0.0]]))
    found = scores.result()
    assert found is not None
    assert found[1] == pytest.approx([0.0, -(1 + 4) / 2])  # of y/2: the first rival has it, the second says 0
