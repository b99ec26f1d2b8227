"""Classification against scikit-learn and plain numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss

from hatrack import HatrackError, Task
from hatrack.targets import Classification

DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(40, 4))
LABELS = DRAW.integers(0, 4, 40)
OUTPUT, Y = torch.tensor(LOGITS), torch.tensor(LABELS)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def test_the_loss_is_scikit_learns() -> None:
    expected = log_loss(LABELS, np.exp(log_softmax(LOGITS)), labels=range(4))
    assert float(Classification(4).loss(OUTPUT, Y)) == pytest.approx(expected, rel=1e-12)


def test_classes_are_weighted_as_samples_are_by_scikit_learn() -> None:
    weights = [1.0, 0.5, 3.0, 0.0]
    expected = log_loss(LABELS, np.exp(log_softmax(LOGITS)), labels=range(4), sample_weight=np.array(weights)[LABELS])
    assert float(Classification(4, weights=weights).loss(OUTPUT, Y)) == pytest.approx(expected, rel=1e-12)


def test_smoothing_mixes_the_label_with_all_classes() -> None:
    soft = 0.8 * np.eye(4)[LABELS] + 0.2 / 4
    expected = -(soft * log_softmax(LOGITS)).sum(1).mean()
    assert float(Classification(4, smoothing=0.2).loss(OUTPUT, Y)) == pytest.approx(expected, rel=1e-12)


def test_soft_labels_are_probabilities_and_the_most_probable_is_right() -> None:
    soft = DRAW.dirichlet(np.ones(4), 40)
    target = Task("soft", train=(torch.zeros(40, 1), soft)).target
    assert target.outputs == 4
    expected = -(soft * log_softmax(LOGITS)).sum(1).mean()
    assert float(target.loss(OUTPUT, torch.tensor(soft))) == pytest.approx(expected, rel=1e-12)
    score = target.scored()
    score.update(OUTPUT, torch.tensor(soft))
    assert score.compute() == accuracy_score(soft.argmax(1), LOGITS.argmax(1))


def test_accuracy_adds_up_over_batches() -> None:
    score = Classification(4).new_score()
    for part in (slice(7), slice(7, 40)):
        score.update(OUTPUT[part], Y[part])
    assert score.compute() == accuracy_score(LABELS, LOGITS.argmax(1))
    assert Classification(4).judged() == ("accuracy", True, 0.25)


def test_weights_of_samples() -> None:
    weights = DRAW.uniform(0, 2, 40)
    expected = log_loss(LABELS, np.exp(log_softmax(LOGITS)), labels=range(4), sample_weight=weights)
    assert float(Classification(4).trained(OUTPUT, Y, torch.tensor(weights))) == pytest.approx(expected, rel=1e-12)
    assert float(Classification(4).trained(OUTPUT, Y, torch.zeros(40))) == 0.0  # a batch may have nothing that counts


def test_distillation_is_the_cross_entropy_of_softened_answers() -> None:
    older = DRAW.normal(size=(40, 4))
    expected = -(np.exp(log_softmax(older / 2)) * log_softmax(LOGITS / 2)).sum(1).mean()
    found = Classification(4).distance(OUTPUT, torch.tensor(older), 2.0)
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_names_and_numbers() -> None:
    answer = torch.tensor([[0.0, 1.0], [3.0, 1.0]])
    assert Classification(names=["cat", "dog"]).decode(answer) == ["dog", "cat"]
    assert Classification(2).decode(answer) == [1, 0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"classes": 0}, "classes must be a whole number, 1 or more, got 0"),
        ({"classes": 3, "names": ["a"]}, "3 of classes need as many names, got 1"),
        ({"classes": 2, "weights": [1, -1]}, "weights must be 2 figures of 0 or more"),
        ({"smoothing": 1.0}, "smoothing must be from 0 to below 1, got 1.0"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(HatrackError, match=said):
        Classification(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([0, 1, 5], "task 't': label 5 in row 2 of train is outside 0..1"),
        ([[0.5, 0.6], [1, 0], [0, 1]], "task 't', train: labels: row 0 is no list of probabilities that sum to 1"),
        ([0.5, 1.0, 0.0], r"task 't', train: labels must be one integer a sample, got \(3,\) torch.float32"),
    ],
)
def test_labels_that_are_none_are_refused_with_task_and_part(y: object, said: str) -> None:
    with pytest.raises(HatrackError, match=said):
        Task("t", train=(torch.zeros(3, 2), torch.tensor(y)), classes=2)
