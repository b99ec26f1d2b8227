"""What a rule is: how one operator treats units. Rules register themselves under ATen's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Node

from hatrack.masks import ops
from hatrack.masks.graph import op_name
from hatrack.masks.reading import Reading
from hatrack.masks.recorder import Occasion, Recorder, Uses
from hatrack.masks.unions import Unions, compact
from hatrack.masks.values import Value, together


@dataclass
class Call:
    """One operator call: its arguments by their names in ATen's schema, and the books to write into."""

    node: Node
    name: str
    given: dict[str, Any]
    recorder: Recorder
    reading: Reading
    values: list[Value] = field(default_factory=list)

    def __getitem__(self, argument: str) -> Any:
        return self.given[argument]

    def get(self, argument: str, default: Any = None) -> Any:
        """Return an argument that not every overload has."""
        return self.given.get(argument, default)

    @property
    def unions(self) -> Unions:
        """The units met so far."""
        return self.recorder.unions

    @property
    def shape(self) -> torch.Size:
        """The shape of the (first) result."""
        meta = self.node.meta["val"]
        shape: torch.Size = (meta[0] if isinstance(meta, list | tuple) else meta).shape
        return shape

    @property
    def where(self) -> str:
        """The innermost module around the call."""
        return self.reading.where(self.node)

    def fresh(self, count: int, weight: Value) -> Tensor:
        """Return new units, written by the layer that `weight` belongs to."""
        return self.recorder.fresh(self.reading.layer(self.node, weight), count, weight)

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
        uses = [use for all_ in by for use in all_ or ()]
        known = None not in by and all(use.written is not None for use in uses)
        return self.units(ids, writers=uses if known else ())

    def units(
        self,
        ids: Tensor,
        *computed_from: Value,
        writers: Iterable[Occasion] = (),
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

    def mixed(self) -> Any:
        """Return the results of an operator after which no entry belongs to a unit any more."""
        return self.results(lambda shape: Value(shape, torch.zeros((), dtype=torch.long).expand(shape), reached=True))

    def unknown(self) -> Any:
        """Handle what no rule covers: gate (or pin) the units it reads, freeze the parameters it uses.

        What is computed from parameters alone, to be a weight, is one group: each entry may depend on all.
        """
        if not any(v.ids is not None or v.reached for v in self.values) and becomes_weight(self.node):
            whole = [v.mixed(*range(len(v.shape))).rearranged(torch.Size([]), _any) for v in self.values]
            return self.results(lambda shape: together(shape, whole))
        for value in self.values:
            if value.carries:
                self.reading.read(self.node, value, why=f"reads its input through {self.name}()")
            self.recorder.freeze(value, why=f"{self.name}() is an operator that the unit map cannot look through")
        reached = any(v.reached for v in self.values)
        return self.results(lambda shape: Value(shape, reached=reached))


def _any(pos: Tensor) -> Tensor:
    return pos.reshape(-1)[0]


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


def flat(tree: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists, tuples and dicts."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for part in tree:
            yield from flat(part)
    else:
        yield tree


def run(call: Call, pick: Callable[[Value], Tensor]) -> Any:
    """Run the call's own operator on what `pick` takes from each value."""

    def swap(tree: Any) -> Any:
        if isinstance(tree, Value):
            return pick(tree)
        if isinstance(tree, list | tuple):
            return type(tree)(swap(t) for t in tree)
        return tree

    schema, target = getattr(call.node.target, "_schema", None), call.node.target
    assert schema is not None
    assert callable(target)
    given = {name: swap(value) for name, value in call.given.items()}
    if op_name(call.node) in ("view", "_unsafe_view"):  # unit numbers may be expanded where the tensor was not
        return given["self"].reshape(call.shape)
    plain = [given[a.name] for a in schema.arguments if not a.kwarg_only]
    return target(*plain, **{a.name: given[a.name] for a in schema.arguments if a.kwarg_only})


def constant(call: Call) -> Tensor | None:
    """Return the result of a call on known constants, None where one is not known."""
    if any(v.known is None for v in call.values) and call.name not in ops.SHAPE_ONLY:
        return None
    result = run(call, lambda v: v.known if v.known is not None else torch.zeros(v.shape))
    return result.cpu() if isinstance(result, Tensor) else None
