"""Each score against its formula in numpy, float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hatrack import HatrackError
from hatrack.learn.which.scores import ALONE, SCORES, Fit, scored

Table = NDArray[np.float64]


def fits(widths: tuple[int, ...] = (3, 3, 3), samples: int = 6) -> list[Fit]:
    random = np.random.default_rng(0)
    made = []
    for width in widths:
        distances, logits = random.chisquare(5, (samples, 2)), random.normal(size=(samples, width)) * 3
        figures = (torch.tensor(figure) for figure in (4.0, 2.5, -3.0))
        held = {name: (torch.tensor(random.normal()), torch.tensor(random.uniform(1, 2))) for name in ALONE}
        made.append(Fit(torch.tensor(distances), torch.tensor(logits), *figures, 7, held))
    return made


def softmax(z: Table) -> Table:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def entropy(z: Table) -> Table:
    p = softmax(z)
    return -(p * np.log(p)).sum(1)


def combined(fit: Fit) -> Table:
    d, z, held = fit.distances.numpy(), fit.logits.numpy(), fit.held_out
    parts = {"mahalanobis": (d.min(1) - 4.0) / 2.5, "max-logit": -z.max(1)}
    return sum((part - float(held[name][0])) / float(held[name][1]) for name, part in parts.items())  # type: ignore[return-value]


BY_HAND: dict[str, Callable[[Fit], Table]] = {
    "mahalanobis": lambda fit: (fit.distances.numpy().min(1) - 4.0) / 2.5,
    "likelihood": lambda fit: (fit.distances.numpy().min(1) - 3.0) / 7,
    "max-logit": lambda fit: -fit.logits.numpy().max(1),
    "energy": lambda fit: -np.log(np.exp(fit.logits.numpy()).sum(1)),
    "entropy": lambda fit: entropy(fit.logits.numpy()),
    "combined": combined,
}


@pytest.mark.parametrize("name", ALONE)
def test_scores_of_one_task_by_their_formula(name: str) -> None:
    given = fits((3, 2, 5))
    np.testing.assert_allclose(scored(name, given), np.stack([BY_HAND[name](fit) for fit in given], 1), rtol=1e-12)


def test_the_entropys_gradient_by_differences() -> None:
    given = fits()
    logits = np.stack([fit.logits.numpy() for fit in given], 1)
    step, slopes = 1e-6, []
    for task in range(3):
        shares = np.full(3, 1 / 3)
        ahead, back = shares.copy(), shares.copy()
        ahead[task] += step
        back[task] -= step
        up, down = (entropy(np.einsum("ntk,t->nk", logits, each)) for each in (ahead, back))
        slopes.append((up - down) / (2 * step))
    np.testing.assert_allclose(scored("entropy-gradient", given), np.stack(slopes, 1), rtol=1e-5, atol=1e-8)


def test_the_entropys_gradient_needs_heads_of_one_width() -> None:
    with pytest.raises(HatrackError, match=r"have \[2, 3\] outputs"):
        scored("entropy-gradient", fits((3, 2)))


def test_an_unknown_score_is_one_line_that_names_those_there_are() -> None:
    with pytest.raises(HatrackError, match="mahalanobi") as caught:
        scored("mahalanobi", fits())
    assert all(name in str(caught.value) for name in SCORES)
