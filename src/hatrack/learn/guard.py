"""What is done around the steps of an optimiser in a loop of the user's.

    before  gradients are edited (after the closure, where the step takes one): compensation, locks
    after   gates are moved by the method's own rule, clamped; locked entries get their bits back

A loop may clip, scale and add up gradients as it likes: all of that is over when a step begins. For the same reason the
optimiser has to hold the gates: what scales losses divides the gradients of what an optimiser holds. Where they stand
among others, its step on them is replaced by the method's own; in a group of their own they are the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hatrack.errors import HatrackError
from hatrack.methods.base import Method


class Guard:
    """Guards the steps of one optimiser in one task; `refuse` is called before each, `count` after."""

    def __init__(
        self, method: Method, optimizer: Optimizer, task: str, refuse: Callable[[], None], count: Callable[[], None]
    ) -> None:
        self._method, self._task, self._refuse, self._count = method, task, refuse, count
        gates = {id(tensor) for tensor in method.gates().values()}
        mixed = [g for g in optimizer.param_groups if not all(id(p) in gates for p in g["params"])]
        self._gates = [p for group in mixed for p in group["params"] if id(p) in gates]
        self._rule = method.optimizer(self._gates) if self._gates else None
        self._rates = [group["lr"] for group in self._rule.param_groups] if self._rule is not None else []
        self._began: list[Tensor] = []
        self._whole = float(optimizer.param_groups[0]["lr"])
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)

    def _edit(self) -> None:
        if all(tensor.grad is None for tensor in self._method.trainable().values()):
            return
        gates = self._method.gates().values()
        if gates and all(gate.grad is None for gate in gates):
            raise HatrackError(
                f"task {self._task!r}: a step whose gradients leave out all gates; answer the batches that are trained "
                f"on in training mode, hats.train()."
            )
        self._method.after_backward()

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._refuse()
        self._began = [gate.detach().clone() for gate in self._gates]
        _, *places = args  # the optimiser, and what its step was given
        closure = places[0] if places else kwargs.get("closure")
        if closure is None:
            self._edit()
            return None

        def edited() -> Any:
            loss = closure()
            self._edit()
            return loss

        return ((args[0], edited, *places[1:]), kwargs) if places else (args, {**kwargs, "closure": edited})

    @torch.no_grad()
    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._rule is not None:
            for gate, began in zip(self._gates, self._began, strict=True):
                gate.copy_(began)
            group = optimizer.param_groups[0]
            share = float(group["lr"]) / (float(group.get("max_lr", group.get("initial_lr", self._whole))) or 1.0)
            for mine, rate in zip(self._rule.param_groups, self._rates, strict=True):
                mine["lr"] = rate * share
            self._rule.step()
        self._method.after_step()
        self._count()
