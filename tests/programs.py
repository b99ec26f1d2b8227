"""Random forward passes made of bare functions, modules and parameters, to try the unit map on what nobody thought of.

A program keeps a few tensors (batch, …) and applies random steps to them. Every step is chosen so that its shapes fit.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Step = Callable[[list[Tensor]], Tensor]
LARGEST = 96  # entries a sample: programs stay small


class Inner(nn.Module):
    """A module of one tensor around some steps, so that a gate can be put on its input."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for step in self.steps:
            values.append(step(values))
        return values[-1]


class Program(nn.Module):
    """A network of random steps; `text` says what it does."""

    def __init__(self, seed: int, length: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterList()
        self.parts = nn.ModuleList()
        self.text: list[str] = []
        self.steps: list[Step] = []
        values = [torch.randn(2, 4, 6)]
        self._append(values, "linear", self._module(nn.Linear(6, 6)))
        for _ in range(length):
            self._grow(values, self.steps)
        self._append(values, "linear", self._module(nn.Linear(values[-1].shape[-1], 5)))

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for step in self.steps:
            values.append(step(values))
        return values[-1].flatten(1)

    # ---- growing

    def _append(self, values: list[Tensor], name: str, function: Callable[[Tensor], Tensor], at: int = -1) -> bool:
        """Add a step on values[at] if it works and gives something usable."""
        at %= len(values)

        def step(held: list[Tensor], at: int = at) -> Tensor:
            return function(held[at])

        return self._take(values, self.steps, name, step)

    def _take(self, values: list[Tensor], steps: list[Step], name: str, step: Step) -> bool:
        with torch.no_grad():
            made = step(values)
        if made.ndim < 2 or made[0].numel() > LARGEST or made[0].numel() < 2 or len(made) != 2:
            return False
        values.append(made)
        steps.append(step)
        self.text.append(f"{name} → {tuple(made.shape[1:])}")
        return True

    def _grow(self, values: list[Tensor], steps: list[Step], inside: bool = False) -> None:
        kinds = [self._unary, self._unary, self._binary, self._weighted, self._weighted]
        for _ in range(20):
            choice = self.random.choice(kinds if inside else [*kinds, self._inner])
            if choice(values, steps):
                return

    def _pick(self, values: list[Tensor]) -> int:
        recent = self.random.randrange(max(0, len(values) - 4), len(values))
        return recent if self.random.random() < 0.5 else len(values) - 1

    def _module(self, module: nn.Module) -> nn.Module:
        self.parts.append(module)
        return module

    def _weight(self, *shape: int) -> Callable[[], Tensor]:
        """Return a way to the new parameter that still finds it when it is swapped for another."""
        self.weights.append(nn.Parameter(torch.randn(*shape, generator=self.generator) / max(shape[-1], 1) ** 0.5))
        at = len(self.weights) - 1
        return lambda: self.weights[at]

    # ---- kinds of steps

    def _unary(self, values: list[Tensor], steps: list[Step]) -> bool:
        at = self._pick(values)
        x, r = values[at], self.random
        axis = r.randrange(1, x.ndim)
        size, keep = x.shape[axis], r.random() < 0.5
        order = [0, *r.sample(range(1, x.ndim), x.ndim - 1)]
        cut = r.randrange(1, size) if size > 1 else 1
        shift = r.randrange(size)
        picked = torch.tensor([r.randrange(size) for _ in range(min(size, 5))])
        functions: dict[str, Callable[[Tensor], Tensor]] = {
            "tanh": torch.tanh,
            "gelu": F.gelu,
            "sigmoid": torch.sigmoid,
            "scale": lambda x: -0.5 * x,
            "shift": lambda x: x + 0.3,
            f"permute {order}": lambda x: x.permute(order),
            "flatten": lambda x: x.flatten(1),
            "unsqueeze": lambda x: x.unsqueeze(axis),
            f"split {axis}": lambda x: x.unflatten(axis, (2, size // 2)),
            f"slice {axis} {cut}": lambda x: x.narrow(axis, size - cut, cut),
            f"roll {axis}": lambda x: x.roll(shift, axis),
            f"flip {axis}": lambda x: x.flip(axis),
            f"index {axis}": lambda x: x.index_select(axis, picked),
            f"pad {axis}": lambda x: torch.cat([x, torch.ones_like(x.narrow(axis, 0, 1))], axis),
            f"mean {axis} {keep}": lambda x: x.mean(axis, keepdim=keep),
            f"max {axis}": lambda x: x.amax(axis, keepdim=True),
            f"softmax {axis}": lambda x: x.softmax(axis),
            f"normalise {axis}": lambda x: x * torch.rsqrt(x.pow(2).mean(axis, keepdim=True) + 0.1),
            f"centre {axis}": lambda x: x - x.mean(axis, keepdim=True),
            f"glu {axis}": lambda x: F.glu(x, axis),
            "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
            "group norm": lambda x: F.group_norm(x, 2),
            "self product": lambda x: torch.tanh(x @ x.transpose(-1, -2)),
            "cumsum": lambda x: torch.tanh(x.cumsum(axis)),
            "write": lambda x: _write(x, axis, cut),
        }
        name = r.choice(sorted(functions))
        halves = name.startswith(("split", "glu"))
        if (halves and size % 2) or (name == "group norm" and x.shape[1] % 2) or ("norm" in name and x.ndim < 3):
            return False
        if name == "self product" and x.ndim < 3:
            return False
        function = functions[name]
        return self._take(values, steps, name, lambda held: function(held[at]))

    def _binary(self, values: list[Tensor], steps: list[Step]) -> bool:
        first, r = self._pick(values), self.random
        partners = [i for i, v in enumerate(values) if v.shape == values[first].shape]
        second = r.choice(partners)
        axis = r.randrange(1, values[first].ndim)
        functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "add": lambda a, b: a + b,
            "multiply": lambda a, b: a * b,
            "gate": lambda a, b: a * torch.sigmoid(b),
            "maximum": torch.maximum,
            f"cat {axis}": lambda a, b: torch.cat([a, b], axis),
            "stack": lambda a, b: torch.stack([a, b], axis),
        }
        name = r.choice(sorted(functions))
        function = functions[name]
        return self._take(values, steps, f"{name} {first} {second}", lambda held: function(held[first], held[second]))

    def _weighted(self, values: list[Tensor], steps: list[Step]) -> bool:
        at, r = self._pick(values), self.random
        x = values[at]
        last, out = x.shape[-1], r.randrange(2, 6)
        name = r.choice(
            "module,linear,matmul,left,einsum,heads,conv,add,multiply,affine norm,exp,batch norm,twice".split(",")
        )
        if name in ("left", "heads", "conv", "affine norm", "batch norm") and x.ndim != 3:
            return False
        middle = x.shape[1]
        if name == "module":
            module = self._module(nn.Linear(last, out))
            return self._take(values, steps, name, lambda held: torch.tanh(module(held[at])))
        if name == "twice":
            module = self._module(nn.Linear(last, last))
            return self._take(values, steps, name, lambda held: module(torch.tanh(module(held[at]))))
        if name == "affine norm":
            module = self._module(r.choice([nn.LayerNorm(last), nn.RMSNorm(last), nn.GroupNorm(1, middle)]))
            return self._take(values, steps, name, lambda held: module(held[at]))
        if name == "batch norm":
            module = self._module(nn.BatchNorm1d(middle))
            return self._take(values, steps, name, lambda held: module(held[at]))
        if name == "conv":
            module = self._module(nn.Conv1d(middle, 2 * middle, 1, groups=middle if r.random() < 0.5 else 1))
            return self._take(values, steps, name, lambda held: module(held[at]))
        if name in ("add", "multiply"):
            shape = [1, *(n if r.random() < 0.7 else 1 for n in x.shape[1:])]
            weight = self._weight(*shape)
            act = torch.add if name == "add" else torch.mul
            return self._take(values, steps, f"{name} {shape}", lambda held: act(held[at], weight()))
        shapes = {"linear": (out, last), "matmul": (last, out), "einsum": (out, last), "exp": (out, last),
                  "left": (out, middle), "heads": (middle, last, out)}  # fmt: skip
        weight = self._weight(*shapes[name])
        functions: dict[str, Callable[[Tensor], Tensor]] = {
            "linear": lambda x: F.linear(x, weight()),
            "matmul": lambda x: x @ weight(),
            "einsum": lambda x: torch.einsum("...i,oi->...o", x, weight()),
            "exp": lambda x: F.linear(x, torch.exp(-weight())),
            "left": lambda x: weight() @ x,
            "heads": lambda x: torch.einsum("nhi,hio->nho", x, weight()),
        }
        function = functions[name]
        return self._take(values, steps, name, lambda held: torch.tanh(function(held[at])))

    def _inner(self, values: list[Tensor], steps: list[Step]) -> bool:
        at = self._pick(values)
        held, inside = [values[at]], []
        self.text.append("inside {")
        for _ in range(self.random.randrange(1, 4)):
            self._grow(held, inside, inside=True)
        self.text.append("}")
        module = self._module(Inner(inside))
        return self._take(values, steps, f"module on {at}", lambda outside: module(outside[at]))


def _write(x: Tensor, axis: int, count: int) -> Tensor:
    y = torch.zeros_like(x)
    y.narrow(axis, 0, count).copy_(x.narrow(axis, x.shape[axis] - count, count))
    y.narrow(axis, 0, 1).mul_(2)
    return y
