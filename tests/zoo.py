"""Small instances of every kind of network that the unit map must understand, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hatrack import HAT, Learner, Task
from hatrack.data.feed import Feed
from hatrack.masks.trace import derive
from hatrack.masks.unitmap import UnitMap
from hatrack.nets import build
from hatrack.nets.alexnet import BranchSum
from hatrack.tree import at

PICTURE = (3, 8, 8)


@dataclass(frozen=True)
class Kept:
    """One network of the zoo.

    tokens   the number of words, for a net that takes integers
    tight    the share of the entries claimed to matter that must really have a gradient: 1, but for ReLUs that are
             off, borders that only padding meets, words that do not occur, and the keys' biases in attention, of
             which a softmax leaves nothing but rounding (on some processors 0)
    norms    whether it has norms with running statistics
    notes    the layers and parameters that notes must name: what is handled conservatively, and nothing else
    frozen   parameters of which no entry is free after the first task
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = PICTURE
    tokens: int = 0
    tight: float = 1.0
    norms: bool = False
    notes: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()

    def batch(self, size: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        if self.tokens:
            return torch.randint(self.tokens, (size, *self.shape), generator=generator)
        return torch.randn(size, *self.shape, generator=generator)

    def build(self, seed: int = 0) -> nn.Module:
        """Return the network with all its parameters (norms and biases included) away from their usual 0 and 1."""
        torch.manual_seed(seed)
        net = self.make()
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.1 * torch.randn_like(p))
            for name, b in net.named_buffers():
                if name.endswith("running_mean"):
                    b.normal_(0, 0.3)
                elif name.endswith("running_var"):
                    b.uniform_(0.5, 1.5)
        return net


@cache
def unit_map(name: str) -> UnitMap:
    """Return the unit map of a network of the zoo, traced once for all tests; whoever changes it takes a copy."""
    return derive(ZOO[name].build(), ZOO[name].batch(1))


class Lively(HAT):
    """HAT that starts with every third gate closed, others for each task.

    So every layer of three units or more has open and closed ones; at random, tiny layers often close altogether.
    """

    name = "hat"

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        closed = (torch.arange(len(self.embedding)) + task) % 3 == 0
        self.embedding.data.copy_(torch.where(closed, -1.0, 1.0))


def alive(learner: Learner) -> bool:
    """Whether every task's answers still depend on its inputs: else no check of them would show anything."""
    return all(float(probe.logits.std(0).min()) > 0 for probe in learner.probes)


def tasks(kept: Kept, count: int = 3, samples: int = 16, seed: int = 10) -> list[Task]:
    """Return tasks of random samples with two classes."""
    made = []
    for i in range(count):
        x, y = kept.batch(samples, seed + i), torch.arange(samples) % 2
        valid, test = ((at(x, rows), y[rows]) for rows in (slice(0, 8), slice(8, 16)))
        made.append(Task(f"task {i}", (x, y), valid, test))
    return made


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5)


# ---- plain, convolutional


def mlp(activation: type[nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(192, 9), activation(), nn.Linear(9, 7), activation(), nn.Linear(7, 6), activation()
    )


def alexnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Dropout(0.2), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(), nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU(),
    )  # fmt: skip


def branches() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 3 * 4, 3), nn.ReLU(), nn.MaxPool2d(2), BranchSum(4),
        nn.Flatten(), nn.Linear(36, 3 * 5), nn.ReLU(), BranchSum(5),
    )  # fmt: skip


def flatten() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(45, 7), nn.Tanh())


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for a, b in ((3, 6), (6, 6), (6, 8)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())


