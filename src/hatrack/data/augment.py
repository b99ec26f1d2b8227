"""The augmentations of pictures that are built in, each as what it draws and what it makes of that.

    flip      left and right exchanged, every second picture
    crop      padded by 4 zeros on every side, then cut out at a random place
    colour    brightness, contrast and saturation times a factor from 0.6 to 1.4, in this order
    cutout    a square of half the side, with its centre anywhere in the picture, set to 0 (DeVries & Taylor, 2017)
    mixup     λ·x + (1 − λ)·x′ and λ·y + (1 − λ)·y′ of a sample and another one, λ even from 0 to 1 (Zhang et al., 2018)

They work on a batch of pictures (n, channels, height, width) where it lies, on numbers before they are normalised, and
ask a device for nothing, so that a step with them can be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

PADDING = 4
STRENGTH = 0.4
GREY = (0.299, 0.587, 0.114)  # the share of red, green and blue in brightness (ITU-R 601)


@dataclass(frozen=True)
class BuiltIn:
    """`draw(x)` gives the random numbers for a batch, `apply(x, drawn)` what they make of it; `mixes`: targets too.

    `bounded`: it takes numbers from 0 to 1 only; `moves`: pixels change their places.
    """

    draw: Callable[[Tensor], Any]
    apply: Callable[[Tensor, Any], Tensor]
    mixes: bool = False
    bounded: bool = False
    moves: bool = False


def draw_flip(x: Tensor) -> Tensor:
    """Return which pictures are flipped."""
    return torch.rand(len(x), device=x.device) < 0.5


def flip(x: Tensor, chosen: Tensor) -> Tensor:
    """Return the pictures, the chosen ones mirrored."""
    return torch.where(chosen[:, None, None, None], x.flip(-1), x)


def draw_crop(x: Tensor) -> Tensor:
    """Return how far from the top and from the left of the padded picture each is cut out: (n, 2)."""
    return torch.randint(2 * PADDING + 1, (len(x), 2), device=x.device)


def crop(x: Tensor, corners: Tensor) -> Tensor:
    """Return each picture cut out of its padded form."""
    height, width = x.shape[2:]
    rows = corners[:, 0, None] + torch.arange(height, device=x.device)
    columns = corners[:, 1, None] + torch.arange(width, device=x.device)
    samples = torch.arange(len(x), device=x.device)[:, None, None]
    # The axes that are indexed come first, so channels are moved behind them and back.
    padded = pad(x, (PADDING,) * 4).movedim(1, -1)
    return padded[samples, rows[:, :, None], columns[:, None, :]].movedim(-1, 1).contiguous()


def draw_colour(x: Tensor) -> Tensor:
    """Return the factors of brightness, contrast and saturation: (3, n)."""
    return 1 + STRENGTH * (2 * torch.rand(3, len(x), device=x.device) - 1)


def colour(x: Tensor, factors: Tensor) -> Tensor:
    """Return each picture in another light: x·b, then away from its mean brightness by c, then from its greys by s."""
    brightness, contrast, saturation = (factor[:, None, None, None] for factor in factors)
    x = (x * brightness).clamp(0, 1)
    mean = _grey(x).mean((1, 2, 3), keepdim=True)
    x = (mean + contrast * (x - mean)).clamp(0, 1)
    grey = _grey(x)
    coloured: Tensor = (grey + saturation * (x - grey)).clamp(0, 1)
    return coloured


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = GREY
    return red * x[:, 0:1] + green * x[:, 1:2] + blue * x[:, 2:3]


def draw_cutout(x: Tensor) -> Tensor:
    """Return the row and the column of each square's centre: (n, 2)."""
    even = torch.rand(2, len(x), device=x.device)
    return torch.stack([(share * side).long() for share, side in zip(even, x.shape[2:], strict=True)], 1)


def cutout(x: Tensor, centres: Tensor) -> Tensor:
    """Return each picture with a square of zeros; what of it lies beyond the border is cut off."""
    inside = torch.ones(len(x), 1, 1, 1, dtype=torch.bool, device=x.device)
    for axis in (0, 1):
        side = x.shape[2 + axis]
        first = centres[:, axis, None] - side // 4
        places = torch.arange(side, device=x.device)
        within = (places >= first) & (places < first + side // 2)
        inside = inside & (within[:, None, :, None] if axis == 0 else within[:, None, None, :])
    return torch.where(inside, 0, x)


def draw_mixup(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return with which other sample each is mixed, and the share of itself."""
    return torch.rand(len(x), device=x.device).argsort(), torch.rand((), device=x.device)


def mixup(values: Tensor, drawn: tuple[Tensor, Tensor]) -> Tensor:
    """Return inputs or soft targets, each mixed with another one's."""
    partners, share = drawn
    mixed: Tensor = share * values + (1 - share) * values[partners]
    return mixed


BUILT_IN = {
    "flip": BuiltIn(draw_flip, flip, moves=True),
    "crop": BuiltIn(draw_crop, crop, moves=True),
    "colour": BuiltIn(draw_colour, colour, bounded=True),
    "cutout": BuiltIn(draw_cutout, cutout),
    "mixup": BuiltIn(draw_mixup, mixup, mixes=True),
}
