"""A learner as it was before a task, so that the task is learned or never was.

values     the network's parameters and buffers and the heads are copied, on the host: they are written into while a
           task is learned, and copied back in place, for others hold on to them
method     what finished tasks left in it (`Method.state`) is copied as well
structure  of everything else it is enough to remember which things were held where: a task puts new ones in their
           places, or adds some
"""

from __future__ import annotations

from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from hatrack.data.feed import Feed
from hatrack.data.samples import Split
from hatrack.data.task import Task
from hatrack.learn.fit import Epoch
from hatrack.nets.model import Model

if TYPE_CHECKING:
    from hatrack.learn.core import Core

# What is not looked into: it has its own way back, or nothing in it changes.
CLOSED = (
    Tensor, nn.Module, Model, Feed, Split, Task, Dataset, Epoch, torch.Generator,
    type, FunctionType, BuiltinFunctionType, MethodType, ModuleType,
)  # fmt: skip
TRACED = ("units", "gating")  # of the model, from its first example


class Before:
    """What it takes to bring a learner back to where it stood when this was made."""

    def __init__(self, learner: Core, state: dict[str, Tensor] | None = None) -> None:
        """`state`: what finished tasks left in the method, where that stands in a file, and not in the method yet."""
        model = learner.model
        self.net = on_host({f"net/{name}": tensor for name, tensor in model.tensors().items()})
        self._frozen = {name for name, p in model.net.named_parameters() if not p.requires_grad}
        self.heads = [on_host(dict(head.named_parameters())) for head in model.heads]
        self._begun = [on_host(own) for own in model.private[learner.finished :]]  # of a task that goes on
        self.state = on_host(learner.method.state() if state is None else state)
        self._modes = [(module, module.training) for module in model.net.modules()]
        self._example = model.example
        self._traced = {name: model.__dict__[name] for name in TRACED if name in model.__dict__}
        self._structure = Structure(
            learner.method, *learner._growing(),
            model.heads, model.targets, model.private, model.copies, model.released,
        )  # fmt: skip
        self._held = {name: mask.clone() for name, mask in learner.locked_values.held.items()}  # written into
        self._fields = {
            name: learner.__dict__[name] for name in ("_fit", "_resume", "trained_with", "scheduled_with", "_before")
        }

    @torch.no_grad()
    def restore(self, learner: Core) -> None:
        """Bring the learner back; where that is broken off, it can be done again."""
        model, method = learner.model, learner.method
        self._structure.restore()
        _write({f"net/{name}": tensor for name, tensor in model.tensors().items()}, self.net)
        for head, copies in zip(model.heads, self.heads, strict=True):
            _write(dict(head.named_parameters()), copies)
        for own, copies in zip(model.private[learner.finished :], self._begun, strict=True):
            _write(own, copies)
        for tensor in [*model.net.parameters(), *(p for head in model.heads for p in head.parameters())]:
            tensor.grad = None
        for module, training in self._modes:
            module.training = training
        for name in TRACED:
            model.__dict__.pop(name, None)
        model.__dict__.update(self._traced)
        model.example = self._example
        method.load_state(self.state, learner.finished, model.device)
        learner.locked_values.held = dict(self._held)
        learner.stored.clear()  # its keys do not tell a task from another that is learned in its place
        learner.__dict__.update(self._fields)

    @torch.no_grad()
    def hold(self, model: Model, trained: Iterable[Tensor]) -> None:
        """Give heads and frozen parameters of before the task their values back, less what is `trained`."""
        known = {id(tensor) for tensor in trained}
        for head, copies in zip(model.heads, self.heads, strict=False):
            _write({name: p for name, p in head.named_parameters() if id(p) not in known}, copies)
        for name, p in model.net.named_parameters():
            if name in self._frozen and not p.requires_grad and id(p) not in known:
                p.copy_(self.net[f"net/{name}"])


def on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in the host's memory: the device's is what a task may have run out of."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _write(tensors: dict[str, Tensor], copies: dict[str, Tensor]) -> None:
    for name in tensors.keys() & copies.keys():  # a parameter may have got another name (parametrized)
        tensors[name].copy_(copies[name])


class Structure:
    """Which objects were held where, in everything that can be reached from `roots`; tensors are not copied."""

    def __init__(self, *roots: Any) -> None:
        self._seen: dict[int, tuple[Any, Any]] = {}  # every holder, and a copy of what it held
        waiting = list(roots)
        while waiting:
            thing = waiting.pop()
            if id(thing) in self._seen or isinstance(thing, CLOSED):
                continue
            if isinstance(thing, dict):
                waiting += thing.values()
            elif isinstance(thing, list | tuple | set | frozenset):
                waiting += thing
            elif hasattr(thing, "__dict__"):
                waiting.append(vars(thing))
            else:
                continue
            self._seen[id(thing)] = thing, _copied(thing)

    def restore(self) -> None:
        """Let every holder hold what it held."""
        for thing, held in self._seen.values():
            if isinstance(thing, dict | set):
                thing.clear()
                thing.update(held)
            elif isinstance(thing, list):
                thing[:] = held


def _copied(thing: Any) -> Any:
    return thing.copy() if isinstance(thing, dict | list | set) else None
