"""Random networks × random optimisers × a random number of tasks: nothing is forgotten, and free entries do move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hatrack import Learner, Task
from zoo import Lively, alive

pytestmark = [
    pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning"),
    pytest.mark.filterwarnings("ignore::hatrack.learn.capacity.CapacityWarning"),
]

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "prelu": nn.PReLU}


# ---- networks: a list of named pieces, so that a failing example can be read


class Residual(nn.Module):
    """shortcut(x) + body(x)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.body(x)


class Concat(nn.Module):
    """x and body(x) side by side."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


class Excite(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, 2), nn.Linear(2, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))[:, :, None, None]


class Twice(nn.Module):
    """One layer, applied two times."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


class Bare(nn.Module):
    """A linear layer without a module."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, width) / 2), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,io->...o", x, self.weight) + self.bias if x.ndim > 2 else x @ self.weight + self.bias


class Tokens(nn.Module):
    """Pictures become sequences, with a class token and positions."""

    def __init__(self, channels: int, places: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, channels))
        self.positions = nn.Parameter(torch.randn(1, places + 1, channels))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions


class Attend(nn.Module):
    """Pre-norm attention with a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class First(nn.Module):
    """The class token."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


@dataclass
class Sketch:
    """A network being put together: its pieces and the shape they give."""

    pieces: list[str] = field(default_factory=list)
    layers: list[nn.Module] = field(default_factory=list)
    channels: int = 2
    side: int = 6

    def add(self, piece: str, *layers: nn.Module) -> None:
        self.pieces.append(piece)
        self.layers += layers


def picture_pieces(sketch: Sketch, kind: str, width: int, act: str) -> None:
    c, activation = sketch.channels, ACTIVATIONS[act]
    name = f"{kind} {width} {act}"
    if kind == "conv":
        sketch.add(name, nn.Conv2d(c, width, 3, padding=1), activation())
    elif kind == "norm":
        sketch.add(name, nn.Conv2d(c, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), activation())
    elif kind == "group":
        sketch.add(name, nn.Conv2d(c, width, 1), nn.GroupNorm(2, width), activation())
    elif kind == "residual":
        body = nn.Sequential(
            nn.Conv2d(c, width, 3, padding=1), nn.BatchNorm2d(width), activation(), nn.Conv2d(width, width, 1)
        )
        sketch.add(name, Residual(body, nn.Identity() if c == width else nn.Conv2d(c, width, 1, bias=False)))
    elif kind == "concat":
        sketch.add(name, Concat(nn.Sequential(nn.Conv2d(c, width, 3, padding=1), activation())))
        width += c
    elif kind == "depthwise":
        sketch.add(name, nn.Conv2d(c, c, 3, padding=1, groups=c), activation(), nn.Conv2d(c, width, 1))
    elif kind == "excite":
        sketch.add(name, Excite(c))
        width = c
    elif kind == "transposed":
        sketch.add(
            name, nn.ConvTranspose2d(c, width, 3, padding=1), nn.InstanceNorm2d(width, affine=True), activation()
        )
    elif kind == "pool" and sketch.side > 2:
        sketch.add(name, nn.MaxPool2d(2))
        sketch.side //= 2
        width = c
    else:
        width = c
    sketch.channels = width


def vector_pieces(sketch: Sketch, kind: str, width: int, act: str) -> None:
    c, activation = sketch.channels, ACTIVATIONS[act]
    name = f"{kind} {width} {act}"
    if kind == "linear":
        sketch.add(name, nn.Linear(c, width), activation(), nn.Dropout(0.1))
        sketch.channels = width
    elif kind == "layer norm":
        sketch.add(name, nn.LayerNorm(c))
    elif kind == "rms norm":
        sketch.add(name, nn.RMSNorm(c))
    elif kind == "residual":
        sketch.add(name, Residual(nn.Sequential(nn.Linear(c, width), activation(), nn.Linear(width, c)), nn.Identity()))
    elif kind == "twice":
        sketch.add(name, Twice(nn.Linear(c, c)))
    elif kind == "bare":
        sketch.add(name, Bare(c))
    elif kind == "attend":
        sketch.add(name, Attend(c, 2))


PICTURE = ("conv", "norm", "group", "residual", "concat", "depthwise", "excite", "transposed", "pool")
SEQUENCE = ("attend", "layer norm", "residual", "linear", "bare")
VECTOR = ("linear", "layer norm", "rms norm", "residual", "twice", "bare")


@st.composite
def networks(draw: st.DrawFn) -> Sketch:
    """Draw a network for pictures of two 6×6 channels."""
    width, act = st.sampled_from((4, 6)), st.sampled_from(sorted(ACTIVATIONS))
    torch.manual_seed(draw(st.integers(0, 99)))
    sketch = Sketch()
    picture_pieces(sketch, draw(st.sampled_from(("conv", "norm", "residual"))), draw(width), draw(act))
    for kind in draw(st.lists(st.sampled_from(PICTURE), max_size=3)):
        picture_pieces(sketch, kind, draw(width), draw(act))
    way = draw(st.sampled_from(("flatten", "pool", "tokens")))
    if way == "flatten":
        sketch.add(way, nn.Flatten())
        sketch.channels *= sketch.side**2
    elif way == "pool":
        sketch.add(way, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    else:
        sketch.add(way, Tokens(sketch.channels, sketch.side**2), Attend(sketch.channels, 2))
        for kind in draw(st.lists(st.sampled_from(SEQUENCE), max_size=3)):
            vector_pieces(sketch, kind, draw(width), draw(act))
        sketch.add("class token", First())
    for kind in draw(st.lists(st.sampled_from(VECTOR), max_size=2)):
        vector_pieces(sketch, kind, draw(width), draw(act))
    return sketch


# ---- optimisers

FOREACH = ({"foreach": True}, {"foreach": False})
FUSED = ({"foreach": True}, {"foreach": False}, {"fused": True})
OPTIMISERS: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, tuple[Any, ...]]]] = {
    "SGD": (FUSED, {"lr": (0.05,), "momentum": (0.0, 0.9), "weight_decay": (0.0, 0.1)}),
    "Adam": (FUSED, {"lr": (0.01,), "weight_decay": (0.0, 0.1), "amsgrad": (False, True)}),
    "AdamW": (FUSED, {"lr": (0.01,), "weight_decay": (0.0, 0.1), "maximize": (False, True)}),
    "Adagrad": (FUSED, {"lr": (0.02,), "weight_decay": (0.0, 0.1)}),
    "RMSprop": (FOREACH, {"lr": (0.005,), "momentum": (0.0, 0.9), "centered": (False, True), "weight_decay": (0, 0.1)}),
    "Adadelta": (FOREACH, {"lr": (1.0,), "weight_decay": (0.0, 0.1)}),
    "Adamax": (FOREACH, {"lr": (0.01,), "weight_decay": (0.0, 0.1)}),
    "NAdam": (FOREACH, {"lr": (0.01,), "weight_decay": (0.0, 0.1), "decoupled_weight_decay": (False, True)}),
    "RAdam": (FOREACH, {"lr": (0.01,), "weight_decay": (0.0, 0.1), "decoupled_weight_decay": (False, True)}),
    "ASGD": (FOREACH, {"lr": (0.05,), "lambd": (1e-4, 0.1)}),
    "Rprop": (FOREACH, {"lr": (0.01,)}),
    "Adafactor": (FOREACH, {"lr": (0.02,), "weight_decay": (0.0, 0.1)}),
}  # fmt: skip


@dataclass
class Optimiser:
    """A choice that can be read when an example fails."""

    name: str
    options: dict[str, Any]

    def __call__(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = getattr(torch.optim, self.name)(parameters, **self.options)
        return made


@st.composite
def optimisers(draw: st.DrawFn) -> Optimiser:
    name = draw(st.sampled_from(sorted(OPTIMISERS)))
    ways, options = OPTIMISERS[name]
    chosen = {key: draw(st.sampled_from(values)) for key, values in options.items()}
    return Optimiser(name, {**draw(st.sampled_from(ways)), **chosen})


# ---- the property


def nothing_is_forgotten(
    sketch: Sketch, optimiser: Callable[[list[Tensor]], Any], count: int, epochs: int, clip: float
) -> None:
    net = nn.Sequential(*sketch.layers)
    learner = Learner(net, Lively(c=0.1, clip=clip), optimiser, epochs=epochs, batch_size=8)
    generator = torch.Generator().manual_seed(len(sketch.layers))
    relied_on: dict[str, Tensor] = {}
    before: dict[str, Tensor] = {}
    for i in range(count):
        x, y = torch.randn(16, 2, 6, 6, generator=generator), torch.arange(16) % 2
        learner.learn(Task(f"task {i}", (x, y), (x[:4], y[:4]), (x[4:8], y[4:8])))
        if i == 0:
            relied_on = {name: used > 0 for name, used in learner.method.use(0).items()}
            before = {name: p.detach().clone() for name, p in net.named_parameters()}
    event("the answers depend on the inputs" if alive(learner) else "some layer of some task is closed altogether")
    verdict = learner.verify()
    assert verdict.ok, str(verdict)
    now = dict(net.named_parameters())
    free = sum(int((~used).sum()) for used in relied_on.values())
    moved = sum(int(((now[name] != before[name]) & ~used).sum()) for name, used in relied_on.items())
    assert free > 0
    assert moved > 0 or not alive(learner)  # behind closed gates nothing gets a gradient
    for name, used in relied_on.items():
        assert torch.equal(now[name][used], before[name][used])


EXAMPLES = {
    "sketch": networks(),
    "optimiser": optimisers(),
    "count": st.integers(2, 5),
    "epochs": st.integers(1, 2),
    "clip": st.sampled_from((10_000.0, 0.1)),
}
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=CHECKS)
@given(**EXAMPLES)
def test_nothing_is_forgotten(sketch: Sketch, optimiser: Optimiser, count: int, epochs: int, clip: float) -> None:
    nothing_is_forgotten(sketch, optimiser, count, epochs, clip)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=CHECKS)
@given(**EXAMPLES)
def test_nothing_is_forgotten_at_length(
    sketch: Sketch, optimiser: Optimiser, count: int, epochs: int, clip: float
) -> None:
    nothing_is_forgotten(sketch, optimiser, count, epochs, clip)
