"""PNN (also PGN), progressive neural networks. Rusu et al. 2016.

    column   every task has a network of its own; those of earlier tasks are frozen
    layer    h_l = f( W_l h_{l−1} + U_l ReLU( V_l [α_1 h¹_{l−1}, …, α_k h^k_{l−1}] ) ), h^j from the k earlier columns

α: a learned scalar a column, small at the start; V: a linear layer or 1×1 convolution that reduces all columns to the
width of one; U: of the shape of W. The heads read the features of all columns in the same way, without the ReLU.

Any network: a layer is a linear or convolution layer of the unit map that reads units, reached by hooks; other
readers (attention inside forward(), norms) have no lateral. Deviations. The columns have the size of the network that
was handed over and start from its weights. HAT's paper narrows them to 1.117/T of each layer, which needs the number
of tasks beforehand: to compare at equal size, hand over a network that is narrower by so much (`part` of the
AlexNet-like net). V and U have no biases. Earlier columns are computed as at evaluation, without dropout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept
from hatrack.modes import evaluating
from hatrack.nets.model import Model

HEADS = "heads"
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
Layer: TypeAlias = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
Seen: TypeAlias = dict[str, list[Tensor]]  # what each layer of a column has read, call by call


@dataclass
class PNN(Method):
    """A column a task, with lateral connections from all earlier columns."""

    name: ClassVar[str] = "pnn"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Rusu et al. 2016"
    summary: ClassVar[str] = "a network a task, fed by all earlier ones, which are frozen"
    stores: ClassVar[str] = "4·P bytes and adapters: a whole column"
    guarantee: ClassVar[bool] = True

    scale: float = hyper(0.1, "standard deviation of the laterals' scalars at the start", low=0.0)

    laterals: list[dict[str, Tensor]] = kept("lateral", answers=True)

    def attach(self, model: Model) -> None:
        super().attach(model)
        self._known: dict[str, Layer] | None = None

    def private(self) -> Mapping[str, Tensor]:
        kept = [*self.model.parameters(), *self.model.buffers()]
        return {name: self.model.initial[name] for name in kept}

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self._layers()  # refuses, before anything is trained, a network that cannot be traced
        self.laterals = [*self.laterals[:task], self._new_laterals(task, generator)]

    def _new_laterals(self, task: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return α, V and U of every layer for a new column; the first has none."""
        if task == 0:
            return {}
        weights = {name: layer.weight.shape for name, layer in self._layers().items()}
        head = self.model.heads[task].weight
        weights[HEADS] = head.shape
        made: dict[str, Tensor] = {}
        for name, shape in weights.items():
            width = self._width(name, task)
            made[f"{name}/scale"] = self.scale * torch.randn(task, generator=generator)
            made[f"{name}/reduce"] = _xavier((width, task * width), generator)
            made[f"{name}/into"] = _xavier(tuple(shape), generator)
        return {key: t.to(head).requires_grad_() for key, t in made.items()}

    def _width(self, name: str, task: int) -> int:
        layer = self.model.heads[task] if name == HEADS else self._layers()[name]
        return layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels

    def _layers(self) -> dict[str, Layer]:
        """Return the layers that read units of earlier layers, in forward order."""
        if self._known is None:
            named = [read.module for read in self.model.units.reads if read.module is not None]
            modules = {name: self.model.net.get_submodule(name) for name in named}
            self._known = {name: module for name, module in modules.items() if isinstance(module, LAYERS)}
        return self._known

    def trainable(self) -> dict[str, Tensor]:
        return {**super().trainable(), **{f"lateral/{key}": t for key, t in self.laterals[self.task].items()}}

    # ---- the columns

    def logits(self, x: Tensor, task: int) -> Tensor:
        """Return a task's logits: all earlier columns are run, frozen, then its own."""
        seen: list[Seen] = []
        with torch.no_grad(), evaluating(self.model.net):
            for column in range(task):
                seen.append(self._column(x, column, seen))
        own = self._column(x, task, seen)
        logits: Tensor = self.model.heads[task](own[HEADS][0])
        return logits if task == 0 else logits + self._lateral(task, HEADS, [c[HEADS][0] for c in seen])

    def _column(self, x: Tensor, column: int, earlier: list[Seen]) -> Seen:
        """Run one column; return what its layers and its head read."""
        layers = self._layers()
        read: Seen = {name: [] for name in layers}
        hooks = []
        for name, layer in layers.items():
            hooks.append(layer.register_forward_pre_hook(partial(_note, read[name])))
            if column:
                hooks.append(layer.register_forward_hook(partial(self._add, column, name, read, earlier)))
        try:
            read[HEADS] = [self.model.features(x, column)]
        finally:
            for hook in hooks:
                hook.remove()
        return read

    def _add(
        self, column: int, name: str, read: Seen, earlier: list[Seen], layer: nn.Module, args: Any, out: Tensor
    ) -> Tensor:
        """Add the lateral to a layer's output, as a forward hook."""
        call = len(read[name]) - 1
        return out + self._lateral(column, name, [c[name][call] for c in earlier])

    def _lateral(self, column: int, name: str, inputs: list[Tensor]) -> Tensor:
        scale, reduce, into = (self.laterals[column][f"{name}/{part}"] for part in ("scale", "reduce", "into"))
        if name == HEADS:
            head = self.model.heads[column]
            stacked = torch.cat([a * head.units_last(h) for a, h in zip(scale, inputs, strict=True)], -1)
            return head.placed(linear(linear(stacked, reduce), into))
        layer = self._layers()[name]
        if isinstance(layer, nn.Linear):
            stacked = torch.cat([a * h for a, h in zip(scale, inputs, strict=True)], -1)
            return linear(relu(linear(stacked, reduce)), into)
        stacked = torch.cat([a * h for a, h in zip(scale, inputs, strict=True)], 1).movedim(1, -1)
        # Contiguous, because oneDNN 3.12 writes past its memory in the weights' gradient of a strided 1×1 convolution
        # whose input is channels-last with fewer than 8 channels.
        reduced = relu(linear(stacked, reduce)).movedim(-1, 1).contiguous()
        lateral: Tensor = layer._conv_forward(reduced, into, None)
        return lateral

    # ---- the verbs

    def forward(self, x: Any) -> Tensor:
        return self.logits(x, self.task)

    def end_task(self, feed: Feed) -> None:
        # matmul looks at whether a gradient is wanted to choose how it goes about it, and so at the last bits
        self.laterals[self.task] = {key: t.detach() for key, t in self.laterals[self.task].items()}

    def predict(self, x: Tensor, task: int) -> Tensor:
        return self.logits(x, task)

    def unreleasable(self) -> str:
        return "every column reads all earlier ones"

    def use(self, task: int) -> Mapping[str, Tensor]:
        return {}  # every column is its task's own

    def built_on(self, task: int) -> Sequence[int]:
        return range(task)

    def occupied(self) -> Mapping[str, Tensor]:
        return {}


def _note(read: list[Tensor], module: nn.Module, args: Any) -> None:
    read.append(args[0])


def _xavier(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    space = prod(shape[2:])
    bound = (6 / ((shape[0] + shape[1]) * space)) ** 0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