class Dense(nn.Module):
    """Concatenation of all earlier features, with a transition between two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.grow = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 3, 3, padding=1)) for c in (4, 7)
        )
        self.transition = nn.Conv2d(10, 5, 1)
        self.again = nn.Conv2d(5, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.grow:
            x = torch.cat([x, layer(x)], dim=1)
        x = F.avg_pool2d(torch.tanh(self.transition(x)), 2)
        x = torch.cat([x, self.again(x)], dim=1)
        return x.mean((2, 3))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, 3, 1)
        self.up = nn.Conv2d(3, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Mobile(nn.Module):
    """Inverted residuals: 1×1, depthwise, squeeze and excitation, 1×1; then a grouped convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, padding=1, bias=False), nn.BatchNorm2d(4), nn.Hardswish())
        self.expand = nn.Conv2d(4, 8, 1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.squeeze = SqueezeExcite(8)
        self.project = nn.Conv2d(8, 4, 1)
        self.grouped = nn.Conv2d(4, 6, 3, padding=1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.hardswish(self.norm(self.expand(x)))
        x = x + self.project(self.squeeze(F.silu(self.depthwise(y))))
        return self.grouped(F.silu(x)).mean((2, 3))


class UNet(nn.Module):
    """Down, up by transposed convolution and by upsampling, skips by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 4, 3, padding=1)
        self.b = nn.Conv2d(4, 5, 3, padding=1)
        self.c = nn.Conv2d(5, 6, 3, padding=1)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2)
        self.d = nn.Conv2d(9, 5, 3, padding=1, padding_mode="reflect")
        self.e = nn.Conv2d(9, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.gelu(self.a(x))
        b = F.gelu(self.b(F.max_pool2d(a, 2)))
        c = F.gelu(self.c(F.max_pool2d(b, 2)))
        y = F.gelu(self.d(torch.cat([self.up(c), b], 1)))
        y = F.interpolate(y, scale_factor=2.0, mode="bilinear")
        return torch.tanh(self.e(torch.cat([y, a], 1))).mean((2, 3))


def conv1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(3, 5, 3), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(5, 6, 3, dilation=2), nn.PReLU(6), nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(12, 6),
    )  # fmt: skip


class Shuffle(nn.Module):
    """ShuffleNet's way of mixing groups, by view and transpose, and by an index."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 6, 3, padding=1)
        self.b = nn.Conv2d(6, 6, 3, padding=1, groups=3)
        self.c = nn.Conv2d(6, 8, 1, groups=2)
        self.register_buffer("order", torch.tensor([5, 0, 3, 2, 4, 1]))

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.a(x))
        n, c, h, w = x.shape
        x = x.view(n, 3, 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        x = F.gelu(self.b(x))
        x = self.c(x[:, self.order].index_select(1, self.order))
        return F.pixel_shuffle(x, 2).flatten(2).mean(2)


# ---- transformers


class Encoder(nn.Module):
    """PyTorch's own encoder over patches."""

    def __init__(self, first: bool, batch_first: bool = True) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.1, batch_first=batch_first, norm_first=first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.batch_first:
            return self.encoder(x).mean(1)
        return self.encoder(x.transpose(0, 1)).mean(0)


class Attention(nn.Module):
    """Attention by hand: one linear layer for queries, keys and values, bare products, one output layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(n, t, d))


class RootMeanSquare(nn.Module):
    """RMS norm written out, as language models have it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


class Llama(nn.Module):
    """Embedding, RMS norm, grouped queries, a gated perceptron; no class token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm1, self.norm2, self.norm3 = RootMeanSquare(8), RootMeanSquare(8), RootMeanSquare(8)
        self.q, self.k, self.v = nn.Linear(8, 8, bias=False), nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)
        self.o = nn.Linear(8, 8, bias=False)
        self.gate, self.up, self.down = nn.Linear(8, 10, bias=False), nn.Linear(8, 10, bias=False), nn.Linear(10, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        n, t, _ = x.shape
        y = self.norm1(x)
        q, k, v = (part(y).view(n, t, -1, 2).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, t, 8))
        y = self.norm2(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.norm3(x)[:, -1]


class Cross(nn.Module):
    """One sequence attends to another; attention weights are asked for, so the product is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.wide = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
        self.narrow = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1, 2)
        a, b = self.a(x[:, :10]), torch.tanh(self.b(x[:, 10:]))
        y, weights = self.attend(a, b, b)
        z, _ = self.wide(y, self.narrow(b), self.narrow(b), need_weights=False)
        return (y + z).mean(1) + weights.mean((1, 2))[:, None]


class Mixer(nn.Module):
    """A linear layer over positions serves every channel alike."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 4, stride=4)
        self.tokens = nn.Linear(4, 4)
        self.channels = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2)
        x = x + torch.tanh(self.tokens(x))
        return (x.transpose(1, 2) + torch.tanh(self.channels(x.transpose(1, 2)))).mean(1)


# ---- weights used twice, words, recurrence


class TiedModule(nn.Module):
    """The same layer three times, the first time on the network's input, and once under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.again = nn.Sequential(self.layer, nn.Tanh())
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)[:, :8]
        x = torch.tanh(self.layer(x))
        x = torch.tanh(self.layer(x))
        return self.last(self.again(x))


