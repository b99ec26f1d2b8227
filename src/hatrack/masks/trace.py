"""Derive the unit map of an unmodified network from the graph that torch.export gives.

Every tensor of the graph carries the number of the unit that stands at each of its entries. Operators that
rearrange entries are simply run on those numbers; layers that mix units read the old ones and write fresh ones;
adding two tensors makes their units one. An operator that is not known never leads to a guess: what it reads is
gated or else pinned (always on), the parameters it uses are frozen after the first task, and a note says so.

The way through the package: graph.py (what is computed) and module_calls.py (by which modules) → rules/ (what each
operator does to units) → recorder.py (what parameters serve which units) and placement.py (where gates go) → sites.py
(the map).
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map_only

from hatrack.errors import HatrackWarning
from hatrack.masks import ops
from hatrack.masks.abstract_value import Held, Value
from hatrack.masks.check import check
from hatrack.masks.graph import Graph, export, op_name, untraceable
from hatrack.masks.module_calls import Calls
from hatrack.masks.placement import Placement
from hatrack.masks.recorder import Recorder
from hatrack.masks.rules import RULES, Call, bind, run
from hatrack.masks.sites import unit_map
from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import UnitMap
from hatrack.modes import untouched
from hatrack.tree import repeated

LARGEST_CONSTANT = 1_000_000  # entries up to which constants are computed, to be looked at when they index something


def trace(net: nn.Module, example: Any) -> UnitMap:
    """Return the unit map of `net` for inputs like `example`; warn of everything handled conservatively."""
    units = derive(net, example)
    for note in units.notes:
        warnings.warn(HatrackWarning(f"{type(net).__name__}: {note}."), stacklevel=2)
    return units


def derive(net: nn.Module, example: Any) -> UnitMap:
    """Return the unit map without warnings; they are in its notes."""
    batch = repeated(example, 2)  # two equal samples: no axis of size 1 to confuse
    with untouched(net):
        graph = export(net, batch)
        try:
            calls = Calls(net, graph, batch)
        except Exception as error:  # tracing has left something behind that is neither in the network nor in us
            raise untraceable(net, error) from error
        units = Walk(net, graph, calls).run()
        check(net, units, example)
    return units


class Walk:
    """Goes through the graph once, in forward order."""

    def __init__(self, net: nn.Module, graph: Graph, calls: Calls) -> None:
        self.graph = graph
        self.values: dict[Node, Any] = {}
        parameters = dict(net.named_parameters())
        trained = {name for name, p in parameters.items() if p.requires_grad}
        self.recorder = Recorder({name: p.shape for name, p in parameters.items()}, trained)
        self.placement = Placement(self.recorder, calls, self.values, graph.owners, type(net).__name__)

    def run(self) -> UnitMap:
        for name in self.graph.mutated:
            self.recorder.note(name, "is a buffer that forward() itself changes: old tasks change whenever it does")
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self._placeholder(node)
            elif node.op == "call_function":
                self.values[node] = self._call(node)
        (node,) = self.graph.outputs
        ids = self._now(node).unit_ids()
        features = self.recorder.unions.along(ids, *range(1, ids.ndim))[0]
        self.placement.readers.append((features.reshape(-1), "heads"))
        return unit_map(self.recorder, self.placement, features)

    def _placeholder(self, node: Node) -> Value:
        shape = node.meta["val"].shape
        if node in self.graph.parameters:
            return Value(shape, held=(Held(self.graph.parameters[node], shape.numel()),))
        known = self.graph.constants.get(node)
        return Value(shape, known=known, reached=known is None)

    def _get(self, arg: Any) -> Any:
        return tree_map_only(Node, self._now, arg)

    def _now(self, node: Node) -> Any:
        """Return a value with the numbers that its units have by now: some may have become one, or been pinned."""
        self.values[node] = tree_map_only(Value, self._renumbered, self.values[node])
        return self.values[node]

    def _renumbered(self, value: Value) -> Value:
        if value.ids is None:
            return value
        return replace(value, ids=self.recorder.unions.roots(compact(value.ids)).expand(value.shape))

    def _call(self, node: Node) -> Any:
        name = op_name(node)
        if name == "getitem":
            return self._get(node.args[0])[node.args[1]]
        given = bind(node, self._get)
        values = [v for v in tree_leaves(given) if isinstance(v, Value)]
        call = Call(node, name, given, self.recorder, self.placement, values)
        if name in ops.SHAPE_ONLY or not any(v.ids is not None or v.held for v in values):
            return _plain(call)
        return RULES.get(name, Call.unknown)(call)


def _plain(call: Call) -> Any:
    """Pass on what holds neither units nor parameters; constants are computed, for they may index something."""
    if call.name not in ops.SHAPE_ONLY and any(v.reached for v in call.values):
        return call.results(lambda shape: Value(shape, reached=True))
    meta, known = call.node.meta.get("val"), None
    small = isinstance(meta, Tensor) and meta.numel() <= LARGEST_CONSTANT
    computable = call.name in ops.SHAPE_ONLY or all(v.known is not None for v in call.values)
    if small and computable and call.name not in ops.RANDOM:
        known = run(call, lambda v: torch.zeros(v.shape) if v.known is None else v.known).cpu()
    return call.results(lambda shape: Value(shape, known=known))
