"""Joint training, and replay of old samples: validated on all the tasks whose samples they learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import hatrack
from hatrack import Learner, Task
from hatrack.learn.fit import Epoch
from hatrack.methods.base import Method
from hatrack.methods.joint import Joint
from hatrack.methods.replay_all import ReplayAll
from hatrack.nets import build


def task(name: str, seed: int, held: int) -> Task:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(40 + held, 6)).astype(np.float32), rng.integers(3, size=40 + held)
    return Task(name, (x[:40], y[:40]), (x[40:], y[40:]))


TASKS = [task("a", 0, 30), task("b", 1, 10), task("c", 2, 20)]


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return build("mlp", (6,), widths=(12,), dropout=0.0, input_dropout=0.0)


def by_hand(learner: Learner, parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """Mean cross-entropy and accuracy over all samples, each under its own task's head, in float64."""
    losses, hits = [], []
    for t, (x, y) in enumerate(parts):
        logits = learner.predict(torch.from_numpy(x), t).double().numpy()
        shifted = logits - logits.max(1, keepdims=True)
        losses.append(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y])
        hits.append(logits.argmax(1) == y)
    return float(np.concatenate(losses).mean()), float(np.concatenate(hits).mean())


def last_epoch(learner: Learner, tasks: list[Task]) -> Epoch:
    seen: list[Epoch] = []
    for each in tasks:
        learner.learn(each, on_epoch=seen.append)
    return seen[-1]


def arrays(split: hatrack.data.task.Split) -> tuple[np.ndarray, np.ndarray]:
    x, y = split.on(torch.device("cpu"))
    return x.numpy(), y.numpy()


@pytest.mark.parametrize("method", [Joint(), ReplayAll()], ids=["joint", "replay-all"])
def test_every_task_so_far_is_validated_sample_by_sample(method: Method) -> None:
    learner = Learner(net(), method, epochs=1, device="cpu")  # one epoch: its weights are the best ones
    epoch = last_epoch(learner, TASKS)
    loss, accuracy = by_hand(learner, [arrays(each.valid) for each in TASKS])
    assert abs(epoch.valid_loss - loss) < 1e-6
    assert epoch.valid_accuracy == pytest.approx(accuracy)


def test_a_share_of_old_validation_samples_goes_with_a_share_of_old_samples(tmp_path: Path) -> None:
    learner = Learner(net(), ReplayAll(share=0.3), epochs=1, device="cpu")
    epoch = last_epoch(learner, TASKS[:2])
    kept = [arrays(part.split) for part in learner._samples.valid]
    assert [len(y) for _, y in kept] == [9, 3]
    assert all(any((row == x).all() for x in arrays(TASKS[0].valid)[0]) for row in kept[0][0])
    loss, _ = by_hand(learner, [kept[0], arrays(TASKS[1].valid)])
    assert abs(epoch.valid_loss - loss) < 1e-6
    learner.save(tmp_path)
    again = hatrack.load(tmp_path, net(), device="cpu")
    for each in TASKS[:2]:
        again.remember(each)
    assert all(
        np.array_equal(a, b)
        for old, new in zip(kept, again._samples.valid, strict=True)
        for a, b in zip(old, arrays(new.split), strict=True)
    )
    assert last_epoch(learner, TASKS[2:]).valid_loss == last_epoch(again, TASKS[2:]).valid_loss
