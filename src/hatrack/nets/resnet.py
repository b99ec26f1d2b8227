"""Residual networks for small pictures: a 3×3 stem, four stages, global average pooling. He et al. 2016."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from hatrack.errors import HatrackError
from hatrack.nets.init import initialise


def resnet18(shape: Sequence[int], width: int = 64, dropout: float = 0.0, init: str = "he") -> nn.Module:
    """Return ResNet-18, x → features, for pictures of `shape` (channels, height, width), 11.2 million parameters.

    `dropout` stands between a block's convolutions, as in wide residual networks (Zagoruyko & Komodakis 2016).
    """
    return initialise(ResNet(shape, BasicBlock, (2, 2, 2, 2), width, dropout), init)


def resnet50(shape: Sequence[int], width: int = 64, dropout: float = 0.0, init: str = "he") -> nn.Module:
    """Return ResNet-50, x → features, for pictures of `shape` (channels, height, width), 23.5 million parameters.

    `dropout` stands before a block's last convolution.
    """
    return initialise(ResNet(shape, Bottleneck, (3, 4, 6, 3), width, dropout), init)


class ResNet(nn.Module):
    """A stem of `width` filters, then stages of blocks, each twice as wide and half as large as the one before."""

    def __init__(
        self,
        shape: Sequence[int],
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        width: int,
        dropout: float,
    ) -> None:
        super().__init__()
        if len(shape) != 3 or min(shape[1:]) < 8:
            raise HatrackError(
                f"a resnet takes pictures of at least 8×8 as (channels, height, width), got {tuple(shape)}; for other "
                f"inputs use the net 'mlp'."
            )
        self.conv = nn.Conv2d(shape[0], width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        stages, channels = [], width
        for stage, depth in enumerate(depths):
            blocks = []
            for i in range(depth):
                blocks.append(block(channels, width * 2**stage, 2 if stage > 0 and i == 0 else 1, dropout))
                channels = blocks[-1].channels
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.conv(x)))
        features: Tensor = self.pool(self.stages(x)).flatten(1)
        return features


class BasicBlock(nn.Module):
    """relu(shortcut(x) + norm(conv(relu(norm(conv(x)))))), both convolutions 3×3."""

    def __init__(self, channels: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.channels = width
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.shortcut = _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        out: Tensor = self.relu(self.norm2(self.conv2(self.dropout(y))) + self.shortcut(x))
        return out


class Bottleneck(nn.Module):
    """The same with three convolutions, 1×1, 3×3 and 1×1, the last four times as wide."""

    def __init__(self, channels: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.channels = 4 * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, self.channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(self.channels)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.shortcut = _shortcut(channels, self.channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        out: Tensor = self.relu(self.norm3(self.conv3(self.dropout(y))) + self.shortcut(x))
        return out


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    """Return the identity where shapes agree, else a 1×1 projection."""
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))
