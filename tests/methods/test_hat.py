"""HAT's step against an independent re-statement in numpy, float64, for the MLP; and its rules one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hatrack import HAT, Learner, Task
from hatrack.data.feed import Batch, Feed, Part
from hatrack.learn.step import Stepper
from hatrack.learn.step import build as new_optimizer
from hatrack.nets import build
from hatrack.nets.model import Model
from hatrack.targets import Classification

S_MAX, C, LR = 400.0, 0.75, 0.05


def task(name: str, seed: int, classes: int = 3, n: int = 24) -> Task:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 6)), rng.integers(classes, size=n)
    y[:classes] = np.arange(classes)
    return Task(name, (x, y), (x, y), (x, y))


def sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(−x) = inf gives the right 0
        return 1 / (1 + np.exp(-x))


class Numpy:
    """HAT on a two-layer perceptron as the paper writes it, gradients derived by hand."""

    def __init__(self, w1, b1, w2, b2, wh, bh, e1, e2) -> None:
        self.p = {k: v.astype(np.float64).copy() for k, v in locals().items() if k != "self"}

    def step(self, x, y, s, cum1, cum2, first_task: bool, clip: float = 10_000.0) -> None:
        p = self.p
        a1, a2 = sigmoid(s * p["e1"]), sigmoid(s * p["e2"])
        z1 = x @ p["w1"].T + p["b1"]
        h1 = np.maximum(z1, 0)
        g1 = h1 * a1
        z2 = g1 @ p["w2"].T + p["b2"]
        h2 = np.maximum(z2, 0)
        g2 = h2 * a2
        logits = g2 @ p["wh"].T + p["bh"]
        prob = np.exp(logits - logits.max(1, keepdims=True))
        prob /= prob.sum(1, keepdims=True)
        d = prob.copy()
        d[np.arange(len(y)), y] -= 1
        d /= len(y)
        free = (1 - cum1).sum() + (1 - cum2).sum()
        grad = {"wh": d.T @ g2, "bh": d.sum(0)}
        dg2 = d @ p["wh"]
        da2 = (dg2 * h2).sum(0) + (C * (1 - cum2) / free if free > 0 else 0)
        dz2 = dg2 * a2 * (z2 > 0)
        grad |= {"w2": dz2.T @ g1, "b2": dz2.sum(0)}
        dg1 = dz2 @ p["w2"]
        da1 = (dg1 * h1).sum(0) + (C * (1 - cum1) / free if free > 0 else 0)
        dz1 = dg1 * a1 * (z1 > 0)
        grad |= {"w1": dz1.T @ x, "b1": dz1.sum(0)}
        grad |= {"e1": da1 * s * a1 * (1 - a1), "e2": da2 * s * a2 * (1 - a2)}
        if not first_task:
            grad["w1"] *= (1 - cum1)[:, None]
            grad["b1"] *= 1 - cum1
            grad["w2"] *= 1 - np.minimum(cum2[:, None], cum1[None, :])
            grad["b2"] *= 1 - cum2
        for k in ("e1", "e2"):
            scaled = np.clip(s * p[k], -50, 50)
            grad[k] *= S_MAX * (np.cosh(scaled) + 1) / (s * (np.cosh(p[k]) + 1))
        norm = np.sqrt(sum((g**2).sum() for g in grad.values()))
        scale = min(1.0, clip / (norm + 1e-6))
        for k in p:
            p[k] -= LR * scale * grad[k]
        for k in ("e1", "e2"):
            p[k] = np.clip(p[k], -6, 6)


def prepared(method: HAT, masks: list[torch.Tensor]) -> tuple[HAT, Model, Feed]:
    """A float64 model with `masks` as finished tasks, ready for the next one."""
    torch.manual_seed(0)
    net = build("mlp", (6,), widths=(5, 4), dropout=0.0, input_dropout=0.0).double()
    for layer in (net.fc1, net.fc2):
        torch.nn.init.normal_(layer.bias, generator=torch.Generator().manual_seed(9))
    model = Model(net, torch.device("cpu"))
    model.meet(torch.zeros(1, 6, dtype=torch.float64))
    method.attach(model)
    method.masks = list(masks)
    for _ in range(len(masks) + 1):
        model.add_task(Classification(3), torch.Generator().manual_seed(1))
        model.heads[-1].double()
    t = task("t", 5)
    feed = Feed([Part(len(masks), t.train, t.inputs, t.target)], torch.device("cpu"))
    method.begin_task(len(masks), feed, torch.Generator().manual_seed(2))
    method.embedding.data = method.embedding.data.double()
    method.take(method.taken.double())
    method.clock.step, method.clock.last = method.clock.step.double(), method.clock.last.double()
    return method, model, feed


@pytest.mark.parametrize("first_task", [True, False])
@pytest.mark.parametrize("clip", [10_000.0, 0.5], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("hard", [True, False])
def test_twelve_steps_equal_the_numpy_restatement(first_task: bool, clip: float, hard: bool) -> None:
    rng = np.random.default_rng(0)
    soft = torch.from_numpy(rng.uniform(size=9))
    masks = [] if first_task else [soft > 0.5 if hard else soft]
    method, model, _ = prepared(HAT(s_max=S_MAX, c=C, lr=LR, clip=clip, hard=hard), masks)
    if masks:  # the lock and the taken units in float64, as the oracle has them
        method.take(masks[0].double())
        from hatrack.masks.lock import Lock

        method.lock = Lock(model.parameters(), model.units.used(method.taken))
    net, head = model.net, model.heads[-1]
    cum = np.zeros(9) if first_task else masks[0].double().numpy()
    start = [
        t.detach().numpy().copy()
        for t in (net.fc1.weight, net.fc1.bias, net.fc2.weight, net.fc2.bias, head.weight, head.bias)
    ]
    e = method.embedding.detach().numpy()
    oracle = Numpy(*start, e[:5], e[5:])
    stepper = Stepper(method, new_optimizer(method, None))
    steps = 12
    method.begin_epoch()
    method.clock.start(steps)
    for b in range(steps):
        x, y = rng.normal(size=(8, 6)), rng.integers(3, size=8)
        stepper.step(Batch(torch.from_numpy(x), torch.from_numpy(y)))
        method.clock.advance()
        s = 1 / S_MAX + (S_MAX - 1 / S_MAX) * b / (steps - 1)
        oracle.step(x, y, s, cum[:5], cum[5:], first_task, clip)
    got = {
        "w1": net.fc1.weight, "b1": net.fc1.bias, "w2": net.fc2.weight, "b2": net.fc2.bias,
        "wh": head.weight, "bh": head.bias, "e1": method.embedding[:5], "e2": method.embedding[5:],
    }  # fmt: skip
    for name, value in got.items():
        np.testing.assert_allclose(value.detach().numpy(), oracle.p[name], rtol=1e-7, atol=1e-9, err_msg=name)
    assert not np.array_equal(oracle.p["w2"], start[2])  # something was learned


def test_embeddings_start_normal_and_stay_within_six() -> None:
    method, _, _ = prepared(HAT(), [])
    many = torch.randn(9, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(method.embedding.float(), many)
    method.embedding.data.fill_(9.0)
    method.after_step()
    assert float(method.embedding.detach().abs().max()) == 6.0


def test_cumulative_mask_is_the_elementwise_max() -> None:
    soft = [torch.tensor([0.1, 0.9, 0.5, 0.2, 0.0, 1.0, 0.3, 0.4, 0.6]), torch.linspace(0, 1, 9)]
    method, _, _ = prepared(HAT(hard=False), [s.double() for s in soft])
    np.testing.assert_allclose(method._taken().numpy(), np.maximum(soft[0].numpy(), soft[1].numpy()), rtol=1e-6)


def test_validation_loss_includes_the_regulariser_at_s_max() -> None:
    method, _, _ = prepared(HAT(c=2.0), [torch.arange(9) % 2 == 0])
    logits, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    z = logits.numpy()
    cross = -(z[np.arange(6), y.numpy()] - np.log(np.exp(z).sum(1))).mean()
    e, taken = method.embedding.detach().numpy(), (np.arange(9) % 2 == 0).astype(float)
    r = (sigmoid(400 * e) * (1 - taken)).sum() / (1 - taken).sum()
    assert float(method.valid_loss(logits, y, 1).detach()) == pytest.approx(cross + 2.0 * r, rel=1e-9)


def test_gates_are_exactly_binary_when_a_task_ends_and_soft_on_request() -> None:
    for hard in (True, False):
        method, _, feed = prepared(HAT(hard=hard, s_max=50), [])
        e = method.embedding.detach().numpy().copy()
        method.end_task(feed)
        expected = e > 0 if hard else sigmoid(50 * e)
        np.testing.assert_allclose(method.unit_gates(0).numpy(), expected, rtol=1e-9)
        assert (method.unit_gates(0).dtype == torch.bool) == hard


def test_old_logits_are_bit_identical_with_hard_gates_and_drift_with_soft_ones() -> None:
    tasks = [task(f"t{i}", i) for i in range(3)]
    for hard, s_max in ((True, 400.0), (False, 5.0)):
        torch.manual_seed(0)
        learner = Learner(build("mlp", (6,), widths=(12, 10)), HAT(hard=hard, s_max=s_max), epochs=6, batch_size=8)
        learner.learn(tasks[0])
        x = torch.randn(40, 6)
        before = learner.predict(x, "t0")
        for t in tasks[1:]:
            learner.learn(t)
        same = torch.equal(learner.predict(x, 0).view(torch.int32), before.view(torch.int32))
        assert same == hard
        verdict = learner.verify()
        assert verdict.ok == hard
        assert ("CHANGED" in str(verdict)) != hard


def published_alexnet_step(p: dict[str, torch.Tensor], x, y, s: float, cum: dict[str, torch.Tensor]) -> None:
    """One HAT step on the AlexNet-like net, written out layer by layer as the paper describes it (no dropout)."""
    fn, names = torch.nn.functional, ("conv1", "conv2", "conv3", "fc1", "fc2")
    leaves = {k: v.detach().clone().requires_grad_() for k, v in p.items()}
    a = {n: 1 / (1 + torch.exp(-s * leaves[f"e.{n}"])) for n in names}
    h = x
    for n in names[:3]:
        h = (
            fn.max_pool2d(fn.relu(fn.conv2d(h, leaves[f"{n}.weight"], leaves[f"{n}.bias"])), 2)
            * a[n][None, :, None, None]
        )
    h = h.reshape(len(x), -1)
    for n in names[3:]:
        h = fn.relu(h @ leaves[f"{n}.weight"].T + leaves[f"{n}.bias"]) * a[n]
    logits = h @ leaves["head.weight"].T + leaves["head.bias"]
    free = sum((1 - cum[n]).sum() for n in names)
    r = sum((a[n] * (1 - cum[n])).sum() for n in names) / free
    loss = (torch.logsumexp(logits, 1) - logits[torch.arange(len(y)), y]).mean() + C * r
    grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    below: torch.Tensor | None = None
    for n in names:
        weight = grads[f"{n}.weight"]
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                lock = cum[n][i] if below is None else min(cum[n][i], below[j])
                weight[i, j] *= 1 - lock
        grads[f"{n}.bias"] *= 1 - cum[n]
        below = cum[n].repeat_interleave(4) if n == "conv3" else cum[n]
        e, q = p[f"e.{n}"], grads[f"e.{n}"]
        grads[f"e.{n}"] = q * S_MAX * (torch.cosh((s * e).clamp(-50, 50)) + 1) / (s * (torch.cosh(e) + 1))
    norm = torch.sqrt(sum((g**2).sum() for g in grads.values()))
    scale = min(1.0, 10_000 / (float(norm) + 1e-6))
    for k, g in grads.items():
        p[k] -= LR * scale * g
        if k.startswith("e."):
            p[k].clamp_(-6, 6)


def test_steps_on_the_alexnet_equal_a_layer_by_layer_restatement() -> None:
    torch.manual_seed(0)
    net = build("alexnet", (3, 32, 32), width=6, dropout_early=0.0, dropout_late=0.0).double()
    model, method = Model(net, torch.device("cpu")), HAT(s_max=S_MAX, c=C, lr=LR, hard=False)
    model.meet(torch.zeros(1, 3, 32, 32, dtype=torch.float64))
    method.attach(model)
    method.masks = [torch.rand(model.units.size, dtype=torch.float64)]
    for _ in range(2):
        model.add_task(Classification(3), torch.Generator().manual_seed(1))
        model.heads[-1].double()
    t = task("t", 5)
    method.begin_task(
        1, Feed([Part(1, t.train, t.inputs, t.target)], torch.device("cpu")), torch.Generator().manual_seed(2)
    )
    # small enough that 1 − σ(s·e) keeps its digits: the compensation would amplify rounding, on both sides
    method.embedding.data = method.embedding.data.double() * 0.01
    method.take(method.masks[0])
    from hatrack.masks.lock import Lock

    method.lock = Lock(model.parameters(), model.units.used(method.taken))
    method.clock.step, method.clock.last = method.clock.step.double(), method.clock.last.double()
    parts = {site.name: slice(site.start, site.start + site.size) for site in model.units.sites}
    oracle = {name: p.detach().clone() for name, p in net.named_parameters()}
    oracle |= {"head.weight": model.heads[1].weight.detach().clone(), "head.bias": model.heads[1].bias.detach().clone()}
    oracle |= {f"e.{n}": method.embedding.detach()[part].clone() for n, part in parts.items()}
    start = {k: v.clone() for k, v in oracle.items()}
    cum = {n: method.masks[0][part] for n, part in parts.items()}
    stepper = Stepper(method, new_optimizer(method, None))
    method.begin_epoch()
    method.clock.start(3)
    for b in range(3):
        x, y = torch.randn(4, 3, 32, 32, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
        stepper.step(Batch(x, y))
        method.clock.advance()
        published_alexnet_step(oracle, x, y, 1 / S_MAX + (S_MAX - 1 / S_MAX) * b / 2, cum)
    for name, p in net.named_parameters():
        np.testing.assert_allclose(p.detach().numpy(), oracle[name].numpy(), rtol=1e-6, atol=1e-10, err_msg=name)
        assert not torch.equal(oracle[name], start[name]), name
    for n, part in parts.items():
        got = method.embedding.detach()[part].numpy()
        np.testing.assert_allclose(got, oracle[f"e.{n}"].numpy(), rtol=1e-6, atol=1e-10, err_msg=n)


@pytest.mark.parametrize(
    ("settings", "promises"),
    [({}, True), ({"norm": "frozen"}, True), ({"norm": "shared"}, False), ({"hard": False}, False)],
)
def test_it_promises_where_nothing_that_tasks_share_can_move(settings: dict[str, Any], promises: bool) -> None:
    assert HAT(**settings).promises() is promises
