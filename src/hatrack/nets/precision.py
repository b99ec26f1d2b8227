"""Precision of the arithmetic in a network's layers.

float32  nothing is rounded further: TF32 off
tf32     float32, with the inner products of a CUDA device rounded to TF32; the same as float32 elsewhere
bf16     layers under bfloat16 autocast; parameters, gates, embeddings, locks, heads and losses stay float32
auto     tf32 on a CUDA device; on a CPU bf16 where it multiplies bfloat16 faster than float32, else float32

On a CPU only training is rounded, and every answer is float32: other processors give it too, within its last bits.
TF32 is a switch of the whole process in torch: it is set while our own forward and backward passes run and put back
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from hatrack.errors import unknown

PRECISIONS = ("auto", "float32", "tf32", "bf16")


def resolve_precision(name: str, device: torch.device) -> str:
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name != "auto":
        return name
    if device.type == "cuda":
        return "tf32"
    return "bf16" if device.type == "cpu" and multiplies_bf16() else "float32"


def multiplies_bf16() -> bool:
    """Whether this CPU has instructions for products of bfloat16 (avx512_bf16, amx)."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


class Precision:
    """One of PRECISIONS on a device."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name, self._device = resolve_precision(name, device), device
        self._switched = False

    @property
    def answers(self) -> Precision:
        """The precision that answers are computed in."""
        return self if self._device.type == "cuda" else Precision("float32", self._device)

    @property
    def rounded(self) -> bool:
        """Whether inner products run on a CUDA device's tensor cores, in fewer bits than float32's."""
        return self._device.type == "cuda" and self.name != "float32"

    def casts(self) -> AbstractContextManager[object]:
        if self.name != "bf16":
            return nullcontext()
        # A cache of cast weights would be taken over by a recorded step without the cast that fills it.
        return torch.autocast(self._device.type, torch.bfloat16, cache_enabled=False)

    @contextmanager
    def products(self) -> Iterator[None]:
        """Allow or forbid TF32 in a forward and a backward pass; inside such a pass there is nothing left to do."""
        if self._device.type != "cuda" or self._switched:
            yield
            return
        self._switched = True
        try:
            with tf32(self.rounded):
                yield
        finally:
            self._switched = False


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Set torch's switches inside the context, by the names under which the caller has used them."""
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    switches = [(matmul, "allow_tf32"), (cudnn, "allow_tf32")]
    value: bool | str = allowed
    try:
        before = [getattr(place, name) for place, name in switches]
    except RuntimeError:  # the older switches refuse to speak once the newer ones differ from them
        switches = [(place, "fp32_precision") for place in (matmul, cudnn.conv, cudnn.rnn)]
        value = "tf32" if allowed else "ieee"
        before = [getattr(place, name) for place, name in switches]
    for place, name in switches:
        setattr(place, name, value)
    try:
        yield
    finally:
        for (place, name), earlier in zip(switches, before, strict=True):
            setattr(place, name, earlier)
