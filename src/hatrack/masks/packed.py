"""Boolean masks at one bit an entry."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def pack(mask: Tensor) -> Tensor:
    """Return a flat boolean mask as bytes of eight entries."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy()))


def unpack(packed: Tensor, count: int) -> Tensor:
    """Return the first `count` entries of a packed mask."""
    return torch.from_numpy(np.unpackbits(packed.cpu().numpy(), count=count)).bool()
