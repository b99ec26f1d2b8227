"""The calls of modules inside a forward pass: where a gate can be put on a module's input.

A module qualifies when it is called with exactly one tensor, its first argument: then a hook on it reaches that
tensor and nothing else. What a module is called with is seen by running the network once.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from hatrack import tree
from hatrack.masks.graph import Graph, module_stack
from hatrack.modes import evaluating


@dataclass
class ModuleCall:
    """One call of a module: its name, its number among the module's calls, and the value it is called with."""

    module: str
    number: int
    inputs: set[Node] = field(default_factory=set)
    inside: set[Node] = field(default_factory=set)
    batch_axes: tuple[int, ...] = ()
    hookable: bool = False

    @property
    def input(self) -> Node | None:
        """The node whose value the module gets, if a hook on its input reaches exactly that."""
        return next(iter(self.inputs)) if self.hookable and len(self.inputs) == 1 else None


class Calls:
    """All module calls of a graph."""

    def __init__(self, net: nn.Module, graph: Graph, batch: Any) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self._by_key: dict[str, ModuleCall] = {}
        self._stack: dict[Node, list[ModuleCall]] = {}
        names = {id(module): name for name, module in net.named_modules()}
        canonical = {path: names[id(m)] for path, m in net.named_modules(remove_duplicate=False)}
        self._collect(graph, canonical)
        self._observe(net, batch)

    def around(self, node: Node) -> list[ModuleCall]:
        """Return the module calls that a node belongs to, innermost first."""
        return self._stack.get(node, [])

    def module(self, node: Node) -> str:
        """Return the name of the innermost module around a node, '' for the network itself."""
        calls = self.around(node)
        return calls[0].module if calls else ""

    def _collect(self, graph: Graph, canonical: dict[str, str]) -> None:
        fixed = graph.parameters.keys() | graph.constants.keys()
        for node in graph.nodes:
            stack = []
            for key, path in module_stack(node):
                if path not in canonical or not canonical[path]:
                    continue
                if key not in self._by_key:
                    name = canonical[path]
                    self._by_key[key] = ModuleCall(name, self.counts[name])
                    self.counts[name] += 1
                stack.append(self._by_key[key])
            self._stack[node] = stack[::-1]
            for call in stack:
                call.inside.add(node)
                call.inputs |= {n for n in node.all_input_nodes if n not in call.inside and n not in fixed}

    def _observe(self, net: nn.Module, batch: Any) -> None:
        """Run the network on two batch sizes to learn what each module is called with."""
        shapes = []
        for size in (tree.count(batch), tree.count(batch) + 1):
            seen: dict[str, list[torch.Size | None]] = defaultdict(list)
            with ExitStack() as hooks, evaluating(net), torch.no_grad():
                for name, module in net.named_modules():
                    watch = partial(_record, seen[name])
                    hooks.enter_context(module.register_forward_pre_hook(watch, with_kwargs=True, prepend=True))
                tree.call(net, tree.repeated(batch, size))
            shapes.append(seen)
        for call in self._by_key.values():
            few, many = shapes[0][call.module], shapes[1][call.module]
            if len(few) != self.counts[call.module] or len(many) != len(few):
                continue
            small, large, node = few[call.number], many[call.number], next(iter(call.inputs), None)
            if small is None or large is None or node is None or not isinstance(node.meta.get("val"), Tensor):
                continue
            call.hookable = node.meta["val"].shape == small
            call.batch_axes = tuple(a for a, (n, m) in enumerate(zip(small, large, strict=True)) if n != m)
        unreachable = {call.module for call in self._by_key.values() if call.input is None}
        for call in self._by_key.values():  # one way for all calls of a module, as they share their weights
            call.hookable &= call.module not in unreachable


def _record(seen: list[torch.Size | None], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    tensors = [a for a in (*args, *kwargs.values()) if a is not None and not isinstance(a, bool | int | float | str)]
    one = len(tensors) == 1 and bool(args) and isinstance(args[0], Tensor) and tensors[0] is args[0]
    seen.append(args[0].shape if one else None)
