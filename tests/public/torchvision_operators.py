"""Import this before anything that imports torchvision.

Its compiled operators do not load beside this torch, and its import raises; all it asks is that these two be declared.
Nothing here calls them.
"""

from __future__ import annotations

import torch

for _operator in ("nms", "qnms"):
    torch.library.define(f"torchvision::{_operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
