"""A class for every position, against scikit-learn and plain numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, jaccard_score, log_loss

from hatrack import HatrackError, Task
from hatrack.targets import Dense

DRAW = np.random.default_rng(5)
LOGITS = DRAW.normal(size=(6, 3, 4, 5))  # samples, classes, positions
LABELS = DRAW.integers(0, 3, (6, 4, 5))
LABELS[DRAW.uniform(size=LABELS.shape) < 0.2] = -100
COUNTED = LABELS != -100
P = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
OUTPUT, Y = torch.tensor(LOGITS), torch.tensor(LABELS)
BY_POSITION = np.moveaxis(P, 1, -1)[COUNTED]  # (positions, classes)


def test_the_loss_leaves_out_what_is_ignored() -> None:
    expected = log_loss(LABELS[COUNTED], BY_POSITION, labels=range(3))
    assert float(Dense(3, axis=1).loss(OUTPUT, Y)) == pytest.approx(expected, rel=1e-12)
    last = OUTPUT.movedim(1, -1)
    assert float(Dense(3, axis=-1).loss(last, Y)) == pytest.approx(expected, rel=1e-12)
    assert float(Dense(3, axis=1).loss(OUTPUT, torch.full_like(Y, -100))) == 0.0


def test_classes_and_samples_are_weighted() -> None:
    weights = np.array([1.0, 0.2, 3.0])
    expected = log_loss(LABELS[COUNTED], BY_POSITION, labels=range(3), sample_weight=weights[LABELS[COUNTED]])
    assert float(Dense(3, weights=weights.tolist(), axis=1).loss(OUTPUT, Y)) == pytest.approx(expected, rel=1e-12)
    each = [log_loss(y[y >= 0], np.moveaxis(p, 0, -1)[y >= 0], labels=range(3)) for y, p in zip(LABELS, P, strict=True)]
    assert Dense(3, axis=1).losses(OUTPUT, Y).numpy() == pytest.approx(each, rel=1e-12)
    counts = DRAW.uniform(size=6)
    found = Dense(3, axis=1).trained(OUTPUT, Y, torch.tensor(counts))
    assert float(found) == pytest.approx((counts * each).sum() / counts.sum(), rel=1e-12)


@pytest.mark.parametrize("axis", [1, -1])
def test_scores_are_scikit_learns_whatever_the_batches(axis: int) -> None:
    output = OUTPUT if axis == 1 else OUTPUT.movedim(1, -1)
    told, answered = LABELS[COUNTED], LOGITS.argmax(1)[COUNTED]
    expected = {"accuracy": accuracy_score(told, answered), "iou": jaccard_score(told, answered, average="macro")}
    for name, value in expected.items():
        score = Dense(3, score=name, axis=axis).new_score()
        for part in (slice(2), slice(2, 6)):
            score.update(output[part], Y[part])
        assert score.compute() == pytest.approx(value, rel=1e-12)


def test_a_class_that_nobody_has_or_answers_is_left_out_of_the_iou() -> None:
    y, output = torch.tensor([[0, 1, 1]]), torch.tensor([[[5.0, 0, 0], [0, 5.0, 0], [0, 0, 0]]])
    score = Dense(3, score="iou", axis=1).new_score()
    score.update(output, y)
    told, answered = y.flatten(), output.argmax(1).flatten()
    assert score.compute() == pytest.approx(jaccard_score(told, answered, average="macro", labels=[0, 1]))


def test_guessing() -> None:
    draw = np.random.default_rng(6)
    told, guessed = draw.integers(0, 4, 200_000), draw.integers(0, 4, 200_000)
    assert Dense(4, score="accuracy").guess() == pytest.approx(accuracy_score(told, guessed), abs=0.01)
    assert Dense(4, score="iou").guess() == pytest.approx(jaccard_score(told, guessed, average="macro"), abs=0.01)


def test_pictures_are_scored_by_iou_and_texts_by_accuracy() -> None:
    x = torch.zeros(6, 1)
    assert Task("p", train=(x, Y), target=Dense()).target.judged().score == "mean IoU"
    assert Task("t", train=(x, Y[:, 0]), target=Dense()).target.judged().score == "accuracy"
    assert Task("t", train=(x, Y), target=Dense()).classes == 3


def test_where_the_units_stand_is_seen_from_the_positions() -> None:
    assert Dense(3).placed((7, 4, 5), (4, 5)).axis == 1
    assert Dense(3).placed((4, 5, 7), (4, 5)).axis == -1
    assert Dense(3, axis=-1).placed((4, 4), (4,)).axis == -1
    with pytest.raises(HatrackError, match=r"features of shape \(4, 4\) fit labels of shape \(4,\) both ways"):
        Dense(3).placed((4, 4), (4,))
    with pytest.raises(HatrackError, match="let the network return features for every position"):
        Dense(3).placed((7, 2, 2), (4, 5))


def test_distillation_and_words() -> None:
    older = DRAW.normal(size=LOGITS.shape)
    p, q = (np.exp(x / 2) / np.exp(x / 2).sum(1, keepdims=True) for x in (older, LOGITS))
    expected = -(p * np.log(q)).sum(1).mean()
    assert float(Dense(3, axis=1).distance(OUTPUT, torch.tensor(older), 2.0)) == pytest.approx(expected, rel=1e-12)
    answer = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    assert Dense(names=["noun", "verb"], axis=1).decode(answer) == [["noun", "verb"]]
    assert torch.equal(Dense(3, axis=1).decode(OUTPUT), OUTPUT.argmax(1))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (torch.zeros(3, dtype=torch.long), "task 't', train: labels must be an integer for every position, got"),
        (torch.full((3, 2), 7), r"task 't': row 0 of train 7 is neither in 0..1 nor the ignored -100"),
    ],
)
def test_what_are_no_classes_is_refused(y: torch.Tensor, said: str) -> None:
    with pytest.raises(HatrackError, match=said):
        Task("t", train=(torch.zeros(3, 2), y), target=Dense(2))
    with pytest.raises(HatrackError, match="unknown score of Dense 'dice'"):
        Dense(2, score="dice")
