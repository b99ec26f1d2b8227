"""The loss over the classes of all tasks, sample by sample in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import arrays, logits, samples, softmax
from tiny import model as new_model

from hatrack.data.feed import Batch
from hatrack.errors import HatrackError
from hatrack.methods.parts.all_heads import AllHeads
from hatrack.targets import Classification, Regression

SIZES = (3, 2, 4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_every_sample_is_told_from_the_classes_of_all_tasks(weighted: bool, mixed: bool) -> None:
    model = new_model(heads=SIZES)
    rng = np.random.default_rng(0)
    source = rng.integers(3, size=20) if mixed else np.full(20, 1)
    y = np.array([rng.integers(SIZES[t]) for t in source])
    w = rng.random(20) if weighted else np.ones(20)
    x, _ = samples(0, n=20)
    p = softmax(np.concatenate([logits(arrays(model, t), x) for t in range(3)], axis=1))
    column = y + np.array([0, 3, 5])[source]
    expected = float((-np.log(p[np.arange(20), column]) * w).sum() / w.sum())
    heads = AllHeads(model)
    batch = Batch(
        torch.from_numpy(x),
        torch.from_numpy(y),
        torch.from_numpy(source) if mixed else None,
        torch.from_numpy(w) if weighted else None,
    )
    loss = heads.loss(model.features(batch.x, 1), batch, 1)
    assert abs(float(loss.detach()) - expected) < 1e-12
    loss.backward()
    assert all(float(p.grad.abs().max()) > 0 for p in heads.parameters().values())  # other tasks' heads give way


def test_answers_are_those_of_the_heads_that_there_were() -> None:
    model = new_model(heads=SIZES)
    x, _ = samples(1)
    found = AllHeads(model).answers(model.features(torch.from_numpy(x), 0))
    for task, answer in enumerate(found):
        then = np.concatenate([logits(arrays(model, t), x) for t in range(task + 1)], axis=1)
        np.testing.assert_allclose(answer.detach().numpy(), then, rtol=1e-12)


@pytest.mark.parametrize("target", [Regression(2), Classification(2, smoothing=0.1), Classification(2, weights=(1, 2))])
def test_what_cannot_stand_side_by_side_is_refused(target: object) -> None:
    model = new_model(heads=(3, 2))
    model.targets[1] = target  # type: ignore[call-overload]
    with pytest.raises(HatrackError, match=f"the target {target.name} or a loss of its own; choose heads='own'"):
        AllHeads(model)


def test_soft_labels_are_refused() -> None:
    model = new_model(heads=(3,))
    x, _ = samples(0, n=4)
    batch = Batch(torch.from_numpy(x), torch.full((4, 3), 1 / 3))
    with pytest.raises(HatrackError, match="one label a sample"):
        AllHeads(model).loss(model.features(batch.x, 0), batch, 0)
