"""Mode-IMM: the Fisher-weighted merge, entry by entry, is written back."""

from __future__ import annotations

import numpy as np
import torch
from tiny import arrays, as_arrays, batch, begin, close, feed, fisher, samples
from tiny import model as new_model

from hatrack.methods.imm_mode import IMMMode

CPU = torch.device("cpu")


def test_three_tasks_equal_the_fisher_weighted_mean_of_all() -> None:
    method, model = IMMMode(lam=0.2, lr=0.3), new_model(heads=(3, 3, 3))
    method.attach(model)
    with torch.no_grad():  # a unit that never fires: no task has a Fisher value for the weights into it
        model.net.fc1.bias[2] = -100.0
    ends: list[dict[str, np.ndarray]] = []
    fishers: list[dict[str, np.ndarray]] = []
    for task in range(3):
        x, y = samples(task, n=45)
        stepper = begin(method, task, x, y)
        for _ in range(4):
            stepper.step(batch(x, y))
        with torch.no_grad():  # moved by some other force, so that the plain mean shows there
            model.net.fc1.weight[2] = float(task)
        ends.append(arrays(model))
        fishers.append(fisher(arrays(model, task), x, y))
        method.end_task(feed(x, y, task))
        for name, got in arrays(model).items():
            for place in np.ndindex(*got.shape):
                weight = [f[name][place] for f in fishers]
                values = [end[name][place] for end in ends]
                expected = np.average(values, weights=weight) if sum(weight) else np.mean(values)
                np.testing.assert_allclose(got[place], expected, rtol=1e-7, atol=1e-12, err_msg=f"{name} {place}")
        close(as_arrays(method.fisher), {n: sum(f[n] for f in fishers) for n in fishers[0]}, rtol=1e-7)
    assert all(float(f["fc1.weight"][2].sum()) == 0 for f in fishers)
    assert any(not np.array_equal(arrays(model)[n], ends[-1][n]) for n in ends[-1])  # the merge is written back


def test_state_round_trip() -> None:
    method, model = IMMMode(), new_model(heads=(3,))
    method.attach(model)
    x, y = samples(0)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    other = IMMMode()
    other.attach(model)
    other.load_state(method.state(), 1, CPU)
    close(as_arrays(other.fisher), as_arrays(method.fisher), rtol=0, atol=0)
    close(as_arrays(other.anchor.anchors), as_arrays(method.anchor.anchors), rtol=0, atol=0)
    assert other.anchor.weights == {}
