"""What training changes: to be kept as it was, and put back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hatrack.methods.base import Method


def training_state(method: Method) -> dict[str, Tensor]:
    """Return all tensors that training may change: what is trained, what goes along, the buffers of the network."""
    own = method.model.private[method.task]
    shared = {f"buffer/{n}": b for n, b in method.model.buffers().items() if n not in own}
    kept = {f"kept/{n}": t for n, t in own.items() if not t.requires_grad}
    along = {f"along/{n}": t for n, t in method.along().items()}
    return {**method.trainable(), **shared, **kept, **along}


def in_progress(method: Method) -> dict[str, Tensor]:
    """Return what the method itself adds up during training."""
    return {f"progress/{name}": tensor for name, tensor in method.in_progress().items()}


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies that later changes do not reach."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def put_back(tensors: Mapping[str, Tensor], copies: Mapping[str, Tensor]) -> None:
    """Write copies into the tensors themselves, which recorded steps hold on to."""
    for name, tensor in tensors.items():
        tensor.copy_(copies[name])


class StepState:
    """Everything that a step may change, random numbers included, as it was when this was made."""

    def __init__(self, method: Method) -> None:
        self._tensors = {**training_state(method), **in_progress(method)}
        self._copies = copied(self._tensors)
        self._device = method.model.device
        self._numbers = torch.get_rng_state()
        self._device_numbers = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None

    def restore(self) -> None:
        """Go back to it."""
        put_back(self._tensors, self._copies)
        torch.set_rng_state(self._numbers)
        if self._device_numbers is not None:
            torch.cuda.set_rng_state(self._device_numbers, self._device)
