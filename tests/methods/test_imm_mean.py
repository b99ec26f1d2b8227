"""Mean-IMM: the pull while learning, the merge when a task ends, and that the merged network is what answers."""

from __future__ import annotations

import numpy as np
import torch
from tiny import add_head, arrays, as_arrays, batch, begin, close, feed, gradient, held, logits, samples
from tiny import model as new_model
from torch import nn

from hatrack.methods.imm_mean import IMMMean
from hatrack.nets.model import Model

CPU = torch.device("cpu")


def test_three_tasks_equal_the_restatement_and_their_mean() -> None:
    method, model = IMMMean(lam=0.5, lr=0.05), new_model(heads=(3, 3, 3))
    method.attach(model)
    ends: list[dict[str, np.ndarray]] = []
    for task in range(3):
        x, y = samples(task)
        stepper, p, old = begin(method, task, x, y), arrays(model, task), arrays(model)
        for _ in range(4):
            stepper.step(batch(x, y))
            g = gradient(p, x, y)
            if task:
                g = {n: held(v, np.array(0.5), p[n] - old[n], 0.05) if n in old else v for n, v in g.items()}
            p = {n: v - 0.05 * g[n] for n, v in p.items()}
        close(arrays(model, task), p, rtol=1e-8)
        ends.append({n: p[n] for n in old})
        method.end_task(feed(x, y, task))
        merged = {n: np.mean([end[n] for end in ends], axis=0) for n in old}
        close(arrays(model), merged, rtol=1e-8)
        close(as_arrays(method.anchor.anchors), merged, rtol=1e-8)
        head = {n: v for n, v in p.items() if n.startswith("head.")}
        close({n: v for n, v in arrays(model, task).items() if n.startswith("head.")}, head, rtol=1e-8)
    x, _ = samples(7)
    answer = method.predict(torch.from_numpy(x), 0).detach().numpy()
    np.testing.assert_allclose(answer, logits({**merged, **arrays(model, 0)}, x), rtol=1e-8)


def test_running_statistics_are_averaged_and_counters_left_alone() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU()).double()
    model, method = Model(net, torch.device("cpu")), IMMMean()
    model.meet(torch.zeros(1, 6, dtype=torch.float64))
    method.attach(model)
    means = []
    for task in range(3):
        add_head(model, 3, task)
        x, y = samples(task)
        stepper = begin(method, task, x, y)
        for _ in range(3):
            stepper.step(batch(x, y))
        means.append(net[1].running_mean.numpy().copy())
        method.end_task(feed(x, y, task))
        np.testing.assert_allclose(net[1].running_mean.numpy(), np.mean(means, axis=0), rtol=1e-9, atol=1e-12)
    assert int(net[1].num_batches_tracked) == 9


def test_state_round_trip_keeps_what_the_next_merge_needs() -> None:
    method, model = IMMMean(), new_model(heads=(3, 3))
    method.attach(model)
    x, y = samples(0)
    begin(method, 0, x, y).step(batch(x, y))
    method.end_task(feed(x, y))
    other = IMMMean()
    other.attach(model)
    other.load_state(method.state(), 1, CPU)
    for each in (method, other):
        begin(each, 1, x, y)
    close(as_arrays(other.merged(feed(x, y, 1))), as_arrays(method.merged(feed(x, y, 1))), rtol=0, atol=0)
