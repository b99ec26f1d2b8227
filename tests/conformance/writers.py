"""Optimisers as users write them, and whatever else writes to parameters while a task is learned."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Muon, Optimizer

# ---- optimisers


class MuonAndAdamW(Optimizer):
    """Muon takes weights of two dimensions only; AdamW moves the rest. One object that holds all, as it is asked for.

    The parts have no groups and no state of their own, so that a learning rate, a fresh start or a load reaches them.
    """

    def __init__(self, parameters: Sequence[Tensor], lr: float = 0.02) -> None:
        flat, rest = [p for p in parameters if p.ndim == 2], [p for p in parameters if p.ndim != 2]
        self.parts: list[Optimizer] = [Muon(flat, lr=lr, weight_decay=0.1), AdamW(rest, lr=lr, weight_decay=0.1)]
        super().__init__([group for part in self.parts for group in part.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for part, group in zip(self.parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state
            part.step()


class ScheduleFree(Optimizer):
    """Schedule-free SGD: gradients at y = (1−β)·z + β·x, steps on z, answers from the average x of all z.

    The parameters hold y while training and x otherwise; weight decay pulls at z.
    """

    def __init__(self, parameters: Sequence[Tensor], lr: float = 0.1, beta: float = 0.9) -> None:
        super().__init__(parameters, {"lr": lr, "beta": beta, "steps": 0, "training": False, "weight_decay": 0.1})

    @torch.no_grad()
    def _move(self, training: bool) -> None:
        for group in self.param_groups:
            weight = 1 - group["beta"] if training else 1 - 1 / group["beta"]
            for p in group["params"] if group["training"] != training else ():
                if "z" in self.state[p]:
                    p.lerp_(self.state[p]["z"], weight)
            group["training"] = training

    def train(self) -> None:
        self._move(True)

    def eval(self) -> None:
        self._move(False)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            assert group["training"], "train() comes first"
            group["steps"] += 1
            beta, share = group["beta"], 1 / group["steps"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                z = self.state[p].setdefault("z", p.clone())
                x = (p - (1 - beta) * z) / beta
                z.sub_(group["lr"] * (p.grad + group["weight_decay"] * p))
                x.lerp_(z, share)
                p.copy_((1 - beta) * z + beta * x)


class EveryThird(SGD):
    """Adds up gradients and steps on every third call."""

    calls = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.calls += 1
        moved = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        for p in moved:
            p.grad = self.state[p].get("sum", 0) + p.grad
            self.state[p]["sum"] = p.grad.clone()
        if self.calls % 3 == 0:
            super().step()
            for p in moved:
                del self.state[p]["sum"]


class Scaled(SGD):
    """Brings a GradScaler into the step; the first scale makes a gradient overflow, and that step is skipped."""

    def __init__(self, parameters: Sequence[Tensor], **options: Any) -> None:
        super().__init__(parameters, **options)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        self.inside = False
        self.skipped = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if self.inside:
            super().step()
            return
        scale = self.scaler.scale(torch.ones(()))
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(scale * 8).div_(8)
        before = self.scaler.get_scale()
        self.inside = True
        self.scaler.step(self)
        self.inside = False
        self.scaler.update()
        self.skipped += self.scaler.get_scale() < before


class SharpnessAware(SGD):
    """SAM: the gradient where the loss is highest nearby. Needs a closure, as LBFGS does, and returns nothing."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> None:  # type: ignore[override]
        with torch.enable_grad():
            closure()
        moved = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        stood = [p.clone() for p in moved]
        for p in moved:
            p.add_(p.grad, alpha=0.05).add_(0.01)
        with torch.enable_grad():
            closure()
        for p, old in zip(moved, stood, strict=True):
            p.data = old
        super().step()


class Lookahead(SGD):
    """Every second step the weights go half the way back to the slow ones, which take their place and storage."""

    calls = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        slow = {p: self.state[p].setdefault("slow", p.clone()) for g in self.param_groups for p in g["params"]}
        super().step()
        self.calls += 1
        if self.calls % 2 == 0:
            for p, tensor in slow.items():
                self.state[p]["slow"] = p.data = tensor.lerp(p, 0.5)


class Anew(SGD):
    """Gives every parameter a new place in memory at each step, by one of the ways there are."""

    def __init__(self, parameters: Sequence[Tensor], way: str, **options: Any) -> None:
        super().__init__(parameters, **options)
        self.way = way

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            for i, p in enumerate(group["params"]):
                new = torch.nn.Parameter(p.detach() * 0.99)
                if self.way == "data":
                    p.data = new.data
                elif self.way == "set":
                    p.set_(new.detach())
                elif self.way == "strides":
                    p.data = new.data.mT.contiguous().mT if p.ndim > 1 else new.data
                else:
                    group["params"][i] = new  # the optimiser loses the network's own


def in_backward(parameters: Sequence[Tensor]) -> Optimizer:
    """Let every parameter step as soon as its gradient is there, as a known trick to save memory does."""
    for p in parameters:
        inner = SGD([p], lr=0.05, weight_decay=0.1)

        def move(p: Tensor, inner: SGD = inner) -> None:
            inner.step()

        p.register_post_accumulate_grad_hook(move)
    return SGD(parameters, lr=0.05)


OPTIMISERS: dict[str, Callable[[Any], Optimizer]] = {
    "muon and adamw": MuonAndAdamW,
    "schedule-free": ScheduleFree,
    "accumulation": lambda p: EveryThird(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "scaler": lambda p: Scaled(p, lr=0.05, weight_decay=0.1),
    "sam": lambda p: SharpnessAware(p, lr=0.05, weight_decay=0.1),
    "lookahead": lambda p: Lookahead(p, lr=0.05, weight_decay=0.1),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.05, max_iter=3),
    "in backward": in_backward,
    **{f"anew by {way}": functools.partial(Anew, way=way, lr=0.05) for way in ("data", "set", "strides")},
    "lost parameters": lambda p: Anew(p, way="groups", lr=0.05),
}


# ---- whatever else writes

Write = Callable[[], None]


def _on_parameters(register: str) -> Callable[[nn.Module, Write], None]:
    def hang(net: nn.Module, write: Write) -> None:
        for p in net.parameters():
            getattr(p, register)(lambda *_: write())

    return hang


def _on_modules(register: str) -> Callable[[nn.Module, Write], None]:
    return lambda net, write: getattr(net[2], register)(lambda *_: write())  # type: ignore[index]


def _everywhere(register: str) -> Callable[[nn.Module, Write], Any]:
    return lambda _, write: getattr(nn.modules.module, register)(lambda *_: write())


WRITERS: dict[str, Callable[[nn.Module, Write], Any]] = {
    "post-accumulate": _on_parameters("register_post_accumulate_grad_hook"),
    "tensor": _on_parameters("register_hook"),
    "forward": _on_modules("register_forward_hook"),
    "forward-pre": _on_modules("register_forward_pre_hook"),
    "backward": _on_modules("register_full_backward_hook"),
    "backward-pre": _on_modules("register_full_backward_pre_hook"),
    "any forward": _everywhere("register_module_forward_hook"),
    "any forward-pre": _everywhere("register_module_forward_pre_hook"),
    "any backward": _everywhere("register_module_full_backward_hook"),
    "any backward-pre": _everywhere("register_module_full_backward_pre_hook"),
}
