"""What a rule is: how one operator treats units. Rules register themselves under ATen's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_map_only

from hatrack.masks import ops
from hatrack.masks.abstract_value import Value, together
from hatrack.masks.graph import op_name
from hatrack.masks.placement import Placement
from hatrack.masks.recorder import ParameterUse, Recorder, Uses, writers
from hatrack.masks.union_find import UnionFind, compact


@dataclass
class Call:
    """One operator call: its arguments by their names in ATen's schema, and the books to write into."""

    node: Node
    name: str
    given: dict[str, Any]
    recorder: Recorder
    placement: Placement
    values: list[Value]

    def __getitem__(self, argument: str) -> Any:
        return self.given[argument]

    def get(self, argument: str, default: Any = None) -> Any:
        """Return an argument that not every overload has."""
        return self.given.get(argument, default)

    @property
    def unions(self) -> UnionFind:
        """The units met so far."""
        return self.recorder.unions

    @property
    def shape(self) -> torch.Size:
        """The shape of the (first) result."""
        meta = self.node.meta["val"]
        shape: torch.Size = (meta[0] if isinstance(meta, list | tuple) else meta).shape
        return shape

    def fresh(self, count: int, weight: Value) -> Tensor:
        """Return new units, written by the layer that `weight` belongs to."""
        return self.recorder.fresh(self.placement.layer(self.node, weight), count, weight)

    def results(self, make: Callable[[torch.Size], Value]) -> Any:
        """Build the value, or the list of values, that the operator returns."""
        meta = self.node.meta.get("val")
        if isinstance(meta, list | tuple):
            return [make(m.shape) if isinstance(m, Tensor) else m for m in meta]
        return make(meta.shape) if isinstance(meta, Tensor) else meta

    def now(self, ids: Tensor) -> Tensor:
        """Return unit numbers as they are by now: reading and merging may have made units one, or pinned them."""
        return self.unions.roots(compact(ids)).expand(ids.shape)

    def written(self, ids: Tensor, *by: Uses) -> Value:
        """Return new units as a value, written by a weight (and a bias)."""
        return self.units(ids, writers=writers(*by))

    def units(
        self,
        ids: Tensor,
        *computed_from: Value,
        writers: Iterable[ParameterUse] = (),
        zeros: Iterable[Node] = (),
        shape: torch.Size | None = None,
    ) -> Value:
        """Return a value of this call with the units `ids`; it is computed, unit by unit, from other values.

        Without `computed_from` the value is an origin of its own; `writers` and `zeros` as in `Value`.
        """
        own = frozenset({self.node})
        carrying = [v.origins for v in computed_from if v.carries]
        origins = frozenset.intersection(*carrying) if carrying else own
        return Value(
            self.shape if shape is None else shape,
            ids,
            writers=frozenset(writers),
            origins=origins | own,
            zeros=own.union(zeros),
            reached=True,
        )

    def unknown(self) -> Any:
        """Handle what no rule covers: gate (or pin) the units it reads, freeze the parameters it uses.

        What is computed from parameters alone, to be a weight, is one group: each entry may depend on all.
        """
        if not any(v.ids is not None or v.reached for v in self.values) and becomes_weight(self.node):
            mixed = [v.mixed(*range(len(v.shape))) for v in self.values]
            whole = [v.rearranged(torch.Size([]), lambda pos: pos.reshape(-1)[0]) for v in mixed]
            return self.results(lambda shape: together(shape, whole))
        for value in self.values:
            if value.carries:
                self.placement.read(self.node, value, why=f"reads its input through {self.name}()")
            self.recorder.freeze(value, why=f"{self.name}() is an operator that the unit map cannot look through")
        reached = any(v.reached for v in self.values)
        return self.results(lambda shape: Value(shape, reached=reached))


Rule: TypeAlias = Callable[[Call], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the operators `names`."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


LAYERS = {"linear", "embedding", "scaled_dot_product_attention", *ops.CONVOLUTIONS, *ops.RECURRENT}


def becomes_weight(node: Node) -> bool:
    """Whether what `node` computes from parameters ends as the weight or bias of a layer, not as data."""
    seen, ahead = {node}, [node]
    while ahead:
        here = ahead.pop()
        for user in here.users:
            layer = op_name(user) in LAYERS
            if layer and any(bind(user, lambda arg: arg).get(name) is here for name in ("weight", "bias")):
                return True
            if not layer and user not in seen:
                seen.add(user)
                ahead.append(user)
    return False


def bind(node: Node, get: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the arguments of a node by name, defaults included, with `get` applied to each."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(i): get(a) for i, a in enumerate(node.args)} | {k: get(v) for k, v in node.kwargs.items()}
    given = {a.name: a.default_value for a in schema.arguments}
    given |= dict(zip(given, (get(a) for a in node.args), strict=False))
    return given | {name: get(a) for name, a in node.kwargs.items()}


def run(call: Call, pick: Callable[[Value], Tensor]) -> Any:
    """Run the call's own operator on what `pick` takes from each value."""
    target: Any = call.node.target
    given = tree_map_only(Value, pick, call.given)
    if call.name in ("view", "_unsafe_view"):  # unit numbers may be expanded where the tensor was not
        return given["self"].reshape(call.shape)
    arguments = target._schema.arguments
    plain = [given[a.name] for a in arguments if not a.kwarg_only]
    return target(*plain, **{a.name: given[a.name] for a in arguments if a.kwarg_only})
