"""Locked entries keep their bits under every optimiser of torch, in every variant that this machine offers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hatrack.masks.lock import Lock

EVERY = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
)
# What makes each of them move entries whose gradient is zero, besides weight decay.
PULLS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "ASGD": {"lr": 0.1, "lambd": 0.1},
    "RMSprop": {"lr": 0.1, "momentum": 0.9, "centered": True},
    "LBFGS": {"lr": 0.5, "max_iter": 4},
    "Adam": {"lr": 0.1, "amsgrad": True},
}


def variants(name: str) -> list[dict[str, Any]]:
    accepted = inspect.signature(getattr(torch.optim, name)).parameters
    base = dict(PULLS.get(name, {"lr": 0.1}))
    if "weight_decay" in accepted:
        base["weight_decay"] = 0.3
    found = [base]
    found += [base | {flag: True} for flag in ("foreach", "fused", "maximize") if flag in accepted]
    if "decoupled_weight_decay" in accepted:
        found.append(base | {"decoupled_weight_decay": True})
    return found


CASES = [(name, options) for name in EVERY for options in variants(name)]


def bits(t: Tensor) -> Tensor:
    return t.detach().view(torch.int32)


def train(optimizer: torch.optim.Optimizer, p: nn.Parameter, lock: Lock, gradient: Callable[[], Tensor]) -> None:
    for _ in range(4):

        def closure() -> Tensor:
            p.grad = gradient()
            lock.on_gradients()
            return p.detach().square().sum()

        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        lock.after_step()


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(o)}" for n, o in CASES])
def test_no_optimiser_moves_a_locked_entry(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(6, 5))
    locked = torch.rand(6, 5) < 0.4
    before = p.detach().clone()
    optimizer = getattr(torch.optim, name)([p], **options)
    lock = Lock({"p": p}, {"p": locked.float()})
    sparse = name == "SparseAdam"
    train(optimizer, p, lock, lambda: torch.randn(6, 5).to_sparse() if sparse else torch.randn(6, 5))
    assert torch.equal(bits(p)[locked], bits(before)[locked])
    assert not torch.equal(bits(p)[~locked], bits(before)[~locked])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
@pytest.mark.parametrize("bad", [1.0, torch.nan, torch.inf])
def test_a_trusted_optimiser_needs_no_restore(kind: Any, bad: float) -> None:
    """The restore is left out, and still nothing moves: not even by momentum or a gradient that is not finite."""
    p = nn.Parameter(torch.tensor([1.0, -0.0, 0.0, 1e-38, 2.0, 3.0]))
    before = p.detach().clone()
    options = {"weight_decay": 0.0} | ({"momentum": 0.9} if kind in (torch.optim.SGD, torch.optim.RMSprop) else {})
    optimizer = kind([p], lr=0.1, **options)
    lock = Lock({"p": p}, {"p": torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])})
    lock.trust(optimizer)
    lock._kept = [kept._replace(bits=kept.bits + 1) for kept in lock._kept]  # a restore would now be seen
    train(optimizer, p, lock, lambda: torch.full((6,), bad))
    assert torch.equal(bits(p)[:4], bits(before)[:4])
    assert not torch.equal(bits(p)[4:], bits(before)[4:])


@pytest.mark.parametrize("spoil", ["weight decay", "state", "kind"])
def test_trust_ends_where_the_proof_does(spoil: str) -> None:
    p = nn.Parameter(torch.ones(2))
    kind = torch.optim.ASGD if spoil == "kind" else torch.optim.SGD
    optimizer = kind([p], lr=0.1) if spoil == "kind" else kind([p], lr=0.1, momentum=0.9)
    if spoil == "state":  # momentum from an earlier task
        p.grad = torch.ones(2)
        optimizer.step()
    lock = Lock({"p": p}, {"p": torch.tensor([1.0, 0.0])})
    lock.trust(optimizer)
    if spoil == "weight decay":  # even when it is switched on later
        optimizer.param_groups[0]["weight_decay"] = 0.5
    before = p.detach().clone()
    train(optimizer, p, lock, lambda: torch.ones(2))
    assert float(p[0].detach()) == float(before[0])
    assert float(p[1].detach()) != float(before[1])


def test_without_the_restore_weight_decay_would_move_them() -> None:
    """The check above can fail: the scaled gradient alone does not protect."""
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([p], lr=0.1, weight_decay=0.5)
    p.grad = torch.ones(3)
    Lock({"p": p}, {"p": torch.ones(3)}).on_gradients()
    optimizer.step()
    assert not torch.equal(p.detach(), torch.ones(3))


def test_gradient_scaler_autocast_accumulation_and_clipping() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    locked = {"weight": (torch.rand(8, 8) < 0.5).float(), "bias": (torch.rand(8) < 0.5).float()}
    before = {n: p.detach().clone() for n, p in layer.named_parameters()}
    lock = Lock(dict(layer.named_parameters()), locked)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.05)
    for dtype in (torch.bfloat16, torch.float16):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(2):
                with torch.autocast("cpu", dtype):
                    loss = layer(torch.randn(16, 8)).square().mean()
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            lock.on_gradients()
            nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            lock.after_step()
    for name, p in layer.named_parameters():
        held = locked[name] == 1
        assert torch.equal(bits(p)[held], bits(before[name])[held])
        assert not torch.equal(bits(p)[~held], bits(before[name])[~held])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_not_even_a_gradient_that_is_not_finite_gets_through(bad: float) -> None:
    p = nn.Parameter(torch.randn(4))
    before = p.detach().clone()
    lock = Lock({"p": p}, {"p": torch.tensor([1.0, 0.0, 1.0, 0.0])})
    optimizer = torch.optim.SGD([p], lr=0.1)
    p.grad = torch.full((4,), bad)
    lock.on_gradients()
    optimizer.step()
    lock.after_step()
    assert torch.equal(bits(p)[::2], bits(before)[::2])
    assert not torch.isfinite(p.detach()[1::2]).any()


def test_soft_locks_scale_plain_sgd_updates_as_a_float64_reference_does() -> None:
    rng = np.random.default_rng(0)
    start, amount = rng.normal(size=(5, 4)), rng.uniform(size=(5, 4))
    amount[0] = 1.0
    p = nn.Parameter(torch.from_numpy(start.copy()))
    lock = Lock({"p": p}, {"p": torch.from_numpy(amount)})
    optimizer = torch.optim.SGD([p], lr=0.25)
    reference = start.copy()
    for _ in range(20):
        g = rng.normal(size=(5, 4))
        p.grad = torch.from_numpy(g.copy())
        lock.on_gradients()
        optimizer.step()
        lock.after_step()
        reference -= 0.25 * (1 - amount) * g
    np.testing.assert_allclose(p.detach().numpy(), reference, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(p.detach().numpy()[0], start[0])


def centred(optimizer: torch.optim.Optimizer) -> None:
    def centre(opt: torch.optim.Optimizer, *_: Any) -> None:
        for group in opt.param_groups:
            for p in group["params"]:
                p.grad -= p.grad.mean() + 0.1

    optimizer.register_step_pre_hook(centre)


def decayed(optimizer: torch.optim.Optimizer) -> None:
    def decay(opt: torch.optim.Optimizer, *_: Any) -> None:
        with torch.no_grad():
            for group in opt.param_groups:
                for p in group["params"]:
                    p.mul_(0.9)

    optimizer.register_step_post_hook(decay)


def wrapped(optimizer: torch.optim.Optimizer) -> None:
    step = optimizer.step

    def both(closure: Any = None) -> None:
        step()
        with torch.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.mul_(0.9)

    optimizer.step = both  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("extra", [centred, decayed, wrapped])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_what_users_hang_onto_an_optimiser_moves_no_locked_entry(
    name: str, extra: Callable[[torch.optim.Optimizer], None]
) -> None:
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(20))
    before, locked = p.detach().clone(), torch.arange(20) < 10
    lock = Lock({"p": p}, {"p": locked.float()})
    optimizer = getattr(torch.optim, name)([p], lr=0.1, **({"weight_decay": 0.0} if name == "AdamW" else {}))
    extra(optimizer)
    lock.trust(optimizer)
    train(optimizer, p, lock, lambda: torch.randn(20))
    assert torch.equal(bits(p)[locked], bits(before)[locked])
    assert not torch.equal(p.detach()[~locked], before[~locked])


@pytest.mark.parametrize("name", ["Adam", "RMSprop"])
def test_a_division_of_zero_by_zero_reaches_no_locked_entry(name: str) -> None:
    p = nn.Parameter(torch.ones(4))
    lock = Lock({"p": p}, {"p": torch.tensor([1.0, 1.0, 0.0, 0.0])})
    optimizer = getattr(torch.optim, name)([p], lr=0.1, eps=0.0)
    lock.trust(optimizer)
    train(optimizer, p, lock, lambda: torch.ones(4))
    assert p.tolist()[:2] == [1.0, 1.0]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop"])
def test_an_eps_that_vanishes_in_half_precision_does_not_count(name: str) -> None:
    """1e-8 is 0 in float16, so that the zero of a locked entry is divided by zero."""
    p = nn.Parameter(torch.ones(4, dtype=torch.float16))
    lock = Lock({"p": p}, {"p": torch.tensor([1.0, 1.0, 0.0, 0.0])})
    optimizer = getattr(torch.optim, name)([p], lr=0.1, eps=1e-8, weight_decay=0.0, foreach=True)
    lock.trust(optimizer)
    train(optimizer, p, lock, lambda: torch.ones(4, dtype=torch.float16))
    assert p.tolist()[:2] == [1.0, 1.0]


def test_a_sparse_gradient_moves_no_locked_entry() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    before = table.weight.detach().clone()
    lock = Lock({"w": table.weight}, {"w": torch.tensor([[1.0], [0.0], [1.0], [0.0]]).expand(4, 2)})
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    lock.trust(optimizer)
    table(torch.tensor([0, 1, 2])).sum().backward()
    lock.on_gradients()
    optimizer.step()
    lock.after_step()
    assert torch.equal(bits(table.weight)[[0, 2]], bits(before)[[0, 2]])
    assert not torch.equal(table.weight.detach()[1], before[1])
