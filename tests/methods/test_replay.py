"""Experience replay: steps against numpy, what is offered to the memory, resuming, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from several_heads import SeveralHeads
from small import random_task, same_bits, small_mlp
from tiny import add_head, arrays, batch, begin, close, samples
from tiny import model as new_model
from torch import Tensor

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.data.feed import Batch
from hatrack.learn.fit import Epoch
from hatrack.measure import free_accuracy
from hatrack.methods import METHODS
from hatrack.methods.replay import Replay
from hatrack.nets import build
from hatrack.targets import Regression

CLASSES = (3, 2, 4)


def recorded(method: Replay) -> list[tuple[Batch, Tensor]]:
    """Return a list to which every draw from the memory is added."""
    draws: list[tuple[Batch, Tensor]] = []
    draw = method.memory.draw

    def watched(count: int) -> tuple[Batch, Tensor]:
        draws.append(draw(count))
        return draws[-1]

    method.memory.draw = watched  # type: ignore[method-assign]
    return draws


@pytest.mark.parametrize("heads", ["own", "all"])
def test_steps_of_three_tasks_equal_the_restatement(heads: str) -> None:
    lr, size = 0.3, 24
    method, model = Replay(lr=lr, buffer=15, memory_batch=10, heads=heads), new_model(heads=())
    method.attach(model)
    draws = recorded(method)
    torch.manual_seed(4)
    stepped = 0
    for task, classes in enumerate(CLASSES):
        add_head(model, classes, task)
        x, y = samples(task, n=size, classes=classes)
        stepper, now = begin(method, task, x, y), SeveralHeads(model)
        own = np.full(size, task)
        for _ in range(12):
            stepper.step(batch(x, y))
            at = now.cross_entropy(x, y, own, heads == "all")[1]
            stepped += 1
            if stepped == 1:  # there is nothing to replay yet
                now.step([now.gradient(x, at)], lr)
            else:
                drawn, _ = draws[-1]
                assert drawn.source is not None
                old = [part.numpy() for part in (drawn.x, drawn.y, drawn.source)]
                of_old = now.cross_entropy(*old, heads == "all")[1]
                now.step(
                    [now.gradient(x, at * size / (size + 10)), now.gradient(old[0], of_old * 10 / (size + 10))], lr
                )
            for t, expected in enumerate(now.nets):
                close(arrays(model, t), expected, rtol=1e-7)
    assert len(draws) == stepped - 1
    assert draws[-1][0].source is not None
    assert set(draws[-1][0].source.tolist()) == {0, 1, 2}


def test_every_batch_of_every_epoch_is_offered_once_and_as_it_was_seen() -> None:
    method = METHODS["replay"](buffer=1000)
    learner = Learner(small_mlp().float(), method, epochs=3, batch_size=10, device="cpu")
    tasks = [random_task(name, seed) for seed, name in enumerate("ab")]
    seen = 0
    for number, task in enumerate(tasks):
        history = learner.learn(task)
        seen += len(history.epochs) * 24
        held = method.memory.held
        assert int(held["seen"]) == seen
        mine = held["source"][:seen] == number
        x, y = task.train.on(torch.device("cpu"))
        offered = torch.cat([held["x/"][:seen][mine], held["y"][:seen][mine].to(held["x/"])], 1)
        samples_of = torch.cat([x.to(held["x/"]), y[:, None].to(held["x/"])], 1)
        found, counts = offered.unique(dim=0, return_counts=True)
        assert torch.equal(found, samples_of.unique(dim=0))
        assert set(counts.tolist()) == {len(history.epochs)}


@pytest.mark.parametrize("method", ["replay", "der++"])
@pytest.mark.parametrize("heads", ["own", "all"])
@pytest.mark.parametrize("stopped_in", [0, 1])
def test_resumed_after_any_epoch_it_is_the_same_bit_by_bit(
    method: str, heads: str, stopped_in: int, tmp_path: Path
) -> None:
    tasks = [random_task(name, seed) for seed, name in enumerate("ab")]
    settings: dict[str, Any] = {"buffer": 9, "memory_batch": 6, "heads": heads}

    def started() -> Learner:
        return Learner(small_mlp().float(), METHODS[method](**settings), epochs=4, batch_size=10, device="cpu")

    whole = started()
    for task in tasks:
        whole.learn(task)
    for after in (1, 3):
        folder = tmp_path / str(after)
        broken = started()

        def stop(epoch: Epoch, learner: Learner = broken, folder: Path = folder, after: int = after) -> None:
            if epoch.epoch == after:
                learner.save(folder)
                raise KeyboardInterrupt

        for task in tasks[:stopped_in]:
            broken.learn(task)
        with pytest.raises(KeyboardInterrupt):
            broken.learn(tasks[stopped_in], on_epoch=stop)
        resumed = hatrack.load(folder, small_mlp().float(), device="cpu")
        for task in tasks[resumed.finished :]:
            resumed.learn(task)
        states = resumed.method.state(), whole.method.state()
        assert list(states[0]) == list(states[1])
        assert all(same_bits(t, states[1][name]) for name, t in states[0].items())
        x = tasks[0].train.first(20)
        assert all(same_bits(resumed.predict(x, t), whole.predict(x, t)) for t in range(2))


def test_a_task_that_fails_leaves_the_memory_as_it_was() -> None:
    learner = Learner(small_mlp().float(), METHODS["der++"](buffer=9), epochs=2, batch_size=10, device="cpu")
    learner.learn(random_task("a", 0))
    before = {name: t.clone() for name, t in learner.method.state().items()}

    def fail(_: Epoch) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        learner.learn(random_task("b", 1, classes=5), on_epoch=fail)
    after = learner.method.state()
    assert list(after) == list(before)
    assert all(same_bits(t, before[name]) for name, t in after.items())


def test_told_from_all_classes_samples_are_found_without_their_task() -> None:
    tasks = hatrack.tasks("split-digits", seed=0)[:3]
    parts = [task.test.on(torch.device("cpu")) for task in tasks if task.test is not None]
    found = {}
    for heads in ("own", "all"):
        torch.manual_seed(0)
        net = build("mlp", (1, 8, 8), widths=(40,), dropout=0.0, input_dropout=0.0)
        learner = Learner(net, METHODS["replay"](heads=heads, lr=0.25), epochs=12, device="cpu")
        for task in tasks:
            learner.learn(task)
        logits = [[learner.predict(x, task.name) for task in tasks] for x, _ in parts]
        found[heads] = free_accuracy(logits, [y for _, y in parts])
    assert found["all"] > max(0.85, found["own"] + 0.1)


@pytest.mark.parametrize("method", ["replay", "der++"])
def test_what_does_not_fit_is_refused_and_leaves_the_learner_as_it_was(method: str) -> None:
    with pytest.raises(HatrackError, match=r"buffer must satisfy 2 ≤ buffer, got 1\."):
        METHODS[method](buffer=1)
    learner = Learner(small_mlp().float(), METHODS[method](heads="all"), epochs=1, device="cpu")
    learner.learn(random_task("a", 0))
    x, figures = np.zeros((20, 6)), np.zeros((20, 1))
    with pytest.raises(HatrackError, match=r"the target regression or a loss of its own; choose heads='own'\.$"):
        learner.learn(Task("b", (x, figures), target=Regression()))
    assert learner.finished == 1
    learner.learn(random_task("b", 1))
