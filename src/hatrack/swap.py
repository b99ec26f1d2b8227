"""Tensors put in the place of a network's own for one forward pass.

As torch.func.functional_call does it, but for a module that the network holds under several names, which that one gives
back wrongly: the swapped tensor stays in its place. Each place, a module and an attribute, is swapped once here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, device, dtype, nn

Slot = tuple[dict[str, Tensor | None], str]  # the module's own table of parameters or buffers, and the name in it


class Slots:
    """Where a network holds each of its parameters and buffers, by name; several places for a tied one."""

    def __init__(self, net: nn.Module) -> None:
        self._by_name: dict[str, list[Slot]] = {}
        self._places: dict[str, list[tuple[str, str]]] = {}
        self._first: list[tuple[str, Slot, nn.Parameter, dtype, device]] = []  # what was held in every place at first
        first: dict[int, str] = {}
        for path, module in net.named_modules():  # each module once, whatever its names
            for table in (module._parameters, module._buffers):
                for attribute, tensor in table.items():
                    if tensor is not None:
                        name = first.setdefault(id(tensor), f"{path}.{attribute}" if path else attribute)
                        self._by_name.setdefault(name, []).append((table, attribute))
                        self._places.setdefault(name, []).append((path, attribute))
                        if isinstance(tensor, nn.Parameter):  # a buffer may be another after every forward pass
                            self._first.append((name, (table, attribute), tensor, tensor.dtype, tensor.device))

    def altered(self) -> tuple[str, str | None] | None:
        """Name a parameter that is not what it was when this was made, and what it is now; None: another one."""
        for name, (table, attribute), parameter, kind, where in self._first:
            now = table.get(attribute)
            if now is not None and now.dtype != kind:
                return name, f"{_short(now.dtype)}, and was {_short(kind)}"
            if now is not None and now.device != where:
                return name, f"on {now.device}, and was on {where}"
            if now is not parameter:
                return name, None
        return None

    def places(self, name: str) -> list[tuple[str, str]]:
        """Return the modules, by path, that hold a tensor, each with its name there."""
        return self._places[name]

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Let the network hold `tensors` for good."""
        for name, tensor in tensors.items():
            for table, attribute in self._by_name[name]:
                table[attribute] = tensor

    @contextmanager
    def holding(self, tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """Let the network hold `tensors`; afterwards the yielded table has what it holds in their places by then."""
        own = [(table, attribute, table[attribute]) for name in tensors for table, attribute in self._by_name[name]]
        left: dict[str, Tensor] = {}
        try:
            for name, tensor in tensors.items():
                for table, attribute in self._by_name[name]:
                    table[attribute] = tensor
            yield left
            for name in tensors:
                table, attribute = self._by_name[name][0]
                held = table[attribute]
                assert held is not None
                left[name] = held
        finally:
            for table, attribute, mine in own:
                table[attribute] = mine


def copied(net: nn.Module) -> nn.Module:
    """Return a copy of a network, without results that training has left in its attributes: they cannot be copied."""
    held = (value for module in net.modules() for value in vars(module).values() if isinstance(value, Tensor))
    made: nn.Module = copy.deepcopy(net, {id(tensor): None for tensor in held if not tensor.is_leaf})
    return made


def _short(kind: dtype) -> str:
    return str(kind).removeprefix("torch.")
