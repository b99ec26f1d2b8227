"""PMASK's step against numpy in float64; its bits; its guarantee on networks of every kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hatrack
from hatrack import Learner, Task
from hatrack.data.feed import Batch, Feed, Part
from hatrack.learn.step import Stepper, build
from hatrack.masks.lock import Lock
from hatrack.methods.parts.weight_masks import pack, unpack
from hatrack.methods.pmask import PMask
from hatrack.nets.model import Model
from hatrack.targets import Classification

S_MAX, C, LR = 400.0, 0.75, 0.05


def sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def task(name: str, seed: int, n: int = 40) -> Task:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    y = (x[:, seed % 6] > 0).astype(np.int64)
    return Task(name, (x, y), (x, y), (x, y), classes=2)


def numpy_step(p: dict, taken: dict, x: np.ndarray, y: np.ndarray, s: float) -> None:
    """One step on linear → ReLU → head, gradients by hand; every entry of w and b has its own gate."""
    aw, ab = sigmoid(s * p["ew"]), sigmoid(s * p["eb"])
    z = x @ (p["w"] * aw).T + p["b"] * ab
    h = np.maximum(z, 0)
    logits = h @ p["hw"].T + p["hb"]
    d = np.exp(logits - logits.max(1, keepdims=True))
    d /= d.sum(1, keepdims=True)
    d[np.arange(len(y)), y] -= 1
    d /= len(y)
    dz = (d @ p["hw"]) * (z > 0)
    free = (1 - taken["w"]).sum() + (1 - taken["b"]).sum()
    dw, db = dz.T @ x, dz.sum(0)  # with respect to the gated entries
    grads = {
        "hw": d.T @ h,
        "hb": d.sum(0),
        "w": dw * aw * (1 - taken["w"]),
        "b": db * ab * (1 - taken["b"]),
        "ew": (dw * p["w"] + C * (1 - taken["w"]) / free) * s * aw * (1 - aw),
        "eb": (db * p["b"] + C * (1 - taken["b"]) / free) * s * ab * (1 - ab),
    }
    for k in ("ew", "eb"):
        grads[k] *= S_MAX * (np.cosh(np.clip(s * p[k], -50, 50)) + 1) / (s * (np.cosh(p[k]) + 1))
    norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
    for k, g in grads.items():
        p[k] -= LR * min(1.0, 10_000 / (norm + 1e-6)) * g
    for k in ("ew", "eb"):
        p[k] = np.clip(p[k], -6, 6)


@pytest.mark.parametrize("first", [True, False])
def test_steps_equal_the_numpy_restatement(first: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU()).double()
    model, method = Model(net, torch.device("cpu")), PMask(s_max=S_MAX, c=C, lr=LR)
    model.meet(torch.zeros(1, 6, dtype=torch.float64))
    method.attach(model)
    mask = torch.rand(35) < 0.4
    if not first:
        method.masks.packed = [pack(mask)]
    t = task("t", 0)
    for _ in range(2):
        model.add_task(Classification(3), torch.Generator().manual_seed(1))
        model.heads[-1].double()
    method.begin_task(
        1, Feed([Part(1, t.train, t.inputs, t.target)], torch.device("cpu")), torch.Generator().manual_seed(2)
    )
    method.embedding.data = method.embedding.data.double() * 0.02
    method.take(method.taken.double())
    method.clock.step, method.clock.last = method.clock.step.double(), method.clock.last.double()
    if not first:
        method.lock = Lock(method.masks.masked, method.masks.by_name(method.taken))
    e, flat = method.embedding.detach().numpy(), method.taken.numpy()
    p = {"w": net[0].weight, "b": net[0].bias, "hw": model.heads[1].weight, "hb": model.heads[1].bias}
    p = {k: v.detach().numpy().copy() for k, v in p.items()} | {"ew": e[:30].reshape(5, 6).copy(), "eb": e[30:].copy()}
    start = {k: v.copy() for k, v in p.items()}
    taken = {"w": flat[:30].reshape(5, 6), "b": flat[30:]}
    stepper = Stepper(method, build(method, None))
    rng, steps = np.random.default_rng(5), 6
    method.begin_epoch()
    method.clock.start(steps)
    for b in range(steps):
        x, y = rng.normal(size=(8, 6)), rng.integers(3, size=8)
        stepper.step(Batch(torch.from_numpy(x), torch.from_numpy(y)))
        method.clock.advance()
        numpy_step(p, taken, x, y, 1 / S_MAX + (S_MAX - 1 / S_MAX) * b / (steps - 1))
    np.testing.assert_allclose(net[0].weight.detach().numpy(), p["w"], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(net[0].bias.detach().numpy(), p["b"], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(method.embedding.detach().numpy()[:30].reshape(5, 6), p["ew"], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(method.embedding.detach().numpy()[30:], p["eb"], rtol=1e-5, atol=1e-9)
    assert not np.array_equal(p["w"], start["w"])
    if not first:
        held = taken["w"] == 1
        np.testing.assert_array_equal(net[0].weight.detach().numpy()[held], start["w"][held])


def test_a_finished_task_keeps_one_bit_an_entry(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = Learner(nn.Sequential(nn.Linear(6, 50), nn.ReLU(), nn.Linear(50, 20)), PMask(), epochs=2, batch_size=8)
    learner.learn(task("a", 0))
    learner.learn(task("b", 1))
    entries = 6 * 50 + 50 + 50 * 20 + 20
    assert sum(packed.numel() for packed in learner.method.masks.packed) == 2 * -(-entries // 8)
    learner.save(tmp_path)
    again = hatrack.load(tmp_path, nn.Sequential(nn.Linear(6, 50), nn.ReLU(), nn.Linear(50, 20)))
    x = torch.randn(9, 6)
    assert torch.equal(learner.predict(x, 0), again.predict(x, 0))


def flat_net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 50), nn.ReLU(), nn.Linear(50, 20))


def test_soft_gates_are_kept_as_they_are_and_lock_by_the_largest(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = Learner(flat_net(), PMask(hard=False, s_max=5.0), epochs=2, batch_size=8, device="cpu")
    gates = []
    for t in range(2):
        learner.learn(task("ab"[t], t))
        gates.append(sigmoid(5.0 * learner.method.embedding.detach().double().numpy()))
    assert not learner.method.promises()
    used = [np.concatenate([u.flatten().numpy() for u in learner.method.use(t).values()]) for t in range(2)]
    for mine, kept in zip(gates, used, strict=True):
        np.testing.assert_allclose(kept, mine, rtol=1e-5)
        assert ((mine > 0.01) & (mine < 0.99)).mean() > 0.5
    taken = np.concatenate([u.flatten().numpy() for u in learner.method.occupied().values()])
    np.testing.assert_allclose(taken, np.maximum(*gates), rtol=1e-5)
    x = torch.randn(9, 6)
    w, b = (p.detach().double().numpy() for p in list(learner.model.net.parameters())[:2])
    hidden = np.maximum(x.numpy() @ (w * used[0][:300].reshape(50, 6)).T + b * used[0][300:350], 0)
    own = list(learner.model.net.parameters())[2:]
    w, b = (p.detach().double().numpy() for p in own)
    features = hidden @ (w * used[0][350:1350].reshape(20, 50)).T + b * used[0][1350:]
    head = learner.model.heads[0]
    expected = features @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    np.testing.assert_allclose(learner.predict(x, 0).numpy(), expected, rtol=1e-4, atol=1e-5)
    learner.save(tmp_path)
    again = hatrack.load(tmp_path, flat_net())
    assert torch.equal(learner.predict(x, 0), again.predict(x, 0))


def test_ewc_holds_what_soft_gates_leave_open() -> None:
    drift = {}
    for lam in (1e6, 1e-9):
        torch.manual_seed(0)
        method = PMask(hard=False, s_max=5.0, lam=lam, lr=LR)
        learner = Learner(flat_net(), method, epochs=4, batch_size=8, device="cpu")
        learner.learn(task("a", 0))
        x, y = task("a", 0).train.on(torch.device("cpu"))
        masks, found = method.use(0), {n: np.zeros(p.shape) for n, p in method.masks.masked.items()}
        for rows in torch.arange(40).split(20):
            weights = {n: (p.detach() * masks[n]).requires_grad_() for n, p in method.masks.masked.items()}
            loss = nn.functional.cross_entropy(learner.model.logits(x[rows], 0, weights=weights), y[rows])
            for (n, _), g in zip(weights.items(), torch.autograd.grad(loss, list(weights.values())), strict=True):
                found[n] += 20 / 40 * (g * masks[n]).numpy() ** 2  # dL/dW = dL/d(W ⊙ a) ⊙ a
        for n, f in found.items():
            np.testing.assert_allclose(method.anchor.weights[n].numpy(), f, rtol=1e-4, atol=1e-12)
        anchored = {n: p.detach().clone() for n, p in method.masks.masked.items()}
        learner.learn(task("b", 1))
        off = {n: (p.detach() - anchored[n]).numpy() for n, p in method.masks.masked.items()}
        drift[lam] = sum(float((found[n] * off[n] ** 2).sum()) for n in found)
    assert 0 < drift[1e6] < 0.5 * drift[1e-9]


def test_ewc_beside_hard_gates_is_refused() -> None:
    with pytest.raises(hatrack.HatrackError, match="lam = 3 has nothing to hold where gates are hard"):
        PMask(lam=3.0)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1000])
def test_packing_and_unpacking(count: int) -> None:
    mask = torch.rand(count) < 0.5
    assert torch.equal(unpack(pack(mask), count), mask)
    assert len(pack(mask)) == -(-count // 8)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x.view(-1, 3, 2))[0][:, -1]


NETS = {
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU()),
    "layer norm": lambda: nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 8)),
    "lstm": Recurrent,
    "attention": lambda: nn.Sequential(
        nn.Linear(6, 12), nn.Unflatten(1, (3, 4)), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten()
    ),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("options", [{}, {"adam": True, "lr": 0.001}], ids=["sgd", "adam"])
def test_old_tasks_are_bit_identical_on_networks_of_every_kind(name: str, options: dict) -> None:
    torch.manual_seed(0)
    learner = Learner(NETS[name](), PMask(**options), epochs=3, batch_size=8)
    for t in range(3):
        learner.learn(task(f"t{t}", t))
    verdict = learner.verify()
    assert verdict.ok, verdict
    assert learner.reuse()[0][1] is not None
