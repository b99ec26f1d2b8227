"""SPG with and without CHI against a restatement in numpy; the importance after epoch n; dropout and statistics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from test_importance import other_head, own_head, standardised
from tiny import add_head, arrays, as_arrays, batch, begin, close, feed, gradient, model, samples
from torch import nn

import hatrack
from hatrack import Learner, Task
from hatrack.data.feed import Feed, Part
from hatrack.learn.fit import Epoch
from hatrack.methods.parts.importance import gradient_importance
from hatrack.methods.spg import SPG
from hatrack.nets import build
from hatrack.targets import Classification

LR = 0.25


def restated_importance(heads: list[dict], x: np.ndarray, y: np.ndarray, chi: bool) -> dict:
    """γ^t from the network with every head so far."""
    gamma = {name: standardised(g) for name, g in own_head(heads[-1], x, y).items()}
    for p in heads[:-1] if chi else []:
        gamma = {name: np.maximum(gamma[name], standardised(g)) for name, g in other_head(p, x).items()}
    return gamma


def follow(method: SPG, held_back: Callable[[np.ndarray], np.ndarray] = lambda gamma: gamma) -> None:
    """Teach three tasks and their restatement step by step; `held_back` makes masks of importances."""
    m = model(heads=())
    method.attach(m)
    gamma: dict = {}
    for task in range(3):
        add_head(m, 3, seed=task)
        x, y = samples(task, n=70)
        stepper = begin(method, task, x, y)
        p, held = arrays(m, task), {name: held_back(v) for name, v in gamma.items()}
        for _ in range(4):
            stepper.step(batch(x, y))
            g = gradient(p, x, y)
            if held:
                mean = np.concatenate([v.ravel() for v in held.values()]).mean()
                g = {name: v * (1 - held.get(name, mean)) for name, v in g.items()}
            p = {name: v - LR * g[name] for name, v in p.items()}
            close(arrays(m, task), p, rtol=1e-7)
        method.end_task(feed(x, y, task))
        new = restated_importance([arrays(m, t) for t in range(task + 1)], x, y, method.chi)
        gamma = {name: np.maximum(v, gamma.get(name, 0)) for name, v in new.items()}
        close(as_arrays(method.importance), gamma, rtol=1e-7)
        assert all(v.min() >= 0 and v.max() <= 1 for v in gamma.values())


@pytest.mark.parametrize("chi", [True, False])
def test_three_tasks_equal_the_restatement(chi: bool) -> None:
    follow(SPG(chi=chi))


# ---- the importance after epoch n


def digits() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:2]


def small_net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build("mlp", (1, 8, 8), widths=(12, 10), dropout=0.3, input_dropout=0.0)


def learner(**settings: int) -> Learner:
    return Learner(small_net(), SPG(**settings), epochs=5, batch_size=32, device="cpu")


def test_importance_of_epoch_n_is_that_of_the_network_after_epoch_n() -> None:
    tasks, taught = digits(), learner(importance_epoch=3)
    seen: dict[int, dict[str, torch.Tensor]] = {}
    first: dict[str, torch.Tensor] = {}

    def look(epoch: Epoch) -> None:
        tensors = {f"net/{n}": p for n, p in taught.model.net.named_parameters()} | {
            f"{t}/{n}": p for t, head in enumerate(taught.model.heads) for n, p in head.named_parameters()
        }
        seen[epoch.epoch] = {name: t.detach().clone() for name, t in tensors.items()}

    taught.learn(tasks[0])
    first = dict(taught.method.importance)
    taught.learn(tasks[1], on_epoch=look)
    other = learner()
    other.learn(tasks[0])
    other.model.add_task(Classification(2), torch.Generator())
    with torch.no_grad():
        for name, p in other.model.net.named_parameters():
            p.copy_(seen[3][f"net/{name}"])
        for t, head in enumerate(other.model.heads):
            for name, p in head.named_parameters():
                p.copy_(seen[3][f"{t}/{name}"])
    other.model.net.eval()
    train = Feed([Part(1, tasks[1].train, tasks[1].inputs, tasks[1].target)], torch.device("cpu"))
    gamma = gradient_importance(other.model, 1, other.model.parameters(), train)
    for name, value in taught.method.importance.items():
        torch.testing.assert_close(value, torch.maximum(gamma[name], first[name]), rtol=0, atol=0)
    assert any(not torch.equal(seen[3][name], seen[5][name]) for name in seen[3])


@pytest.mark.parametrize("interrupted", [1, 2, 4])
def test_an_interruption_does_not_change_the_importance_of_epoch_n(interrupted: int, tmp_path: Path) -> None:
    tasks, whole = digits(), learner(importance_epoch=2)
    whole.learn(tasks[0])
    whole.learn(tasks[1], on_epoch=lambda e: whole.save(tmp_path) if e.epoch == interrupted else None)
    again = hatrack.load(tmp_path, small_net(seed=4), device="cpu")
    again.learn(tasks[1])
    for name, value in whole.method.importance.items():
        assert torch.equal(value, again.method.importance[name]), name


def test_a_task_that_ends_before_epoch_n_takes_the_importance_at_its_end() -> None:
    task = digits()[0]
    late, end = learner(importance_epoch=9), learner()
    for taught in (late, end):
        taught.learn(task)
    for name, value in end.method.importance.items():
        assert torch.equal(value, late.method.importance[name]), name


# ---- the mode of the network


@pytest.mark.parametrize("dropout", [False, True])
def test_dropout_is_off_while_gradients_are_collected_unless_asked_for(dropout: bool) -> None:
    m, method = model(dropout=0.5), SPG(importance_dropout=dropout)
    method.attach(m)
    x, y = samples(0)
    begin(method, 0, x, y)
    gammas = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        gammas.append(method.measured(feed(x, y))["fc1.weight"])
    assert torch.equal(*gammas) != dropout


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("norm", ["task", "shared", "frozen"])
def test_running_statistics_do_not_move_while_gradients_are_collected(norm: str, dropout: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())
    taught = Learner(net, SPG(norm=norm, importance_dropout=dropout), epochs=2, device="cpu")
    x, y = samples(0)
    taught.learn(Task("t", (x, y), (x, y), (x, y)))
    tensors = {**taught.model.private[0], **taught.model.tensors()}
    before = {name: t.detach().clone() for name, t in tensors.items()}
    taught.method.measured(feed(x.astype("f4"), y))
    assert all(torch.equal(t, before[name]) for name, t in tensors.items())
    shared = {"0.weight", "0.bias"} | (set() if norm == "task" else {"1.weight", "1.bias"})
    assert set(taught.method.importance) == shared
