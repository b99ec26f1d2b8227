"""Derive the unit map of an unmodified network from the graph that torch.export gives.

Every tensor of the graph carries the number of the unit that stands at each of its entries. Operators that
rearrange entries are simply run on those numbers; layers that mix units read the old ones and write fresh ones;
adding two tensors makes their units one. An operator that is not known never leads to a guess: the units it reads
are pinned (always on) and the parameters it uses are frozen after the first task, and a note says so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from hatrack.errors import HatrackError
from hatrack.masks import ops
from hatrack.masks.unions import ALWAYS_ON, Unions, compact, constant_along
from hatrack.masks.unitmap import OFF, ON, Note, Read, Site, UnitMap, Use
from hatrack.masks.values import Value, expand_tail

# Layers whose forward is one operator on their input, so that a hook on the input gates what the operator reads.
HOOKABLE: tuple[type[nn.Module], ...] = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm, nn.Softmax,
)  # fmt: skip


def trace(net: nn.Module, example: Tensor) -> UnitMap:
    """Return the unit map of `net` for inputs like `example` (a batch of at least one)."""
    batch = example[:1].expand(2, *example.shape[1:]).clone()  # two equal samples: no axis of size 1 to confuse
    training = [m for m in net.modules() if m.training]
    net.eval()
    try:
        with torch.no_grad():
            program = torch.export.export(net, (batch,), strict=False)
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise HatrackError(
            f"torch.export cannot trace {type(net).__name__} ({first}); the unit map needs a forward without "
            f"data-dependent Python branches, or choose a method that needs no unit map."
        ) from error
    finally:
        for module in training:
            module.training = True
    return _Tracer(net, program).run()


class _Tracer:
    def __init__(self, net: nn.Module, program: torch.export.ExportedProgram) -> None:
        self.net = net
        self.program = program
        self.modules = dict(net.named_modules(remove_duplicate=False))
        names = {id(p): name for name, p in net.named_parameters()}
        self.names = {alias: names[id(p)] for alias, p in net.named_parameters(remove_duplicate=False)}
        self.shapes = {name: p.shape for name, p in net.named_parameters()}
        self.unions = Unions()
        self.uses: dict[str, list[tuple[Tensor, ...]]] = {}
        self.reads: list[tuple[Tensor, str | None, str | None]] = []
        self.read_by: list[tuple[Tensor, str]] = []
        self.wrote: dict[str, list[Tensor]] = {}
        self.norms: dict[str, str] = {}
        self.notes: list[Note] = []
        self.values: dict[Node, Any] = {}

    # ---- the walk

    def run(self) -> UnitMap:
        signature = self.program.graph_signature
        outputs: Any = None
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                name = signature.inputs_to_parameters.get(node.name)
                self.values[node] = self._placeholder(node, name)
            elif node.op == "call_function":
                self.values[node] = self._call(node)
            elif node.op == "output":
                outputs = self._get(node.args[0])
            else:
                raise HatrackError(f"the traced graph holds a {node.op!r} node ({node.name}), which is not supported.")
        return self._finish(self._features(outputs))

    def _placeholder(self, node: Node, name: str | None) -> Value:
        shape = node.meta["val"].shape
        if name is None:
            return Value(shape)
        return Value(shape, param=self.names[name], pos=torch.arange(shape.numel()).view(shape))

    def _features(self, outputs: Any) -> Tensor:
        values = [v for v in _flat(outputs) if isinstance(v, Value)]
        if len(values) != 1 or len(values[0].shape) < 2:
            shapes = [tuple(v.shape) for v in values]
            raise HatrackError(
                f"{type(self.net).__name__} must map a batch to one tensor of features (batch, features), "
                f"got outputs of shapes {shapes}."
            )
        ids = values[0].unit_ids().flatten(1)
        vector = self._along(ids, (1,))
        self.read_by.append((vector, "heads"))
        return vector

    def _get(self, arg: Any) -> Any:
        if isinstance(arg, Node):
            return self.values[arg]
        if isinstance(arg, list | tuple):
            return type(arg)(self._get(a) for a in arg)
        return arg

    def _call(self, node: Node) -> Any:
        name = _op_name(node)
        args = self._get(node.args)
        kwargs = {k: self._get(v) for k, v in node.kwargs.items()}
        inputs = [v for v in _flat([args, list(kwargs.values())]) if isinstance(v, Value)]
        if name == "getitem":
            return args[0][args[1]]
        unitless = not any(v.ids is not None or v.param for v in inputs)
        if name not in _WRITERS and (name in ops.SHAPE_ONLY or unitless):
            return _shaped(node, lambda shape: Value(shape))
        rule = self._rule(name)
        return rule(node, name, args, kwargs) if rule else self._unknown(node, name, inputs)

    def _rule(self, name: str) -> Callable[[Node, str, Any, Any], Any] | None:
        if name in _WRITERS:
            rule: Callable[[Node, str, Any, Any], Any] = getattr(self, _WRITERS[name])
            return rule
        if name in ops.BINARY:
            return self._binary
        table: tuple[tuple[Iterable[str], Callable[[Node, str, Any, Any], Any]], ...] = (
            (ops.REARRANGE, self._rearrange),
            (ops.POINTWISE, self._pointwise),
            (ops.SPATIAL, self._spatial),
            (ops.REDUCE, self._reduce),
            (ops.ALONG, self._mix_along),
        )
        return next((rule for names, rule in table if name in names), None)

    # ---- operators that keep units

    def _rearrange(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        values = [v for v in _flat([args, list(kwargs.values())]) if isinstance(v, Value)]
        first = values[0]
        if len(values) > 1 and name not in ("expand_as", "view_as", "reshape_as", "type_as"):
            values = [self._born(node, v) for v in values]  # cat, stack: parameters become units of their own
            swap = {id(old): new.unit_ids() for old, new in zip(_values(args, kwargs), values, strict=True)}
            ids = _run(node, args, kwargs, lambda v: swap[id(v)])
            sources = frozenset().union(*(v.sources for v in values))
            whole = all(v.sources or v.ids is None for v in values)
            return Value(ids.shape, ids=ids, sources=sources if whole else frozenset())
        ids = None if first.ids is None else _run(node, args, kwargs, lambda v: v.unit_ids())
        pos = None if first.pos is None else _run(node, args, kwargs, lambda v: _positions(v))
        return _shaped_pair(node, ids, pos, first)

    def _pointwise(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x = args[0]
        others = [v for v in _flat([args[1:], list(kwargs.values())]) if isinstance(v, Value)]
        if others:
            return self._binary(node, name, args, kwargs)
        sources = x.sources if name in ops.HOMOGENEOUS else frozenset()
        return _shaped(node, lambda shape: Value(shape, x.ids, x.param, x.pos, sources))

    def _binary(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        values = [v for v in _flat([args, list(kwargs.values())]) if isinstance(v, Value)]
        shape = node.meta["val"].shape
        acts = [v for v in values if v.ids is not None]
        params = [v for v in values if v.ids is None and v.param]
        if not acts:
            if len(params) == 1 and params[0].shape == shape:
                return Value(shape, None, params[0].param, params[0].pos)
            return self._unknown(node, name, values) if len(params) > 1 else self._born(node, params[0], shape)
        ids = acts[0].unit_ids().expand(shape)
        for other in acts[1:]:
            more = other.unit_ids().expand(shape)
            a, b = torch.broadcast_tensors(compact(ids), compact(more))
            both = (a != ALWAYS_ON) & (b != ALWAYS_ON)
            self.unions.merge(a[both], b[both]) if bool(both.any()) else None
            ids = torch.where(a == ALWAYS_ON, b, a).expand(shape)
        for value in params:
            self._use_by_entry(value, ids)
        scaling = name in ("mul", "div", "true_divide") and len(acts) == 1 and not params
        adding = name in ("add", "sub") and all(v.sources for v in values)
        sources = frozenset().union(*(v.sources for v in acts)) if scaling or adding else frozenset()
        return Value(shape, ids, sources=sources)

    def _spatial(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x, tail = args[0], ops.SPATIAL[name]
        if x.ids is None or not all(constant_along(x.ids, a) for a in range(x.ids.ndim - tail, x.ids.ndim)):
            return self._unknown(node, name, [x])
        return _shaped(node, lambda shape: Value(shape, expand_tail(x.ids, shape, tail)))

    def _pad(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x, widths = args[0], args[1]
        tail = len(widths) // 2
        shape = node.meta["val"].shape
        if x.ids is not None and all(constant_along(x.ids, a) for a in range(x.ids.ndim - tail, x.ids.ndim)):
            return Value(shape, expand_tail(x.ids, shape, tail))
        mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
        if mode != "constant" or x.ids is None:
            return self._unknown(node, name, [x])
        return Value(shape, nn.functional.pad(x.ids, widths, value=ALWAYS_ON))

    def _reduce(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x = args[0]
        if len(args) > 1 and isinstance(args[1], Value):
            return self._binary(node, name, args, kwargs)
        if x.ids is None:
            return self._unknown(node, name, [x])
        at = 2 if name in ("norm", "linalg_vector_norm") else 1
        given = kwargs.get("dim", args[at] if len(args) > at else None)
        axes = range(x.ids.ndim) if given is None or given == [] else [given] if isinstance(given, int) else given
        axes = sorted({a % x.ids.ndim for a in axes})
        keep = bool(args[at + 1]) if len(args) > at + 1 and isinstance(args[at + 1], bool) else False
        keep = bool(kwargs.get("keepdim", keep))
        if name in ("var", "std"):
            keep = len(_out_shape(node)) == x.ids.ndim
        if not all(constant_along(x.ids, a) for a in axes):
            self._read_bare(node, x)
        ids = x.ids
        for axis in axes:
            mixed = not constant_along(ids, axis)
            ids = torch.zeros_like(ids.narrow(axis, 0, 1)) if mixed else ids.narrow(axis, 0, 1)
        if not keep:
            for axis in reversed(axes):
                ids = ids.squeeze(axis)
        return _shaped(node, lambda shape: Value(shape, ids.expand(shape)))

    def _mix_along(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x, dim = args[0], args[1]
        if x.ids is None:
            return self._unknown(node, name, [x])
        if not constant_along(x.ids, dim % x.ids.ndim):
            self._read_at_module_or_bare(node, x)
        return _shaped(node, lambda shape: Value(shape, x.ids))

    # ---- layers that read units and write new ones

    def _linear(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x, weight = args[0], args[1]
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        return self._affine(node, x, weight, bias, transposed=False)

    def _addmm(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        return self._affine(node, args[1], args[2], args[0], transposed=True)

    def _affine(self, node: Node, x: Value, weight: Value, bias: Value | None, transposed: bool) -> Any:
        shape = node.meta["val"].shape
        if weight.ids is not None or x.param or len(weight.shape) != 2:
            return self._unknown(node, "linear", [v for v in (x, weight, bias) if v is not None])
        ids = x.unit_ids()
        if x.ids is not None and constant_along(ids, ids.ndim - 1) and bool((ids != ALWAYS_ON).any()):
            # The mixed axis holds no units (a linear layer over tokens): units pass, the weight serves them all.
            self._freeze(node, weight, bias, why="it serves every unit alike")
            return Value(shape, ids.narrow(-1, 0, 1).expand(shape))
        read = self._along(ids, (ids.ndim - 1,))
        written = self.unions.fresh(self._where(node), shape[-1])
        grid = (read[:, None], written[None, :]) if transposed else (written[:, None], read[None, :])
        self._use_weight(weight, grid)
        self._use_bias(bias, written)
        self._gate_input(node, read, (1,) * (len(x.shape) - 1) + (-1,), weight, read[:, None] if transposed else read)
        return Value(shape, written.expand(shape), sources=self._sources(weight, bias, written))

    def _conv(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x, weight = args[0], args[1]
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        transposed = name.startswith("conv_transpose")
        groups = args[7 if transposed else 6] if len(args) > (7 if transposed else 6) else 1
        if transposed:
            groups = args[6] if len(args) > 6 else 1
        shape = node.meta["val"].shape
        if weight.ids is not None or x.param:
            return self._unknown(node, name, [v for v in (x, weight, bias) if v is not None])
        ids = x.unit_ids()
        channel = ids.ndim - ops.CONVOLUTIONS[name] - 1
        read = self._along(ids, (channel,))
        out = shape[channel]
        written = self.unions.fresh(self._where(node), out)
        space = (1,) * ops.CONVOLUTIONS[name]
        if transposed:  # weight (in, out/groups, …)
            group = torch.arange(len(read)) // (len(read) // groups)
            to = group[:, None] * (out // groups) + torch.arange(out // groups)[None, :]
            grid = (read.view(-1, 1, *space), written[to].view(*to.shape, *space))
            of_weight = read.view(-1, 1, *space)
        else:  # weight (out, in/groups, …)
            group = torch.arange(out) // (out // groups)
            to = group[:, None] * (len(read) // groups) + torch.arange(len(read) // groups)[None, :]
            of_weight = read[to].view(*to.shape, *space) if groups > 1 else read.view(1, -1, *space)
            grid = (written.view(-1, 1, *space), of_weight)
        self._use_weight(weight, grid)
        self._use_bias(bias, written)
        self._gate_input(node, read, (1,) * channel + (-1,) + space, weight, of_weight)
        ids = written.view(-1, *space).expand(shape)
        return Value(shape, ids, sources=self._sources(weight, bias, written))

    def _embedding(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        weight = args[0]
        shape = node.meta["val"].shape
        if weight.ids is not None or not weight.param:
            return self._unknown(node, name, [weight])
        written = self.unions.fresh(self._where(node), shape[-1])
        self._use_weight(weight, (written[None, :],))
        return Value(shape, written.expand(shape), sources=self._sources(weight, None, written))

    def _batch_norm(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x = args[0]
        if x.ids is None:
            return self._unknown(node, name, [v for v in args if isinstance(v, Value)])
        channels = self._along(x.ids, (1,))
        for value in args[1:3]:
            self._use_bias(value, channels)
        if args[3] is not None:
            self.norms[self._module_path(node)] = name
        return _shaped(node, lambda shape: Value(shape, x.ids))

    def _norm_over_units(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x = args[0]
        if x.ids is None:
            return self._unknown(node, name, [v for v in args if isinstance(v, Value)])
        if name == "group_norm":
            affine, axes = args[2:4], [1]
        else:
            affine = args[2:3] if name == "rms_norm" else args[2:4]
            axes = list(range(x.ids.ndim - len(args[1]), x.ids.ndim))
        for value in affine:
            if value is not None:
                shape = (-1,) + (1,) * (x.ids.ndim - 2) if name == "group_norm" else value.shape
                pos = value.pos.view(shape) if value.pos is not None else None
                self._use_by_entry(Value(x.ids.shape, None, value.param, pos), x.ids)
        if not all(constant_along(x.ids, a) for a in axes):
            self._read_at_module_or_bare(node, x)
        return _shaped(node, lambda shape: Value(shape, x.ids))

    def _prelu(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        x, slope = args
        pos = None if slope.pos is None else slope.pos.view((-1,) + (1,) * (len(x.shape) - 2))
        self._use_by_entry(Value(x.shape, None, slope.param, pos), x.unit_ids())
        return _shaped(node, lambda shape: Value(shape, x.ids))

    def _matmul(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        a, b = args[0], args[1]
        if a.ids is None and a.param and b.param is None:
            return self._unknown(node, name, [a, b])
        if b.ids is None and b.param and a.param is None and len(b.shape) == 2:
            return self._affine(node, a, b, None, transposed=True)
        shape = node.meta["val"].shape
        left, right = a.unit_ids(), b.unit_ids()
        if len(a.shape) < 2 or len(b.shape) < 2 or a.param or b.param:
            return self._unknown(node, name, [a, b])
        inner_a, inner_b = not constant_along(left, left.ndim - 1), not constant_along(right, right.ndim - 2)
        if inner_a or inner_b:
            self._contract(node, a, b.unit_ids().transpose(-1, -2), b)
        rows, cols = left.narrow(-1, 0, 1), right.narrow(-2, 0, 1)
        rows = torch.zeros_like(rows) if inner_a else rows
        cols = torch.zeros_like(cols) if inner_b else cols
        if bool((rows != ALWAYS_ON).any()) and bool((cols != ALWAYS_ON).any()):
            return self._unknown(node, name, [a, b])
        return Value(shape, torch.maximum(rows, cols).expand(shape))

    def _attention(self, node: Node, name: str, args: Any, kwargs: Any) -> Any:
        q, k, v = args[:3]
        shape = node.meta["val"].shape
        if any(value.param for value in (q, k, v)):
            return self._unknown(node, name, [q, k, v])
        if not (constant_along(q.unit_ids(), -1 % len(q.shape)) and constant_along(k.unit_ids(), -1 % len(k.shape))):
            self._contract(node, q, k.unit_ids(), k)
        ids = v.unit_ids()
        per_head = self._along(ids, tuple(a for a in range(1, ids.ndim) if a != ids.ndim - 2))
        heads = v.shape[1:-2] + v.shape[-1:]
        spread = per_head.view(heads).unsqueeze(-2).unsqueeze(0)
        if shape[1] != spread.shape[1] and len(shape) == 4:  # grouped queries: each value head serves several
            spread = spread.repeat_interleave(shape[1] // spread.shape[1], dim=1)
        return Value(shape, spread.expand(shape))

    def _contract(self, node: Node, a: Value, other: Tensor, b: Value) -> None:
        """Sum over products a·b along the last axis: units at equal positions are one, and are read here."""
        keep = tuple(i for i in range(1, a.unit_ids().ndim) if i != a.unit_ids().ndim - 2)
        left, right = self._along(a.unit_ids(), keep), self._along(other, keep)
        if len(left) == len(right):
            self.unions.merge(left, right)
        else:
            self.unions.pin(torch.cat([left, right]))
        self._read_bare(node, a if a.sources else b)

    def _unknown(self, node: Node, name: str, inputs: list[Any]) -> Any:
        """Handle what is not known: pin the units it reads, freeze the parameters it uses, say so."""
        values = [v for v in inputs if isinstance(v, Value)]
        where = self._where(node)
        for value in values:
            if value.ids is not None:
                self.unions.pin(value.ids)
                self.notes.append(Note(where, f"reads its input through {name}(), which mixes units in a way that "
                                       f"cannot be gated: those units stay on for every task"))  # fmt: skip
            elif value.param:
                self._freeze(node, value, why=f"{name}() is not an operator that the unit map can look through")
        return _shaped(node, lambda shape: Value(shape))

    # ---- what a layer does to its parameters and its input

    def _freeze(self, node: Node, *values: Value | None, why: str) -> None:
        for value in values:
            if value is not None and value.param:
                self.uses.setdefault(value.param, []).append((torch.zeros((), dtype=torch.long),))
                self.notes.append(Note(value.param, f"is frozen after the first task: {why}"))

    def _use_weight(self, weight: Value, grid: tuple[Tensor, ...]) -> None:
        if weight.param is None or weight.pos is None:
            return
        self._record(weight.param, weight.pos, grid)

    def _use_bias(self, bias: Value | None, units: Tensor) -> None:
        if bias is not None and bias.param is not None and bias.pos is not None:
            self._record(bias.param, bias.pos, (units,))

    def _record(self, name: str, pos: Tensor, grid: tuple[Tensor, ...]) -> None:
        """Store a use at the parameter's own layout; `pos` maps the layout seen here to it."""
        shape = self.shapes[name]
        if pos.shape == shape and bool((pos.flatten() == torch.arange(pos.numel())).all()):
            self.uses.setdefault(name, []).append(grid)
            return
        whole = []
        for units in grid:
            flat = torch.full((shape.numel(),), -1, dtype=torch.long)
            flat[pos.flatten()] = units.expand(pos.shape).flatten()
            whole.append(flat.view(shape))
        if bool((whole[0] == -1).any()):  # a part of the parameter: entries elsewhere are not used here
            self.partial(name, whole)
        else:
            self.uses.setdefault(name, []).append(tuple(whole))

    def partial(self, name: str, whole: list[Tensor]) -> None:
        """Merge a use that covers some entries only into an earlier partial use of the same parameter."""
        for i, earlier in enumerate(self.uses.get(name, [])):
            free = all(bool(((old.expand(self.shapes[name]) == -1) | (new == -1)).all())
                       for old, new in zip(earlier, whole, strict=False))  # fmt: skip
            if len(earlier) == len(whole) and free:
                self.uses[name][i] = tuple(torch.maximum(old, new) for old, new in zip(earlier, whole, strict=True))
                return
        self.uses.setdefault(name, []).append(tuple(whole))

    def _use_by_entry(self, value: Value, ids: Tensor) -> None:
        """Record that each entry of a parameter meets the unit at its place; one that meets several serves all."""
        if value.param is None or value.pos is None:
            return
        shape = torch.broadcast_shapes(value.pos.shape, ids.shape)
        roots = self.unions.roots(compact(ids))
        pos, units = torch.broadcast_tensors(compact(value.pos.expand(shape)), roots)
        count = self.shapes[value.param].numel()
        low = torch.full((count,), torch.iinfo(torch.long).max)
        low.scatter_reduce_(0, pos.reshape(-1), units.reshape(-1), "amin")
        high = torch.full((count,), -1).scatter_reduce_(0, pos.reshape(-1), units.reshape(-1), "amax")
        one = torch.where(low == high, high, torch.where(high < 0, high, ALWAYS_ON))
        if bool(((low != high) & (high >= 0)).any()):
            self.notes.append(Note(value.param, "is frozen after the first task: one entry serves several units"))
        if bool((one < 0).any()):
            self.partial(value.param, [one.view(self.shapes[value.param])])
        else:
            self.uses.setdefault(value.param, []).append((one.view(self.shapes[value.param]),))

    def _born(self, node: Node, value: Value, shape: torch.Size | None = None) -> Value:
        """Turn a parameter that is used as data (a class token) into units of its own, one an entry."""
        if value.param is None or value.ids is not None:
            return value
        size = self.shapes[value.param]
        written = self.unions.fresh(value.param, size.numel())
        self._record(value.param, torch.arange(size.numel()).view(size), (written.view(size),))
        assert value.pos is not None
        ids = written[value.pos]
        return Value(shape or value.shape, ids.expand(shape or value.shape))

    def _sources(self, weight: Value, bias: Value | None, written: Tensor) -> frozenset[str]:
        given = [v for v in (weight, bias) if v is not None]
        if any(v.param is None for v in given):
            return frozenset()
        for v in given:
            assert v.param is not None
            units = written.view(-1, *(1,) * (len(v.shape) - 1)) if v is not weight else None
            self.wrote.setdefault(v.param, []).append(written if units is None else units)
        return frozenset(v.param for v in given if v.param)

    def _along(self, ids: Tensor, axes: tuple[int, ...]) -> Tensor:
        """Return the units along `axes`, merging those that share a place there."""
        kept = ids
        for axis in range(ids.ndim):
            if axis not in axes:
                if not constant_along(kept, axis):
                    self.unions.merge(kept, kept.narrow(axis, 0, 1))
                kept = kept.narrow(axis, 0, 1)
        return kept.reshape(-1)

    def _gate_input(self, node: Node, read: Tensor, view: tuple[int, ...], weight: Value, of_weight: Tensor) -> None:
        """Gate what a linear or convolution layer reads: at its module's input, or else in its weight."""
        path = self._module_path(node)
        self.read_by.append((read, path))
        if not bool((read != ALWAYS_ON).any()):
            return
        if self._hookable(node):
            self.reads.append((read.view(view), path, None))
        elif (
            weight.param is not None
            and weight.pos is not None
            and weight.pos.numel() == self.shapes[weight.param].numel()
        ):
            flat = torch.zeros(weight.pos.numel(), dtype=torch.long)
            flat[weight.pos.flatten()] = of_weight.expand(weight.shape).flatten()
            self.reads.append((flat.view(self.shapes[weight.param]), None, weight.param))
        else:
            self.unions.pin(read)
            self.notes.append(Note(self._where(node), "reads units at a place that cannot be gated: they stay on"))

    def _read_at_module_or_bare(self, node: Node, x: Value) -> None:
        if self._hookable(node):
            path = self._module_path(node)
            ids = compact(x.unit_ids())
            self.read_by.append((ids.reshape(-1), path))
            self.reads.append((ids, path, None))
        else:
            self._read_bare(node, x)

    def _read_bare(self, node: Node, x: Value) -> None:
        """Gate a value that a bare function reads, in the layers that wrote it; where that fails, pin."""
        ids = x.unit_ids()
        units = self.unions.roots(compact(ids)).unique()
        units = units[units != ALWAYS_ON]
        self.read_by.append((units, self._where(node)))
        if not len(units):
            return
        if not x.sources:
            self.unions.pin(units)
            self.notes.append(Note(self._where(node), "reads units inside forward() where no gate can be placed: "
                                   "those units stay on for every task"))  # fmt: skip
            return
        for name in sorted(x.sources):
            self.reads.append((self._gate_writer(name, units), None, name))

    def _gate_writer(self, name: str, units: Tensor) -> Tensor:
        """Return the written units of a weight or bias (0 for those not among `units`), at its shape."""
        shape = self.shapes[name]
        gated = torch.full((shape.numel(),), ALWAYS_ON)
        for use in self.uses[name]:
            for ids in use:
                here = ids.expand(shape).flatten()
                gated = torch.where(
                    torch.isin(self.unions.roots(here), units) & self._is_output(name, here), here, gated
                )
        return gated.view(shape)

    def _is_output(self, name: str, ids: Tensor) -> Tensor:
        return torch.isin(ids, torch.cat([w.flatten() for w in self.wrote.get(name, [])]))

    # ---- where we are

    def _module_path(self, node: Node) -> str:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        return str(stack[-1][0]).split("@")[0] if stack else ""

    def _where(self, node: Node) -> str:
        return self._module_path(node) or type(self.net).__name__

    def _hookable(self, node: Node) -> bool:
        module = self.modules.get(self._module_path(node))
        return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in HOOKABLE)

    # ---- the result

    def _finish(self, features: Tensor) -> UnitMap:
        number, sites = self._number()

        def renumber(ids: Tensor) -> Tensor:
            return number[self.unions.roots(ids)]

        reads = []
        for ids, module, parameter in self.reads:
            units = renumber(ids)
            if bool((units != ON).any()):
                reads.append(Read(compact(units), module, parameter))
        uses = {
            name: [Use(tuple(torch.where(ids < 0, OFF, renumber(ids.clamp_min(0))) for ids in use)) for use in found]
            for name, found in self.uses.items()
        }
        unused = [name for name in self.shapes if name not in uses]
        order = [*uses, *unused]
        return UnitMap(len(set(number.tolist()) - {ON}), sites, uses, self.shapes, reads, renumber(features), order,
                       self.norms, list(dict.fromkeys(self.notes)))  # fmt: skip

    def _number(self) -> tuple[Tensor, list[Site]]:
        """Number the units site by site; a site is a connected set of births."""
        total = sum(count for _, _, count in self.unions.births) + 1
        roots = self.unions.roots(torch.arange(total))
        births = Unions()
        births.fresh("", len(self.unions.births))
        at = torch.zeros(total, dtype=torch.long)
        for i, (_, first, count) in enumerate(self.unions.births, start=1):
            at[first : first + count] = i
        live = roots != ALWAYS_ON
        births.merge(at[live], at[roots[live]]) if bool(live.any()) else None
        group = births.roots(torch.arange(len(self.unions.births) + 1))
        number = torch.full((total,), ON)
        sites: list[Site] = []
        size = 0
        for g in group[1:].unique().tolist():
            members = [b for i, b in enumerate(self.unions.births, start=1) if int(group[i]) == g]
            units = torch.cat([torch.arange(first, first + count) for _, first, count in members])
            found = roots[units].unique()
            found = found[found != ALWAYS_ON]
            if not len(found):
                continue
            number[found] = torch.arange(size, size + len(found))
            writers = tuple(dict.fromkeys(name for name, _, _ in members))
            readers = tuple(dict.fromkeys(name for ids, name in self.read_by if self._touches(ids, found)))
            sites.append(Site(writers[0], size, len(found), writers, readers))
            size += len(found)
        return number, _distinct(sites)

    def _touches(self, ids: Tensor, found: Tensor) -> bool:
        return bool(torch.isin(self.unions.roots(ids), found).any())


