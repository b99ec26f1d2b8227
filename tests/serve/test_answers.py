"""Figures in words, held against torch and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hatrack.serve.answers import worded
from hatrack.serve.exported import Card
from hatrack.serve.refused import Refused
from hatrack.targets import Classification, Dense, MultiLabel

from .exports import Made


def card(kind: str, shape: tuple[int, ...], classes: list[str] | None = None, **target: Any) -> Card:
    told = Made("t", kind).card() | {"classes": classes, "output": {"name": "answer", "shape": shape}, "files": {}}
    return Card.model_validate(told | {"target": {"name": kind, **target}})


def figures(*shape: int) -> Any:
    return np.random.default_rng(0).normal(0, 5, shape).astype(np.float32)


def test_words_are_those_of_the_targets() -> None:
    """What a learner says with `decode`, the server says too."""
    names = ["a", "b", "c", "d"]
    x = figures(6, 4)
    one = worded(card("classification", (4,), names), x)["answers"]
    assert [answer["label"] for answer in one] == Classification(names=names).decode(torch.from_numpy(x))
    np.testing.assert_allclose([a["scores"] for a in one], torch.from_numpy(x).double().softmax(1), rtol=1e-9)
    several = worded(card("multilabel", (4,), names), x)["answers"]
    assert [answer["labels"] for answer in several] == MultiLabel(names=names).decode(torch.from_numpy(x))
    np.testing.assert_allclose([a["scores"] for a in several], torch.from_numpy(x).double().sigmoid(), rtol=1e-9)
    for axis, shape in ((1, (4, 2, 3)), (-1, (2, 3, 4)), (-1, (5, 4))):
        x = figures(6, *shape)
        maps = worded(card("dense", shape, names, axis=axis, units_axis=axis), x)
        found = [answer["labels"] for answer in maps["answers"]]
        assert found == Dense(classes=4, axis=axis).decode(torch.from_numpy(x)).tolist()
        assert maps["classes"] == names


def test_scores_of_huge_logits_are_numbers() -> None:
    x = np.array([[3e4, -3e4, 3e4]], np.float32)
    assert worded(card("classification", (3,)), x)["answers"][0]["scores"] == [0.5, 0.0, 0.5]
    assert worded(card("multilabel", (3,)), x)["answers"][0]["scores"] == [1.0, 0.0, 1.0]
    assert worded(card("multilabel", (3,)), x)["answers"][0]["labels"] == [0, 2]


def test_a_target_of_ones_own_gets_its_figures() -> None:
    x = figures(2, 3)
    assert worded(card("counts", (3,)), x) == {"task": "t", "answers": [{"answer": row} for row in x.tolist()]}
    assert worded(card("counts", ()), x[:, 0])["answers"][0] == {"answer": float(x[0, 0])}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_figures_that_are_not_finite_are_no_answer(bad: float) -> None:
    with pytest.raises(Refused, match="not finite") as caught:
        worded(card("regression", (2,)), np.array([[0, bad]], np.float32))
    assert caught.value.status == 500
