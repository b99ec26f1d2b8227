"""B1: goes on from the last task on old and new samples together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tiny import arrays, begin, cross_entropy, samples
from tiny import model as new_model

import hatrack
from hatrack import Learner
from hatrack.data.feed import Batch
from hatrack.methods import METHODS
from hatrack.methods.replay_all import ReplayAll
from hatrack.nets import build
from hatrack.targets import Classification


def test_the_loss_is_the_mean_over_samples_under_their_own_heads() -> None:
    method, model = ReplayAll(), new_model(heads=(3, 2))
    method.attach(model)
    x, y = samples(0, n=16, classes=2)
    begin(method, 1, x, y)
    source = np.arange(16) % 2
    expected = np.mean([cross_entropy(arrays(model, int(t)), x[i : i + 1], y[i : i + 1]) for i, t in enumerate(source)])
    mixed = Batch(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(source))
    assert abs(float(method.loss(mixed).detach()) - expected) < 1e-12
    only_new = float(method.loss(Batch(mixed.x, mixed.y)).detach())
    assert abs(only_new - cross_entropy(arrays(model, 1), x, y)) < 1e-12


def learner(name: str) -> Learner:
    torch.manual_seed(0)
    return Learner(build("mlp", (1, 8, 8), widths=(30,)), METHODS[name](), epochs=2, device="cpu")


def test_the_network_goes_on_where_the_last_task_left_it() -> None:
    tasks = hatrack.tasks("split-digits", seed=0)[:2]
    replay = learner("replay-all")
    replay.learn(tasks[0])
    before = {name: p.detach().clone() for name, p in replay.model.net.named_parameters()}
    replay.model.add_task(Classification(2), torch.Generator())
    replay.method.begin_task(1, None, torch.Generator())  # what joint would use to start again
    assert all(torch.equal(p, before[name]) for name, p in replay.model.net.named_parameters())
    assert {f"heads/{t}/{kind}" for t in range(2) for kind in ("weight", "bias")} <= set(replay.method.trainable())


def test_old_tasks_go_on_learning() -> None:
    tasks = hatrack.tasks("split-digits", seed=0)[:3]
    replay, plain = learner("replay-all"), learner("sgd")
    for task in tasks:
        replay.learn(task)
        plain.learn(task)
    old = [np.mean([each.evaluate(t, i) for i, t in enumerate(tasks[:2])]) for each in (replay, plain)]
    assert old[0] > old[1]


def test_a_share_of_every_old_task_is_replayed_and_comes_back_after_a_load(tmp_path: Path) -> None:
    tasks = hatrack.tasks("split-digits", seed=0)[:2]
    first = Learner(build("mlp", (1, 8, 8), widths=(30,)), ReplayAll(share=0.25), epochs=1, device="cpu")
    first.learn(tasks[0])
    kept = first._samples.train[0].split
    assert len(kept) == round(0.25 * len(tasks[0].train))
    shown = {tuple(row) for row in tasks[0].train.on(torch.device("cpu"))[0].flatten(1).tolist()}
    assert {tuple(row) for row in kept.on(torch.device("cpu"))[0].flatten(1).tolist()} <= shown
    first.save(tmp_path)
    again = hatrack.load(tmp_path, build("mlp", (1, 8, 8), widths=(30,)), device="cpu")
    again.remember(tasks[0])
    assert torch.equal(again._samples.train[0].split.on(torch.device("cpu"))[0], kept.on(torch.device("cpu"))[0])
    for each in (first, again):
        each.learn(tasks[1])
    for name, tensor in first.model.tensors().items():
        assert torch.equal(tensor, again.model.tensors()[name]), name
