"""A small vision transformer: patches, a class token, learned positions, pre-norm encoder blocks. Dosovitskiy 2021."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hatrack.errors import HatrackError


class ViT(nn.Module):
    """Cuts pictures (channels, height, width) into patches, adds a class token and positions, and encodes them all."""

    def __init__(
        self,
        shape: Sequence[int],
        patch: int = 4,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        hidden: int = 768,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if len(shape) != 3 or shape[1] % patch or shape[2] % patch:
            raise HatrackError(
                f"vit takes pictures (channels, height, width) that patches of {patch}×{patch} cover exactly, got "
                f"{tuple(shape)}; give sides that {patch} divides, or to `hatrack run` another --set patch."
            )
        if width % heads:
            raise HatrackError(f"vit: width {width} must be a multiple of heads {heads}.")
        self.patches = nn.Conv2d(shape[0], width, patch, stride=patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + (shape[1] // patch) * (shape[2] // patch), width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, hidden, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw token, positions and all layers as the paper does; the rest of attention is as torch draws it."""
        nn.init.trunc_normal_(self.token, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        features: Tensor = self.norm(self.blocks(self.dropout(x)))[:, 0]
        return features


class Block(nn.Module):
    """x + attention(norm(x)), then the same with a two-layer perceptron."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, hidden)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.dropout(self.attention(y, y, y, need_weights=False)[0])
        y = self.dropout(self.gelu(self.fc1(self.norm2(x))))
        out: Tensor = x + self.dropout(self.fc2(y))
        return out
