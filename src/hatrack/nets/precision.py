"""Precision of the arithmetic in a network's layers.

float32  nothing is rounded further: TF32 off
tf32     float32, with the inner products of a CUDA device rounded to TF32; the same as float32 elsewhere
bf16     layers under bfloat16 autocast; parameters, gates, embeddings, locks, heads and losses stay float32

TF32 is a switch of the whole process in torch: it is set while our own forward and backward passes run and put back
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from hatrack.errors import unknown

PRECISIONS = ("float32", "tf32", "bf16")


class Precision:
    """One of PRECISIONS on a device."""

    def __init__(self, name: str, device: torch.device) -> None:
        if name not in PRECISIONS:
            raise unknown("precision", name, PRECISIONS)
        self.name, self._device = name, device

    @property
    def rounded(self) -> bool:
        """Whether inner products run on a CUDA device's tensor cores, in fewer bits than float32's."""
        return self._device.type == "cuda" and self.name != "float32"

    def casts(self) -> AbstractContextManager[object]:
        """Return the autocast for a forward pass."""
        if self.name != "bf16":
            return nullcontext()
        # A cache of cast weights would be taken over by a recorded step without the cast that fills it.
        return torch.autocast(self._device.type, torch.bfloat16, cache_enabled=False)

    @contextmanager
    def products(self) -> Iterator[None]:
        """Allow or forbid TF32 in a forward and a backward pass."""
        if self._device.type != "cuda":
            yield
            return
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, cudnn.allow_tf32
        matmul.allow_tf32 = cudnn.allow_tf32 = self.rounded
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = before
