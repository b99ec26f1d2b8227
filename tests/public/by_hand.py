"""What people write themselves: pooling by attention, sets, graphs, series; habits that no package of ours has."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .architectures import Public


class AttentionPooling(nn.Module):
    """Multiple-instance learning (Ilse et al. 2018): a weighted sum over instances, the weights learned; einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.tanh = nn.Linear(16, 8)
        self.gate = nn.Linear(16, 8)
        self.score = nn.Linear(8, 1)
        self.out = nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        a = self.score(torch.tanh(self.tanh(h)) * torch.sigmoid(self.gate(h))).squeeze(-1).softmax(-1)
        return torch.relu(self.out(torch.einsum("bn,bnd->bd", a, h)))


class LastQuery(nn.Module):
    """A recurrent encoder read by attention from its last state, with bmm."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.GRU(6, 16, batch_first=True)
        self.key = nn.Linear(16, 16)
        self.out = nn.Linear(32, 12)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.encode(x)
        last = h[:, -1]
        a = torch.bmm(self.key(h), last.unsqueeze(2)).softmax(1)
        return torch.relu(self.out(torch.cat([(a * h).sum(1), last], 1)))


class SetTransformer(nn.Module):
    """Induced set attention and pooling by seeds (Lee et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.inducing = nn.Parameter(torch.randn(1, 3, 16))
        self.seed = nn.Parameter(torch.randn(1, 2, 16))
        self.down = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up = nn.MultiheadAttention(16, 2, batch_first=True)
        self.pool = nn.MultiheadAttention(16, 2, batch_first=True)
        self.feed = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        points = self.inducing.expand(len(x), -1, -1)
        induced, _ = self.down(points, h, h, need_weights=False)
        h = h + self.up(h, induced, induced, need_weights=False)[0]
        h = h + self.feed(h)
        pooled, _ = self.pool(self.seed.expand(len(x), -1, -1), h, h, need_weights=False)
        return pooled.flatten(1)


class DeepSet(nn.Module):
    """Sum and maximum over the members of a set (Zaheer et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 16))
        self.outer = nn.Sequential(nn.Linear(32, 24), nn.ELU(), nn.Linear(24, 12))

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)
        return self.outer(torch.cat([h.sum(1), h.amax(1)], 1))


class PointNet(nn.Module):
    """Points in space, turned by a matrix that the network makes itself (Qi et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv1d(3, 12, 1), nn.BatchNorm1d(12), nn.ReLU())
        self.turn = nn.Linear(12, 9)
        self.body = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 24, 1))

    def forward(self, x: Tensor) -> Tensor:
        points = x.transpose(1, 2)
        turn = self.turn(self.look(points).amax(2)).view(-1, 3, 3) + torch.eye(3)
        return self.body(torch.bmm(turn, points)).amax(2)


class GraphConvolution(nn.Module):
    """Graph convolution over a fixed graph (Kipf & Welling 2017)."""

    def __init__(self) -> None:
        super().__init__()
        near = (torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) < 0.4).float() + torch.eye(8)
        self.register_buffer("near", near / near.sum(1, keepdim=True))
        self.first = nn.Linear(6, 16)
        self.second = nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.near @ self.first(x))
        return (self.near @ self.second(h)).mean(1)