_WRITERS = {
    "linear": "_linear", "addmm": "_addmm", "embedding": "_embedding", "batch_norm": "_batch_norm",
    "instance_norm": "_batch_norm", "layer_norm": "_norm_over_units", "rms_norm": "_norm_over_units",
    "group_norm": "_norm_over_units", "prelu": "_prelu", "matmul": "_matmul", "bmm": "_matmul", "mm": "_matmul",
    "scaled_dot_product_attention": "_attention", "pad": "_pad", "constant_pad_nd": "_pad",
    **dict.fromkeys(ops.CONVOLUTIONS, "_conv"),
}  # fmt: skip


def _op_name(node: Node) -> str:
    if node.target is operator.getitem:
        return "getitem"
    packet = getattr(node.target, "overloadpacket", node.target)
    name = getattr(packet, "__name__", str(packet))
    return name[:-1] if name.endswith("_") and not name.startswith("__") else name


def _flat(tree: Any) -> Iterable[Any]:
    if isinstance(tree, list | tuple):
        for part in tree:
            yield from _flat(part)
    else:
        yield tree


def _values(args: Any, kwargs: Any) -> list[Value]:
    return [v for v in _flat([args, list(kwargs.values())]) if isinstance(v, Value)]


def _positions(value: Value) -> Tensor:
    return torch.zeros(1, dtype=torch.long).expand(value.shape) if value.pos is None else value.pos


