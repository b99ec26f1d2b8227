"""PackNet against numpy: what is pruned, who owns what, which weights move in which phase, what each task sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import Arrays, add_head, arrays, batch, begin, close, feed, gradient, logits, model, samples

from hatrack import Learner, Task
from hatrack.learn.step import Stepper
from hatrack.learn.step import build as new_optimizer
from hatrack.methods.packnet import PackNet, smallest
from hatrack.nets import build

LR = 0.1
WEIGHTS = ("fc1.weight", "fc2.weight")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.75, 1.0])
def test_the_smallest_of_the_tasks_own_weights_are_pruned(share: float) -> None:
    rng = np.random.default_rng(0)
    weight, among = rng.normal(size=(6, 7)), rng.random((6, 7)) < 0.6
    own = sorted((abs(weight[i]), i) for i in zip(*np.nonzero(among), strict=True))
    expected = np.zeros((6, 7), dtype=bool)
    for _, i in own[: round(share * len(own))]:
        expected[i] = True
    got = smallest(torch.from_numpy(weight), torch.from_numpy(among), share)
    assert np.array_equal(got.numpy(), expected)


def test_of_equal_weights_just_the_share_is_pruned() -> None:
    assert int(smallest(torch.ones(4, 5), torch.ones(4, 5, dtype=torch.bool), 0.3).sum()) == 6


def owners(method: PackNet) -> Arrays:
    return {name: owner.numpy().copy() for name, owner in method.owner.items()}


def masked(p: Arrays, seen: Arrays) -> Arrays:
    return {name: v * seen[name] if name in seen else v for name, v in p.items()}


def step(p: Arrays, x: np.ndarray, y: np.ndarray, seen: Arrays, moves: Arrays, biases: bool) -> Arrays:
    """One step of SGD on the weights in `moves`, with the weights in `seen`."""
    g = gradient(masked(p, seen), x, y)
    free = {name: moves[name] if name in moves else name.startswith("head.") or biases for name in p}
    return {name: v - LR * g[name] * free[name] for name, v in p.items()}


def test_three_tasks_equal_the_restatement() -> None:
    m, method = model(heads=()), PackNet(lr=LR, prune_first=0.5, prune=0.75)
    method.attach(m)
    owner = {name: np.zeros(arrays(m)[name].shape, dtype=int) for name in WEIGHTS}
    answers: list[np.ndarray] = []
    test, _ = samples(99)
    for task in range(3):
        add_head(m, 3, seed=task)
        x, y = samples(task)
        owner = {name: np.where(o == 0, task + 1, o) for name, o in owner.items()}
        method.begin_task(task, feed(x, y, task), torch.Generator())
        for phase in range(2):
            method.begin_phase(phase)
            stepper = begin_phase(method)
            p = arrays(m, task)
            seen = {name: o > 0 for name, o in owner.items()}
            own = {name: o == task + 1 for name, o in owner.items()}
            for _ in range(4):
                stepper.step(batch(x, y))
                p = step(p, x, y, seen, own, biases=task == 0)
                close(arrays(m, task), p, rtol=1e-8)
            method.end_phase(phase, feed(x, y, task), None)
            if phase == 0:
                for name, o in owner.items():
                    own_entries = sorted((abs(p[name][i]), i) for i in zip(*np.nonzero(own[name]), strict=True))
                    for _, i in own_entries[: round((0.75 if task else 0.5) * len(own_entries))]:
                        o[i], p[name][i] = 0, 0
            assert all(np.array_equal(owners(method)[name], o) for name, o in owner.items())
            close(arrays(m, task), p, rtol=1e-8)
        method.end_task(feed(x, y, task))
        answers.append(method.predict(torch.from_numpy(test), task).detach().numpy())
        for old in range(task + 1):
            sees = {name: (o > 0) & (o <= old + 1) for name, o in owner.items()}
            got = method.predict(torch.from_numpy(test), old).detach().numpy()
            np.testing.assert_allclose(got, logits(masked(arrays(m, old), sees), test), rtol=1e-9, atol=1e-12)
            assert np.array_equal(got, answers[old])  # not a bit has changed since the task ended
            for name, used in method.use(old).items():
                assert np.array_equal(used.numpy(), sees.get(name, np.ones(used.shape))), name


def begin_phase(method: PackNet) -> Stepper:
    method.begin_epoch()
    return Stepper(method, new_optimizer(method, None))


@pytest.mark.parametrize(("first", "later"), [(0.5, 0.75), (0.25, 0.5)])
def test_the_freed_share_of_every_layer(first: float, later: float) -> None:
    torch.manual_seed(0)
    method = PackNet(prune_first=first, prune=later)
    taught = Learner(build("mlp", (6,), widths=(20, 10)), method, epochs=3, device="cpu")
    free = 1.0
    for task in range(3):
        x, y = samples(task)
        taught.learn(Task(f"t{task}", (x, y), (x, y), (x, y)))
        free *= later if task else first
        for name, owner in method.owner.items():
            assert float((owner == 0).double().mean()) == pytest.approx(free, abs=1.5 / owner.numel() * 3)
            weight = method.masks.masked[name].detach()
            assert torch.equal(weight[owner == 0], torch.zeros(int((owner == 0).sum())))
    assert taught.verify().ok
    assert taught.capacities[-1]["total"] == pytest.approx(1 - free, abs=0.02)


@pytest.mark.parametrize(("epochs", "expected"), [(30, (20, 10)), (1, (1, 0)), (2, (1, 1)), (200, (133, 67))])
def test_a_third_of_the_epochs_retrains(epochs: int, expected: tuple[int, int]) -> None:
    assert tuple(PackNet().phases(epochs)) == expected


def test_what_is_saved_in_mid_task_is_what_finished_tasks_own() -> None:
    m, method = model(heads=(3, 3)), PackNet()
    method.attach(m)
    x, y = samples(0)
    begin(method, 0, x, y)
    method.end_phase(0, feed(x, y), None)
    method.end_task(feed(x, y))
    before = {name: t.clone() for name, t in method.state().items()}
    begin(method, 1, x, y)
    assert all(bool((owner > 0).all()) for owner in method.owner.values())  # the second task has all that was free
    assert all(torch.equal(t, before[name]) for name, t in method.state().items())


@pytest.mark.parametrize("norm", ["task", "frozen"])
def test_norms_keep_the_promise(norm: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.BatchNorm1d(12), torch.nn.ReLU())
    taught = Learner(net, PackNet(norm=norm), epochs=4, device="cpu")
    for task in range(3):
        x, y = samples(task)
        taught.learn(Task(f"t{task}", (x, y), (x, y), (x, y)))
    assert taught.verify().ok, str(taught.verify())


def test_a_full_network_still_learns_a_head() -> None:
    torch.manual_seed(0)
    method = PackNet(prune_first=0.0)
    taught = Learner(build("mlp", (6,), widths=(16,), dropout=0.0), method, epochs=40, batch_size=16, device="cpu")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 6)).astype("f4")
    first, second = ((x @ rng.normal(size=6) > 0).astype(int) for _ in range(2))
    taught.learn(Task("first", (x, first), (x, first)))
    before = arrays(taught.model)
    with pytest.warns(UserWarning, match="little of the network is free"):
        taught.learn(Task("second", (x, second), (x, second)))
    assert all(np.array_equal(value, before[name]) for name, value in arrays(taught.model).items())
    assert taught.verify().ok
    assert float((taught.predict(x, 1).argmax(1).numpy() == second).mean()) > 0.75