class TiedParameter(nn.Module):
    """An embedding whose table is also the output layer, as a module and by a bare function."""

    def __init__(self, bare: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.hidden = nn.Linear(6, 6)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight
        self.bare = bare

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.hidden(self.embed(x).mean(1)))
        return F.linear(x, self.embed.weight) if self.bare else self.out(x)


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module], **options: bool | int) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 5)
        self.rnn = kind(5, 4, batch_first=True, **options)
        self.out = nn.Linear(4 * (1 + bool(options.get("bidirectional"))), 6)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(torch.tanh(self.embed(x.flatten(1, 2))))
        return torch.tanh(self.out(states[:, -1]))


class Cells(nn.Module):
    """A recurrent cell, stepped by hand, from a learned first state."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, 4))
        self.gru = nn.GRUCell(8, 4)
        self.lstm = nn.LSTMCell(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1, 2)
        h = self.start.expand(len(x), 4)
        state = None
        for t in range(3):
            h = self.gru(x[:, t], h)
            state = self.lstm(h, state)
        assert state is not None
        return state[0]


# ---- norms


def normed(norm: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), norm(), nn.GELU(), nn.Conv2d(6, 6, 3, stride=2), norm(), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def around(middle: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(8, 6), middle(), nn.Flatten(), nn.Linear(144, 5))


class BareBatchNorm(nn.Module):
    """Batch norm by the bare function, with buffers and parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.register_buffer("running_mean", torch.zeros(6))
        self.register_buffer("running_var", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.scale, self.shift, self.training)