def _run(node: Node, args: Any, kwargs: Any, pick: Callable[[Value], Tensor]) -> Any:
    """Run the node's own operator on what `pick` takes from each value."""

    def swap(tree: Any) -> Any:
        if isinstance(tree, Value):
            return pick(tree)
        if isinstance(tree, list | tuple):
            return type(tree)(swap(t) for t in tree)
        return tree

    assert callable(node.target)
    if _op_name(node) in ("to", "_to_copy", "type_as", "float"):
        return swap(args[0])
    return node.target(*swap(args), **{k: swap(v) for k, v in kwargs.items()})


def _out_shape(node: Node) -> torch.Size:
    meta = node.meta["val"]
    shape: torch.Size = (meta[0] if isinstance(meta, list | tuple) else meta).shape
    return shape


def _shaped(node: Node, make: Callable[[torch.Size], Value]) -> Any:
    """Build the value(s) of a node that returns one tensor or several."""
    meta = node.meta["val"]
    if isinstance(meta, list | tuple):
        return [make(m.shape) if isinstance(m, Tensor) else m for m in meta]
    return make(meta.shape) if isinstance(meta, Tensor) else meta


def _shaped_pair(node: Node, ids: Any, pos: Any, first: Value) -> Any:
    meta = node.meta["val"]
    if isinstance(meta, list | tuple):
        return [
            Value(
                m.shape,
                None if ids is None else ids[i],
                first.param,
                None if pos is None else pos[i],
                first.sources,
            )
            for i, m in enumerate(meta)
        ]
    return Value(meta.shape, ids, first.param, pos, first.sources)


def _distinct(sites: list[Site]) -> list[Site]:
    """Give every site a name of its own."""
    seen: dict[str, int] = {}
    named = []
    for site in sites:
        seen[site.name] = seen.get(site.name, 0) + 1
        name = site.name if seen[site.name] == 1 else f"{site.name}#{seen[site.name]}"
        named.append(Site(name, site.start, site.size, site.writers, site.readers))
    return named
