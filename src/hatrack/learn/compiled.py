"""A step's evaluation (loss, backward, gradient edits, clip) as one piece of generated code.

The evaluation is run once under a tracer that writes down every operation, backward and edits included, whatever
Python led to them: hooks, swapped weights, a method's own rules. Tensors it finds lying about (parameters, masks,
samples, the clock) become inputs, so that the same code serves every task and every seed with the same shapes; it is
handed to torch.compile once. The optimiser is left outside: torch's fused ones are a single kernel already, and
their learning rate may change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from hatrack.data.feed import Batch
from hatrack.learn.step import Stepper
from hatrack.nets.precision import Precision

BACKEND = "inductor"
_KNOWN: dict[tuple[Any, ...], Callable[..., Any]] = {}


class Compiled:
    """Compiled code with the tensors of one task as its inputs."""

    def __init__(
        self, code: Callable[..., Any], inputs: list[Tensor], moved: list[Tensor], precision: Precision
    ) -> None:
        self._code, self._inputs, self._moved, self._precision = code, inputs, moved, precision

    @classmethod
    def trace(cls, stepper: Stepper, batch: Callable[[], Batch]) -> tuple[Compiled, Tensor]:
        """Evaluate a batch for real, gradients left in place; return that evaluation as code, and its loss."""
        outcome: list[Tensor] = []

        def evaluate() -> list[Tensor]:
            outcome.append(stepper.evaluate(batch(), ask=False))
            return [outcome[0], *(p.grad for p in stepper.parameters if p.grad is not None)]

        traced = make_fx(evaluate)()
        moved = [p for p in stepper.parameters if p.grad is not None]
        inputs = _lift(traced)
        return cls(_compile(traced, inputs), inputs, moved, stepper.method.model.precision), outcome[0]

    def __call__(self) -> Tensor:
        """Evaluate the batch that the clock points at; leave gradients behind and return the loss."""
        with torch.no_grad(), self._precision.products():
            evaluated: list[Tensor] = self._code(*self._inputs)
        loss, *gradients = evaluated
        for parameter, gradient in zip(self._moved, gradients, strict=True):
            parameter.grad = gradient
        return loss


def _lift(traced: fx.GraphModule) -> list[Tensor]:
    """Turn the tensors that the tracer kept as constants into inputs, in the order in which they are used."""
    graph = traced.graph
    inputs: list[Tensor] = []
    placeholders: dict[str, fx.Node] = {}
    for node in [n for n in graph.nodes if n.op == "get_attr"]:
        name = str(node.target)
        if name not in placeholders:
            with graph.inserting_before(next(iter(graph.nodes))):
                placeholders[name] = graph.placeholder(name.replace(".", "_"))
            inputs.insert(0, getattr(traced, name).detach())
        node.replace_all_uses_with(placeholders[name])
        graph.erase_node(node)
    graph.lint()
    traced.recompile()
    return inputs


def _compile(traced: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """Compile code that was not met before."""
    kinds = [(tuple(t.shape), t.stride(), t.dtype, t.device) for t in inputs]
    key = (traced.code, *kinds)
    if key not in _KNOWN:
        run: Callable[..., Any] = fx.GraphModule({}, traced.graph)
        _KNOWN[key] = _quiet(torch.compile(run, fullgraph=True, dynamic=False, backend=BACKEND))
    return _KNOWN[key]


def _quiet(code: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch.compile's own warnings (advice on TF32, say) from the user's terminal while it compiles."""

    def call(*inputs: Tensor) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return code(*inputs)

    return call
