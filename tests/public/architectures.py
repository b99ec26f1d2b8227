"""What a row of the tables is: a network of a package, small, with weights such that its answers say something.

A network is built as its package builds it. What the initialiser leaves at one number (norms at 1, the last layer of a
branch at 0) is moved away from it; weights too small for their width (0.02, meant for a thousand units) are raised to
one over the root of what they add up, a norm's to 1. Else half of a network, or its input, has no part in the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from zoo import Kept

# Packages import torchvision, of which the compiled operators do not load beside this torch; all its import asks is
# that these two be declared. Nothing here calls them.
for _operator in ("nms", "qnms"):
    torch.library.define(f"torchvision::{_operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@dataclass(frozen=True)
class Public(Kept):
    """A network of a package.

    refused   the reason where it is refused, and rightly so
    features  as Learner takes them
    inputs    what it is given, of a size and a seed, where that is more than one tensor
    """

    refused: str = ""
    features: Any = None
    inputs: Callable[[int, int], Any] | None = None

    def batch(self, size: int, seed: int = 0) -> Any:
        return super().batch(size, seed) if self.inputs is None else self.inputs(size, seed)

    def build(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        net = self.make()
        with torch.no_grad():
            for name, p in net.named_parameters():
                if p.numel() == 0:
                    continue
                if bool((p == p.flatten()[0]).all()):
                    p.add_(0.1 * torch.randn_like(p))
                elif p.ndim > 1:
                    p.mul_((p[0].numel() ** -0.5 / p.std()).clamp(min=1))
                elif name.endswith("weight") and float(p.abs().mean()) < 0.1:
                    p.add_(1)
        return net


Row = tuple[str, Public]
