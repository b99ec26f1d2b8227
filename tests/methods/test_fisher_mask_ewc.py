"""Fisher masks on top of EWC: every step is EWC's, masked; one Fisher a task serves both."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_fisher_mask import restated_mask
from tiny import add_head, arrays, as_arrays, batch, begin, clipped, close, feed, fisher, gradient, held, model, samples

from hatrack.methods.ewc import EWC
from hatrack.methods.fisher_mask_ewc import FisherMaskEWC

CPU = torch.device("cpu")

LR, LAM = 0.05, 50.0


def test_gradients_are_clipped_where_ewc_clips_them() -> None:
    assert FisherMaskEWC().clip == EWC().clip == 100


@pytest.mark.parametrize("merge", ["mean", "online"])
def test_three_tasks_equal_the_restatement(merge: str) -> None:
    m, method = model(heads=()), FisherMaskEWC(share=0.4, lam=LAM, lr=LR, merge=merge, gamma=0.7)
    strength = LAM * (0.7 if merge == "online" else 1)
    method.attach(m)
    frozen: dict = {}
    merged: dict = {}
    anchor: dict = {}
    for task in range(3):
        add_head(m, 3, seed=task)
        x, y = samples(task, n=50)
        stepper, p = begin(method, task, x, y), arrays(m, task)
        for _ in range(4):
            stepper.step(batch(x, y))
            g = gradient(p, x, y)
            for name, f in merged.items():
                g[name] = held(g[name], strength * f, p[name] - anchor[name], LR) * (1 - frozen[name])
            p = {name: v - LR * clipped(g, method.clip)[name] for name, v in p.items()}
            close(arrays(m, task), p, rtol=1e-8)
        method.end_task(feed(x, y, task))
        new = fisher(arrays(m, task), x, y)
        mask = restated_mask(new, 0.4, True)
        frozen = {name: np.maximum(v, frozen.get(name, 0)) for name, v in mask.items()}
        if merge == "online":
            merged = {name: f + 0.7 * merged.get(name, 0) for name, f in new.items()}
        else:
            merged = {name: (f + task * merged.get(name, 0)) / (task + 1) for name, f in new.items()}
        anchor = arrays(m)
        close(as_arrays(method.importance), frozen)
        close(as_arrays(method.anchor.weights), merged)


def test_state_holds_masks_and_penalty() -> None:
    m, method = model(heads=(3,)), FisherMaskEWC()
    method.attach(m)
    x, y = samples(0)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    other = FisherMaskEWC()
    other.attach(model(heads=(3,)))
    other.load_state(method.state(), 1, CPU)
    close(as_arrays(other.importance), as_arrays(method.importance))
    for kept in ("anchors", "weights"):
        close(as_arrays(getattr(other.anchor, kept)), as_arrays(getattr(method.anchor, kept)))
