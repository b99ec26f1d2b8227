"""A cut-out as a module that needs nothing of ours: torch.fx writes down what our own modules do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, fx, nn

from hatrack.data.inputs import Inputs
from hatrack.masks.narrow import written
from hatrack.tree import named, rebuilt


class _Inlining(fx.Tracer):
    """Goes through our own modules, and leaves all others as they are."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not _ours(m)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if isinstance(m, fx.GraphModule) and all(m is not known for known in self.root.modules()):
            return forward(*args, **kwargs)  # a gate: a hook, which no module holds
        return super().call_module(m, forward, args, kwargs)


def _ours(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] == "hatrack"


def without_ours(net: nn.Module) -> nn.Module:
    """Return the network with every module of a class of ours written out; raises where that cannot be traced."""
    done: dict[nn.Module, nn.Module] = {}

    def changed(module: nn.Module) -> nn.Module:
        if module not in done:
            new = written(module, _Inlining()) if _ours(module) else module
            done[module] = done[new] = new
            for name, child in list(new._modules.items()):
                if child is not None:
                    new._modules[name] = changed(child)
        return done[module]

    return changed(net)


def whole(
    net: nn.Module,
    head: nn.Linear,
    *,
    inputs: Inputs,
    like: Any,
    from_bytes: Collection[str],
    pick: Callable[[Any, Any], Any],
    gate: Tensor | None,
    axis: int | None,
) -> fx.GraphModule:
    """Return one module from raw inputs to answers: inputs prepared, the network, its features, the head.

    like        prepared inputs, for their form
    from_bytes  the inputs that may be bytes; numbers from 0 to 1 are taken as well
    pick        takes the features out of the network's output, given the input as well
    gate        of features, where the head could not take it in
    axis        along which the head reads units
    """
    root = nn.Module()
    root.add_module("net", net)
    root.add_module("head", head)
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)

    def held(name: str, value: Tensor) -> fx.Proxy:
        root.register_buffer(name, value)
        return fx.Proxy(graph.get_attr(name), tracer)

    names = [f"x{name}" if name.isdigit() else name or "x" for name in named(like)]
    given = {name: fx.Proxy(graph.placeholder(name), tracer) for name in names}
    ready = {
        name: _prepared(x, part, inputs, key in from_bytes, held)
        for (name, x), (key, part) in zip(given.items(), named(like).items(), strict=True)
    }
    args = () if isinstance(like, dict) else tuple(x.node for x in ready.values())
    kwargs: dict[str, Any] = {name: x.node for name, x in ready.items()} if isinstance(like, dict) else {}
    out = fx.Proxy(graph.call_module("net", args, kwargs), tracer)
    features = pick(out, rebuilt(like, list(ready.values())))
    if gate is not None:
        features = features * held("open_features", gate)
    features = features.flatten(1) if axis is None else features.movedim(1, -1) if axis == 1 else features
    answer = fx.Proxy(graph.call_module("head", (features.node,)), tracer)
    graph.output((answer.movedim(-1, 1) if axis == 1 else answer).node)
    return fx.GraphModule(root, graph, "CutOut")


def _prepared(x: Any, like: Tensor, inputs: Inputs, from_bytes: bool, held: Callable[[str, Tensor], fx.Proxy]) -> Any:
    if from_bytes:
        whole_range: Any = 255 - 254 * torch.is_floating_point(x)
        x = x.long() if inputs.ids else x.to(like.dtype) / whole_range
    if inputs.mean is not None and inputs.std is not None:
        shape = (1, -1) + (1,) * (like.ndim - 2)
        mean, inverse = (
            f.view(shape).to(like.device) for f in (torch.tensor(inputs.mean), 1 / torch.tensor(inputs.std))
        )
        x = (x - held("mean", mean)) * held("inverse_std", inverse)
    if inputs.permutation is not None:
        order = held("permutation", torch.tensor(inputs.permutation, device=like.device))
        x = x.flatten(1).index_select(1, order).view(x.shape)
    return x
