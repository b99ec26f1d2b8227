"""Figures, against scikit-learn and plain numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score

from hatrack import HatrackError, Task
from hatrack.targets import Regression

DRAW = np.random.default_rng(4)
FIGURES = DRAW.normal(size=(50, 3)) * [1, 100, 0.01] + [0, 1e6, -3]
ANSWERS = FIGURES + DRAW.normal(size=(50, 3)) * [0.5, 30, 0.02]
Y, ANSWER = torch.tensor(FIGURES), torch.tensor(ANSWERS)


def fitted() -> Regression:
    return Regression().fitted(Y, "t")


def test_the_loss_is_in_units_of_the_training_deviation() -> None:
    target, output = fitted(), DRAW.normal(size=(50, 3))
    scaled = (FIGURES - FIGURES.mean(0)) / FIGURES.std(0)
    expected = ((output - scaled) ** 2).mean(1)
    assert target.losses(torch.tensor(output), Y).numpy() == pytest.approx(expected, rel=1e-9)
    assert float(target.loss(torch.tensor(output), Y)) == pytest.approx(expected.mean(), rel=1e-9)


def test_answers_are_in_the_unit_of_the_targets() -> None:
    output = DRAW.normal(size=(50, 3))
    expected = output * FIGURES.std(0) + FIGURES.mean(0)
    assert fitted().answer(torch.tensor(output)).numpy() == pytest.approx(expected, rel=1e-12)


def test_r2_is_scikit_learns_whatever_the_batches_and_however_far_from_0() -> None:
    score = fitted().new_score()
    for part in (slice(11), slice(11, 50)):
        score.update(ANSWER[part], Y[part])
    assert score.compute() == pytest.approx(r2_score(FIGURES, ANSWERS), rel=1e-9)


def test_r2_of_figures_that_are_all_equal() -> None:
    for answers, expected in ((torch.full((4, 1), 7.0), 1.0), (torch.zeros(4, 1), 0.0)):
        score = Regression(mean=[0], std=[1]).new_score()
        score.update(answers, torch.full((4, 1), 7.0))
        assert score.compute() == expected == r2_score([7] * 4, answers[:, 0])


def test_the_mean_as_an_answer_scores_0() -> None:
    score = fitted().new_score()
    score.update(fitted().answer(torch.zeros(50, 3, dtype=torch.float64)), Y)
    assert score.compute() == pytest.approx(0, abs=1e-12)
    assert fitted().judged() == ("R²", True, 0.0)


def test_figures_are_a_column_where_there_is_one_a_sample() -> None:
    task = Task("t", train=(torch.zeros(5, 1), [1.0, 2.0, 3.0, 4.0, 5.0]), target=Regression())
    assert task.classes == 1
    assert task.train.labels is not None
    assert task.train.labels.shape == (5, 1)
    assert isinstance(task.target, Regression)
    assert task.target.mean == (3.0,)
    assert task.target.std == pytest.approx((2**0.5,))


def test_a_figure_that_never_changes_is_not_divided_by_0() -> None:
    target = Regression().fitted(torch.full((4, 1), 5.0), "t")
    assert float(target.loss(torch.zeros(4, 1), torch.full((4, 1), 5.0))) == 0.0


def test_distillation_is_the_squared_error() -> None:
    older = torch.tensor(DRAW.normal(size=(50, 3)))
    found = fitted().distance(ANSWER, older, 2.0)
    assert float(found) == pytest.approx(((ANSWERS - older.numpy()) ** 2).mean(), rel=1e-12)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (torch.zeros(3, 2, 2), "task 't', train: labels must be one figure a sample, or a row of them, got"),
        (torch.tensor([1.0, torch.nan, 0.0]), "task 't', train: labels must be finite, got nan"),
        (torch.zeros(3, 4), "task 't': its targets have 4 figures a sample, not 2"),
    ],
)
def test_what_are_no_figures_is_refused(y: torch.Tensor, said: str) -> None:
    with pytest.raises(HatrackError, match=said):
        Task("t", train=(torch.zeros(3, 2), y), target=Regression(values=2))


def test_means_and_deviations_go_together() -> None:
    with pytest.raises(HatrackError, match="as many means and deviations above 0 as there are values"):
        Regression(mean=[0.0], std=[0.0])
