"""A step (loss, backward, gradient edits, clip, plain SGD's update) as one piece of generated code.

The step is run once under a tracer that writes down every operation, backward and edits included, whatever Python led
to them: hooks, swapped weights, a method's own rules. Tensors it finds lying about (parameters, masks, samples, the
clock, the learning rate) become inputs, so that the same code serves every task and every seed with the same shapes;
it is handed to torch.compile once. With plain SGD the update is part of it, so that edits, clip and update pass over
the gradients together; other optimisers follow the gradients that the code leaves behind.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from hatrack.data.feed import Batch
from hatrack.learn.machine.foreach import FOREACH
from hatrack.learn.machine.rewrites import REWRITES
from hatrack.learn.step import Stepper, clip_traced, plain
from hatrack.nets.precision import Precision

BACKEND = "inductor"
_KNOWN: dict[tuple[Any, ...], Callable[..., Any]] = {}


class Compiled:
    """Compiled code with the tensors of one task as its inputs; `moved`: parameters whose gradients it leaves."""

    def __init__(self, code: Callable[..., Any], inputs: list[Tensor], moved: list[Tensor], stepper: Stepper) -> None:
        self._code, self._inputs, self._moved, self._stepper = code, inputs, moved, stepper

    @classmethod
    def trace(cls, stepper: Stepper, batch: Callable[[], Batch]) -> tuple[Compiled, Tensor]:
        """Do a step for real, or its evaluation; return it as code, and its loss."""
        outcome: list[Tensor] = []

        def step() -> list[Tensor]:
            outcome.append(stepper.evaluate(batch(), clip_traced))
            if plain(stepper.optimizer) and stepper.gates is None:
                stepper.descend()
            return [outcome[0], *(p.grad for p in stepper.parameters if p.grad is not None)]

        rounded = stepper.method.model.precision.rounded
        traced = make_fx(step, decomposition_table=FOREACH | REWRITES if rounded else FOREACH)()
        moved = [p for p in stepper.parameters if p.grad is not None]
        inputs = _lift(traced)
        return cls(_compile(traced, inputs, stepper.method.model.precision), inputs, moved, stepper), outcome[0]

    def __call__(self) -> Tensor:
        """Do the batch that the clock points at; return the loss."""
        with torch.no_grad(), self._stepper.method.model.precision.products():
            evaluated: list[Tensor] = self._code(*self._inputs)
        loss, *gradients = evaluated
        for parameter, gradient in zip(self._moved, gradients, strict=True):
            parameter.grad = gradient
        return loss

    def finish(self, loss: Tensor) -> None:
        """Leave to the optimiser what the code has not done, and end the step."""
        if self._moved:
            self._stepper.move(loss)
        else:
            self._stepper.settle(loss)


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


def _compile(traced: fx.GraphModule, inputs: list[Tensor], precision: Precision) -> Callable[..., Any]:
    """Compile code that was not met before."""
    kinds = [(tuple(t.shape), t.stride(), t.dtype, t.device) for t in inputs]
    key = (traced.code, precision.name, *kinds)
    if key not in _KNOWN:
        run: Callable[..., Any] = fx.GraphModule({}, traced.graph)
        _KNOWN[key] = _quiet(
            torch.compile(run, fullgraph=True, dynamic=False, backend=BACKEND, options=_options(precision))
        )
    return _KNOWN[key]


def _options(precision: Precision) -> dict[str, Any] | None:
    """Return advice to the compiler: on tensor cores convolutions want their channels last."""
    return {"force_layout_optimization": True} if precision.rounded and BACKEND == "inductor" else None


def _quiet(code: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch.compile's own warnings (advice on TF32, say) from the user's terminal while it compiles."""

    def call(*inputs: Tensor) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return code(*inputs)

    return call