class GraphAttention(nn.Module):
    """Graph attention over a fixed graph (Veličković et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("near", torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) < 0.5)
        self.write = nn.Linear(6, 16, bias=False)
        self.source = nn.Linear(16, 1, bias=False)
        self.target = nn.Linear(16, 1, bias=False)
        self.out = nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        h = self.write(x)
        scores = F.leaky_relu(self.source(h) + self.target(h).transpose(1, 2), 0.2)
        a = scores.masked_fill(~(self.near | torch.eye(8, dtype=torch.bool)), -1e9).softmax(-1)
        return self.out(F.elu(a @ h)).mean(1)


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates and skips (van den Oord et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Conv1d(1, 12, 1)
        self.filters = nn.ModuleList(nn.Conv1d(12, 24, 2, dilation=2**i) for i in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(12, 16, 1) for _ in range(3))
        self.back = nn.ModuleList(nn.Conv1d(12, 12, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.begin(x)
        total = torch.zeros(())
        for i, (both, skip, back) in enumerate(zip(self.filters, self.skips, self.back, strict=True)):
            signal, gate = both(F.pad(h, (2**i, 0))).chunk(2, 1)
            z = torch.tanh(signal) * torch.sigmoid(gate)
            total = total + skip(z)
            h = h + back(z)
        return torch.relu(total).mean(2)


class UNet(nn.Module):
    """Down and up again with skips, read by pooling (Ronneberger et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.bottom = nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(24, 16, 2, stride=2)
        self.right = nn.Sequential(nn.Conv2d(32, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU())
        self.last = nn.Conv2d(24, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.second(F.max_pool2d(a, 2))
        h = self.up(self.bottom(F.max_pool2d(b, 2)))
        h = self.right(torch.cat([h, b], 1))
        h = F.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(torch.cat([h, a], 1)).mean((2, 3))


class Highway(nn.Module):
    """Characters through convolutions of several widths and a highway (Kim et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(20, 8, padding_idx=0)
        self.widths = nn.ModuleList(nn.Conv1d(8, 8, k) for k in (2, 3, 4))
        self.carry = nn.Linear(24, 24)
        self.change = nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        h = self.letters(x).transpose(1, 2)
        h = torch.cat([torch.relu(width(h)).amax(2) for width in self.widths], 1)
        t = torch.sigmoid(self.carry(h))
        return t * torch.relu(self.change(h)) + (1 - t) * h


class Modulated(nn.Module):
    """Feature-wise modulation of a convolutional network by a part of its input (Perez et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Conv2d(3, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12, affine=False)
        self.ask = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 24))
        self.out = nn.Conv2d(12, 16, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = self.ask(x.mean((2, 3))).chunk(2, 1)
        h = self.norm(self.see(x)) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]
        return self.out(torch.relu(h)).amax((2, 3))


class Experts(nn.Module):
    """A soft mixture of experts with stacked weights: bare einsum over experts, inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(4, 6, 16) / 3)
        self.second = nn.Parameter(torch.randn(4, 16, 12) / 4)
        self.choose = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        p = self.choose(x).softmax(-1)
        h = torch.relu(torch.einsum("bni,eio->bneo", x, self.first))
        return torch.einsum("bneo,eod,bne->bnd", h, self.second, p).mean(1)


class LateBuffer(nn.Module):
    """A mask that forward() makes and registers the first time it is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 16)
        self.out = nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "fade"):
            self.register_buffer("fade", torch.linspace(1, 0.1, x.shape[1])[:, None], persistent=False)
        return self.out(torch.relu(self.mix(x)) * self.fade).mean(1)


class BatchBuffer(nn.Module):
    """A state kept for the batch at hand: a buffer whose size is that of the last batch."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 16)
        self.out = nn.Linear(16, 12)
        self.register_buffer("state", torch.zeros(1, 16), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.state = torch.zeros(len(x), 16)
        for step in x.unbind(1):
            self.state = torch.tanh(self.mix(step) + 0.5 * self.state)
        return self.out(self.state)


SERIES = (8, 6)
NETS: dict[str, Public] = {
    "attention pooling": Public(AttentionPooling, SERIES),
    "attention from the last state": Public(LastQuery, SERIES),
    "set transformer": Public(SetTransformer, SERIES),
    "deep set": Public(DeepSet, SERIES),
    "point net": Public(PointNet, (10, 3)),
    "graph convolution": Public(GraphConvolution, SERIES),
    "graph attention": Public(GraphAttention, SERIES),
    "wave net": Public(WaveNet, (1, 32)),
    "u-net": Public(UNet, (3, 16, 16)),
    "highway over letters": Public(Highway, (8,), tokens=20),
    "modulated features": Public(Modulated, (3, 12, 12)),
    "mixture of experts": Public(Experts, SERIES),
    "buffer made late": Public(LateBuffer, SERIES),
    "buffer of the batch": Public(BatchBuffer, SERIES),
}