class ChannelsLast(nn.Module):
    """Layer norm over channels by moving the axis, as ConvNeXt has it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


# ---- bare functions


class Bare(nn.Module):
    """Nothing but parameters and functions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.a_bias = weight(7, 12), weight(7)
        self.b = weight(7, 8)
        self.c = weight(2, 4, 3)
        self.d = weight(5, 6)
        self.e = weight(4, 5)
        self.kernel, self.shift = weight(3, 2, 3, 3), weight(3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(F.conv2d(x[:, :2], self.kernel, self.shift, stride=4)).flatten(1)
        x = torch.tanh(F.linear(x, self.a, self.a_bias))
        x = torch.tanh(x @ self.b)
        x = torch.tanh(torch.einsum("nhi,hio->nho", x.view(-1, 2, 4), self.c)).flatten(1)
        x = torch.tanh(torch.matmul(self.d, x[:, :, None]).squeeze(2))
        return torch.einsum("ni,oi->no", x, self.e)


class Transformed(nn.Module):
    """Weights that are functions of parameters: gating the parameter would not gate the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 6)
        self.log = weight(5, 6)
        self.scaled = weight(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        x = torch.tanh(F.linear(x, torch.exp(self.log)))
        return F.linear(x, 0.5 * self.scaled)


class InPlace(nn.Module):
    """Writes into parts of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(192, 5), nn.Linear(192, 4), nn.Linear(9, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        y = x.new_zeros(len(x), 9)
        y[:, :5] = self.a(x)
        y[:, 5:] += self.b(x)
        y[:, 2:4].mul_(2)
        return torch.tanh(self.c(F.elu(y, inplace=True)))


class Spectrum(nn.Module):
    """Operators that the map has no rule for."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(192, 8), nn.Linear(8, 6)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.a(x.flatten(1)))
        x = torch.cumsum(torch.fft.fft(x).real, 1) + torch.special.bessel_j0(self.scale)
        return torch.tanh(self.b(x.sort(dim=1).values))


class Shifted(nn.Module):
    """A mean over units after a shift: what the shift adds to a closed unit must not get into the mean."""

    def __init__(self, smooth: bool) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.smooth = smooth

    def forward(self, x: Tensor) -> Tensor:
        y = (torch.tanh(x) if self.smooth else x) * self.scale + self.shift
        return x + y.mean(-1, keepdim=True)


class Squashed(nn.Linear):
    """Reads sigmoid(x): with a gate on x, a closed unit would still come in as ½ and make its weights matter."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(torch.sigmoid(input)) + torch.sigmoid(input).mean(-1, keepdim=True)


class FrozenStem(nn.Module):
    """A part that the user does not want trained."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 3).requires_grad_(False)
        self.fc = nn.Linear(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.fc(F.relu(self.stem(x)).mean((2, 3))))


class LearnedInput(nn.Module):
    """Parameters that meet the network's input, and gates between halves."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = weight(3, 1, 1), weight(3, 8, 8)
        self.conv = nn.Conv2d(3, 8, 3)
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        x = F.glu(self.conv(x * self.scale + self.shift), dim=1)
        x = F.pad(x, (0, 0, 0, 0, 1, 0), value=0.5)
        return torch.logsumexp(x, (2, 3)) * self.temperature


# ---- weights that are computed, parameters that are data


class Standardised(nn.Conv2d):
    """Every filter is brought to mean 0 and variance 1, by the function for batch norm, as NF nets have it."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(flat, None, None, self.gain.flatten(), training=True).reshape_as(self.weight)
        return F.conv2d(x, weight, self.bias)


class StandardisedByHand(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(self.weight, dim=(1, 2, 3), keepdim=True)
        spread = (self.weight - self.weight.mean((1, 2, 3), keepdim=True)).square().mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, (self.weight - mean) / (spread.sqrt() + deviation), self.bias)


def computed(layer: Callable[..., nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(layer(3, 5, 3), nn.GELU(), layer(5, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(96, 5))


def weight_normed() -> nn.Module:
    norm = nn.utils.parametrizations.weight_norm
    return nn.Sequential(
        nn.Flatten(), norm(nn.Linear(192, 7)), nn.Tanh(), norm(nn.Linear(7, 6), dim=1), nn.Tanh(), norm(nn.Linear(6, 5))
    )


def spectral_normed() -> nn.Module:
    norm = nn.utils.parametrizations.spectral_norm
    return nn.Sequential(nn.Flatten(), norm(nn.Linear(192, 7)), nn.Tanh(), nn.Linear(7, 6))


class LowRank(nn.Module):
    """A weight that is not trained, plus the product of two that are."""

    def __init__(self, merged: bool) -> None:
        super().__init__()
        self.first = nn.Linear(192, 8).requires_grad_(False)
        self.base = nn.Linear(8, 6).requires_grad_(False)
        self.a, self.b = weight(3, 8), weight(6, 3)
        self.merged = merged

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        if self.merged:
            return F.linear(x, self.base.weight + self.b @ self.a, self.base.bias)
        return self.base(x) + F.linear(F.linear(x, self.a), self.b)


class LastWord(nn.Module):
    """Read at the place that the data say, as a text's classifier reads its last word."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.first, self.second = nn.Embedding(11, 6), nn.Linear(6, 7), nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(self.embed(x)))
        return torch.tanh(self.second(h[torch.arange(len(x)), x.sum(1) % x.shape[1]]))


class Tokens(nn.Module):
    """A class token that is normalised by itself, latents that ask, positions that are resized."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.token, self.latents = weight(1, 1, 8), weight(3, 8)
        self.positions = weight(1, 8, 3, 3)
        self.norm, self.latent_norm = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.query, self.key, self.value = nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(8, 6)
        self.probe = weight(1, 1, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x) + F.interpolate(self.positions, size=(2, 2), mode="bilinear")
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([self.norm(self.token).expand(len(x), 1, 8), x], 1)
        latents = self.latent_norm(self.latents).expand(len(x), 3, 8)
        y = latents + self.attend(latents, x, x, need_weights=False)[0]
        q = self.query(self.latents)
        y = F.scaled_dot_product_attention(q.expand(len(x), 3, 6), self.key(y), self.value(y))
        return F.scaled_dot_product_attention(self.probe.expand(len(x), 1, 6), y, y).flatten(1)


class Biased(nn.Module):
    """Attention with a bias put together from parts, and learned biases on its scores: two layers share a table."""

    def __init__(self, bare: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.qkv = nn.ModuleList(nn.Linear(8, 24, bias=False) for _ in range(2))
        self.q_bias, self.v_bias = weight(8), weight(8)
        self.distances = nn.Embedding(9, 2)
        self.out = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.bare = bare

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.embed(x), inplace=True)
        n, t, _ = x.shape
        places = torch.arange(t)
        bias = self.distances((places[:, None] - places[None, :]) + 4).permute(2, 0, 1)
        for qkv, out in zip(self.qkv, self.out, strict=True):
            shift = torch.cat([self.q_bias, torch.zeros(8), self.v_bias])
            q, k, v = F.linear(x, qkv.weight, shift).view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
            if self.bare:
                y = (q @ k.transpose(-1, -2) / 2 + bias).softmax(-1) @ v
            else:
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            x = x + out(y.transpose(1, 2).reshape(n, t, 8))
        return x.mean(1)


class CodedBias(nn.Module):
    """A bias on attention's scores that a small perceptron computes from distances, as Swin-V2 has it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attend = nn.Embedding(11, 8), Attention(8, 2)
        self.code = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 2, bias=False))
        self.register_buffer("distances", torch.arange(5.0)[:, None, None] - torch.arange(5.0)[None, :, None])

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        n, t, d = x.shape
        q, k, v = self.attend.qkv(x).view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        bias = 16 * torch.sigmoid(self.code(self.distances)).permute(2, 0, 1)
        scores = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2) + bias).softmax(-1)
        return self.attend.out((scores @ v).transpose(1, 2).reshape(n, t, d)).mean(1)


