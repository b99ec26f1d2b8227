"""Several processes for one run, started by torchrun: each computes its share of every batch.

    gradient  Σ_r (n_r/n)·g_r, with n_r of the n samples of a batch on process r: that of the whole batch
    the rest  (edits, lock, clip, update, schedule, masks) is done by every process on the same numbers, so that all
              of them hold the same network, bit for bit
    agreement what each process computes of all samples by itself, the validation loss and what a task leaves behind
              (importances, masks), may differ in the last bits between devices: the first one's counts

Gradients are summed by torch's DistributedDataParallel, while the backward pass goes on. What it wraps is not the
network but the loss of a batch, for the forward pass belongs to the method (gates, swapped weights, several heads).

Random numbers are the same in all processes, because a method may draw weights or samples of its memory; dropout then
closes the same units for the first samples of every share. Batch norm normalises by the share that it sees, as is
usual; running statistics are averaged when an epoch ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from hatrack.data.feed import Batch
from hatrack.errors import HatrackError
from hatrack.processes import local_rank, several
from hatrack.tree import at


class Loss(nn.Module):
    """The loss of a share of a batch, as a module that holds all that is trained."""

    def __init__(self, loss: Callable[[Batch], Tensor], trained: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._loss = loss
        # A task's norms are plain tensors, which register_parameter would not take.
        held: dict[str, Any] = {str(place): tensor for place, tensor in enumerate(trained.values())}
        self._parameters.update(held)

    def forward(self, batch: Batch, weight: float) -> Tensor:
        """Return the loss times the share's weight."""
        return self._loss(batch) * weight


class ProcessGroup(NamedTuple):
    """This process among those that work on the run: its rank, and the world size."""

    rank: int
    world_size: int

    def shard(self, batch: Batch) -> tuple[Batch, float]:
        """Return this process's share of a batch and its weight; a process that gets nothing repeats one sample."""
        count = len(batch.y)
        own = slice(self.rank, None, self.world_size) if self.rank < count else slice(0, 1)
        share = Batch(
            at(batch.x, own),
            batch.y[own],
            None if batch.source is None else batch.source[own],
            None if batch.weights is None else batch.weights[own],
            batch.packing,
        )
        return share, len(share.y) / count if self.rank < count else 0.0

    def spread(self, loss: Callable[[Batch], Tensor], trained: Mapping[str, Tensor]) -> Callable[[Batch], Tensor]:
        """Return what gives the loss of a batch's share, with gradients, in backward, that are those of the batch.

        torch takes the mean over the processes, so that Σ_r (n_r/n)·g_r needs a factor of their number.
        """
        shared = DistributedDataParallel(Loss(loss, trained), broadcast_buffers=False, find_unused_parameters=True)

        def of_share(batch: Batch) -> Tensor:
            share, weight = self.shard(batch)
            found: Tensor = shared(share, weight * self.world_size)
            return found

        return of_share

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Add up tensors over all processes, in place."""
        flat = torch.cat([t.reshape(-1) for t in tensors])
        distributed.all_reduce(flat)
        for tensor, summed in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Make tensors the mean over all processes, in place."""
        floating = [t for t in tensors if t.is_floating_point()]
        if floating:
            self.all_reduce(floating)
            for tensor in floating:
                tensor.div_(self.world_size)

    @torch.no_grad()
    def broadcast(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        """Give all processes the first one's values, in place and in one piece; `device` is where they talk."""
        pieces = [t.detach().to(device).contiguous().reshape(-1).view(torch.uint8) for t in tensors]
        flat = torch.cat(pieces)
        distributed.broadcast(flat, 0)
        for tensor, piece in zip(tensors, flat.split([len(p) for p in pieces]), strict=True):
            tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))  # a copy begins where any type may

    def barrier(self) -> None:
        """Wait for all others to come here."""
        distributed.barrier()


def process_group() -> ProcessGroup | None:
    """Return the process group, or None where it works alone."""
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return None
    return ProcessGroup(distributed.get_rank(), distributed.get_world_size())


def require_joined() -> None:
    """Refuse to work alone as one of several: each would train the whole, and all would write one folder."""
    if several() and not (distributed.is_available() and distributed.is_initialized()):
        raise HatrackError(
            f"this is process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} (RANK and WORLD_SIZE, which torchrun "
            "sets), but it has not joined the others, and each would train and write the same; call "
            "torch.distributed.init_process_group() before the Learner is made, or start one process; where each is "
            "meant to train for itself, unset WORLD_SIZE."
        )


def writes() -> bool:
    """Return whether this process writes what all of them hold: the first one does."""
    require_joined()
    among = process_group()
    return among is None or among.rank == 0


def join(cuda: bool) -> str:
    """Join the processes that torchrun started; return the device for this one: its own GPU, or the CPU."""
    device = "cpu"
    if cuda:
        if local_rank() >= torch.cuda.device_count():
            raise HatrackError(
                f"torchrun started {local_rank() + 1} or more processes here, but there are "
                f"{torch.cuda.device_count()} GPUs; use --nproc-per-node {torch.cuda.device_count()}."
            )
        torch.cuda.set_device(local_rank())
        device = f"cuda:{local_rank()}"
    try:
        distributed.init_process_group("nccl" if cuda else "gloo")
    except (ValueError, RuntimeError) as error:
        raise HatrackError(
            f"this process cannot join the others ({str(error).splitlines()[0]}); start all of them with torchrun, or "
            "unset WORLD_SIZE for a single one."
        ) from None
    return device


def leave() -> None:
    """Part from the other processes, if there are any."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
