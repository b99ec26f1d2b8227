"""What HAT and PMASK share beyond their steps, which are checked with each of them."""

from __future__ import annotations

import pytest
import torch

import hatrack
from hatrack import HAT, Learner
from hatrack.learn.fit import Epoch
from hatrack.methods.parts.hard_attention import HardAttention
from hatrack.methods.pmask import PMask
from hatrack.nets import build


@pytest.mark.parametrize(
    "method", [HAT(s_max=2), HAT(s_max=2, hard=False), PMask(s_max=2)], ids=["hat", "soft", "pmask"]
)
def test_validation_measures_the_gates_that_a_task_keeps(method: HardAttention) -> None:
    """At s_max = 2 gates are far from 0 and 1, so that it makes a difference whether they are made so."""
    task = hatrack.tasks("split-digits", seed=0)[4]
    torch.manual_seed(0)
    learner = Learner(build("mlp", (1, 8, 8), widths=(16,)), method, epochs=5, device="cpu")
    epochs: list[Epoch] = []
    learner.learn(task, epochs.append)
    best = next(epoch for epoch in reversed(epochs) if epoch.best)
    assert task.valid is not None
    x, y = task.valid.on(torch.device("cpu"))
    kept = float((learner.predict(x, 0).argmax(1) == y).float().mean())
    assert kept == pytest.approx(best.valid_accuracy, abs=1e-6)