class Pooled(nn.Module):
    """Attention pooling by einsum, with one score a position."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.score, self.last = nn.Linear(8, 7), nn.Linear(7, 1), nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1, 2)))
        weights = self.score(x).squeeze(-1).softmax(1)
        return self.last(torch.einsum("bn,bnd->bd", weights, x))


class Zeroed(nn.Module):
    """A branch scaled by 0, which hides at first what passes through it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.branch, self.scale = nn.Linear(192, 7), nn.Linear(7, 7), nn.Parameter(torch.zeros(7))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        return x + self.scale * torch.tanh(self.branch(x))


def series() -> nn.Module:
    return build("conv1d", (3, 16), widths=(6, 8, 7), kernel=3, stretches=2)


def vit() -> nn.Module:
    return build("vit", PICTURE, patch=4, width=8, depth=2, heads=2, hidden=12)


def by_hand() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Flatten(1, 2), nn.LayerNorm(8), Attention(8, 2))


TABLE = ("distances.weight",)
NOT_TRAINED = ("first.weight", "first.bias", "base.weight", "base.bias")
ZOO: dict[str, Kept] = {
    "mlp-relu": Kept(mlp(nn.ReLU), tight=0.5),
    "mlp-gelu": Kept(mlp(nn.GELU)),
    "mlp-tanh": Kept(mlp(nn.Tanh)),
    "mlp-sigmoid": Kept(mlp(nn.Sigmoid)),
    "alexnet": Kept(alexnet, tight=0.5),
    "branches": Kept(branches, tight=0.4),
    "flatten": Kept(flatten),
    "vgg": Kept(vgg, tight=0.4, norms=True),
    "resnet18": Kept(lambda: build("resnet18", PICTURE, width=4), tight=0.1, norms=True),
    "resnet50": Kept(lambda: build("resnet50", PICTURE, width=2), tight=0.2, norms=True),
    "dense": Kept(Dense, tight=0.9, norms=True),
    "mobile": Kept(Mobile, tight=0.9, norms=True),
    "unet": Kept(UNet),
    "conv1d": Kept(conv1d, (3, 16), tight=0.9),
    "series": Kept(series, (3, 16), tight=0.5, norms=True),
    "shuffle": Kept(Shuffle),
    "encoder": Kept(lambda: Encoder(False), tight=0.9),
    "encoder-first": Kept(lambda: Encoder(True), tight=0.9),
    "encoder-tbd": Kept(lambda: Encoder(True, batch_first=False), tight=0.9),
    "vit": Kept(vit, tight=0.95),
    "by-hand": Kept(by_hand, tight=0.95),
    "llama": Kept(Llama, (5,), tokens=11, tight=0.8),
    "cross": Kept(Cross, tight=0.95),
    "mixer": Kept(Mixer, notes=("tokens.weight", "tokens.bias"), frozen=("tokens.weight", "tokens.bias")),
    "tied-module": Kept(TiedModule),
    "tied-parameter": Kept(lambda: TiedParameter(False), (4,), tokens=11, tight=0.7),
    "tied-bare": Kept(
        lambda: TiedParameter(True), (4,), tokens=11, tight=0.7, notes=("embed.weight",), frozen=("hidden.bias",)
    ),
    "lstm": Kept(lambda: Recurrent(nn.LSTM)),
    "lstm-deep": Kept(lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), tight=0.9),
    "gru": Kept(lambda: Recurrent(nn.GRU)),
    "rnn": Kept(lambda: Recurrent(nn.RNN, bias=False)),
    "cells": Kept(Cells),
    "group-norm": Kept(normed(lambda: nn.GroupNorm(2, 6))),
    "one-group": Kept(normed(lambda: nn.GroupNorm(1, 6))),
    "instance-norm": Kept(normed(lambda: nn.InstanceNorm2d(6, affine=True))),
    "running-instance-norm": Kept(normed(lambda: nn.InstanceNorm2d(6, track_running_stats=True)), norms=True),
    "bare-batch-norm": Kept(normed(BareBatchNorm), norms=True),
    "channels-last": Kept(normed(ChannelsLast)),
    "response-norm": Kept(normed(lambda: nn.LocalResponseNorm(3))),
    "rms-norm": Kept(around(lambda: nn.RMSNorm(6))),
    "written-out-norm": Kept(around(lambda: RootMeanSquare(6))),
    "shifted": Kept(around(lambda: Shifted(False))),
    "shifted-smooth": Kept(
        around(lambda: Shifted(True)), notes=("1",), frozen=("0.weight", "0.bias", "1.scale", "1.shift")
    ),
    "squashed": Kept(around(lambda: Squashed(6, 6))),
    "bare": Kept(Bare),
    "transformed": Kept(Transformed, notes=("Transformed",), frozen=("first.weight", "first.bias")),
    "in-place": Kept(InPlace),
    "spectrum": Kept(Spectrum, tight=0.99, notes=("Spectrum", "scale"), frozen=("a.weight", "a.bias", "scale")),
    "frozen-stem": Kept(FrozenStem, tight=0.5),
    "standardised": Kept(computed(Standardised)),
    "standardised-by-hand": Kept(computed(StandardisedByHand)),
    "weight-norm": Kept(weight_normed),
    "spectral-norm": Kept(spectral_normed, frozen=("1.parametrizations.weight.original",)),
    "low-rank": Kept(lambda: LowRank(False), frozen=NOT_TRAINED),
    "low-rank-merged": Kept(lambda: LowRank(True), notes=("LowRank",), frozen=("first.weight", "first.bias", "a")),
    "last-word": Kept(LastWord, (4,), tokens=11, tight=0.4),
    "tokens": Kept(Tokens),
    "biased": Kept(lambda: Biased(False), (5,), tokens=11, tight=0.85, notes=TABLE, frozen=TABLE),
    "biased-bare": Kept(lambda: Biased(True), (5,), tokens=11, tight=0.85, notes=TABLE, frozen=TABLE),
    "coded-bias": Kept(CodedBias, (5,), tokens=11, tight=0.85, notes=("CodedBias",)),
    "pooled": Kept(Pooled, notes=("Pooled",), frozen=("score.bias",)),
    "zeroed": Kept(Zeroed),
    "learned-input": Kept(LearnedInput, notes=("temperature",), frozen=("temperature",)),
}  # fmt: skip
