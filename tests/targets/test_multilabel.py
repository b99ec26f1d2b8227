"""Several labels a sample, against scikit-learn and plain numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from hatrack import HatrackError, Task
from hatrack.targets import MultiLabel

DRAW = np.random.default_rng(1)
LOGITS = np.round(DRAW.normal(size=(60, 5)), 1)  # rounded, so that some are equal
THERE = (DRAW.uniform(size=(60, 5)) < 0.3).astype(float)
OUTPUT, Y = torch.tensor(LOGITS), torch.tensor(THERE)


def each(weights: np.ndarray | float = 1.0) -> np.ndarray:
    p = 1 / (1 + np.exp(-LOGITS))
    return -(weights * THERE * np.log(p) + (1 - THERE) * np.log(1 - p))


def test_the_loss_is_the_mean_over_labels() -> None:
    assert float(MultiLabel(5).loss(OUTPUT, Y)) == pytest.approx(each().mean(), rel=1e-12)
    assert MultiLabel(5).losses(OUTPUT, Y).numpy() == pytest.approx(each().mean(1), rel=1e-12)
    weights = [1.0, 2.0, 0.5, 1.0, 4.0]
    found = MultiLabel(5, weights=weights).loss(OUTPUT, Y)
    assert float(found) == pytest.approx(each(np.array(weights)).mean(), rel=1e-12)


def test_macro_average_precision_is_scikit_learns_whatever_the_batches() -> None:
    score = MultiLabel(5).new_score()
    for part in (slice(13), slice(13, 60)):
        score.update(OUTPUT[part], Y[part])
    assert score.compute() == pytest.approx(average_precision_score(THERE, LOGITS, average="macro"), rel=1e-12)


def test_a_label_that_no_sample_has_is_left_out() -> None:
    there = THERE.copy()
    there[:, 2] = 0
    score = MultiLabel(5).new_score()
    score.update(OUTPUT, torch.tensor(there))
    others = [0, 1, 3, 4]
    assert score.compute() == pytest.approx(average_precision_score(there[:, others], LOGITS[:, others]), rel=1e-12)


def test_guessing_scores_the_share_of_samples_that_have_a_label() -> None:
    target = Task("t", train=(torch.zeros(60, 1), Y), target=MultiLabel()).target
    assert target.outputs == 5
    assert target.guess() == pytest.approx(THERE.mean())
    drawn = np.random.default_rng(2).normal(size=(20_000, 5))
    there = (np.random.default_rng(3).uniform(size=(20_000, 5)) < THERE.mean(0)).astype(float)
    assert average_precision_score(there, drawn) == pytest.approx(target.guess(), abs=0.02)


def test_distillation_and_words() -> None:
    older = DRAW.normal(size=(60, 5))
    p, q = (1 / (1 + np.exp(-x / 2)) for x in (older, LOGITS))
    expected = -(p * np.log(q) + (1 - p) * np.log(1 - q)).mean()
    assert float(MultiLabel(5).distance(OUTPUT, torch.tensor(older), 2.0)) == pytest.approx(expected, rel=1e-12)
    answer = torch.tensor([[1.0, -1.0], [2.0, 3.0]])
    assert MultiLabel(names=["wet", "cold"]).decode(answer) == [["wet"], ["wet", "cold"]]
    assert MultiLabel(2).decode(answer) == [[0], [0, 1]]


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (torch.zeros(3), "train: labels must be a row of 0 and 1 a sample, got"),
        (torch.tensor([[0, 1], [0, 2], [1, 1]]), "task 't': row 1 of train has a figure outside 0..1"),
        (torch.zeros(3, 4), "task 't': row 0 of train has 4 labels, not 2"),
    ],
)
def test_what_are_no_labels_is_refused(y: torch.Tensor, said: str) -> None:
    with pytest.raises(HatrackError, match=said):
        Task("t", train=(torch.zeros(3, 2), y), target=MultiLabel(2))
