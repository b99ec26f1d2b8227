"""Proof that old tasks are unchanged: probe logits and locked entries, compared bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hatrack.learn.processor import processor
from hatrack.masks.unitmap import layer_of
from hatrack.methods.base import Method

PROBES = 64
TOLERANCE = 1e-4  # of logits that were stored under another environment, times a sample's largest where that is above 1


def environment(device: torch.device) -> dict[str, str]:
    """Return what the last bits of a logit depend on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {"torch": torch.__version__, device.type: name}


@dataclass(frozen=True)
class Drift:
    """A layer that no longer is what a task relied on."""

    layer: str
    parameter: str
    entries: int
    largest: float


@dataclass(frozen=True)
class TaskProof:
    """The verdict on one finished task."""

    task: str
    changed_logits: int
    logits: int
    largest: float
    drifts: tuple[Drift, ...]
    tolerance: float = 0.0
    locked: bool = True  # whether there are locked entries, and they were compared

    @property
    def ok(self) -> bool:
        """Whether nothing changed."""
        return self.changed_logits == 0 and not self.drifts

    def __str__(self) -> str:
        if self.ok:
            within = f" within {self.tolerance:g}" if self.tolerance else ""
            locked = " and all locked entries" if self.locked else ""
            same = "" if within and not locked else " bit-identical"
            return f"{self.task}: unchanged ({self.logits} probe logits{within}{locked}{same})"
        text = f"{self.task}: CHANGED"
        if self.changed_logits:
            text += f", {self.changed_logits} of {self.logits} probe logits, by up to {self.largest:.3g}"
        if self.drifts:
            first = self.drifts[0]
            text += (
                f"; first layer that drifted: {first.layer or first.parameter} ({first.entries} entries of "
                f"{first.parameter}, by up to {first.largest:.3g})"
            )
        return text


@dataclass(frozen=True)
class Verification:
    """The verdict on all finished tasks; `notes` say what else was found."""

    tasks: tuple[TaskProof, ...]
    notes: tuple[str, ...] = ()
    tampered: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every finished task is exactly what it was when it was finished."""
        return all(t.ok for t in self.tasks) and not self.tampered

    def __str__(self) -> str:
        return "\n".join([*map(str, self.tasks), *self.tampered, *self.notes])


@dataclass
class Probe:
    """Prepared inputs of a finished task, the logits they gave when it was finished, and where that was computed."""

    x: Tensor
    logits: Tensor
    environment: dict[str, str]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread, so that a verdict does not depend on how many cores a machine has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def probe_logits(method: Method, x: Tensor, task: int) -> Tensor:
    """Return the logits by which a task is held to its word, in float32: rounded products no two machines do alike."""
    method.model.net.eval()
    with _one_thread(), method.model.unrounded():
        return method.predict(x, task).float()


class Vault:
    """The values of all entries that finished tasks rely on, as they were when first relied on."""

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}
        self.held: dict[str, Tensor] = {}

    def add(self, parameters: Mapping[str, Tensor], use: Mapping[str, Tensor]) -> None:
        """Take in what one more task relies on: all that it uses."""
        for name, amount in use.items():
            current, mask = parameters[name].detach(), amount > 0
            if name not in self.values:
                self.values[name] = torch.where(mask, current, torch.zeros_like(current))
                self.held[name] = mask.clone().contiguous()
            else:
                new = mask & ~self.held[name]
                self.values[name] = torch.where(new, current, self.values[name])
                self.held[name] |= mask

    def drifts(self, parameters: Mapping[str, Tensor], use: Mapping[str, Tensor]) -> Iterator[Drift]:
        """Yield the parameters whose used entries are not what they were, in the order of `use`.

        Of an entry that came into use later (a layer unfrozen since), nothing is known from before.
        """
        for name, amount in use.items():
            if name not in self.held:
                continue
            now, then = parameters[name].detach(), self.values[name]
            moved = (amount > 0) & self.held[name] & ~same_bits(now, then)
            if bool(moved.any()):
                largest = float((now - then)[moved].abs().max())
                yield Drift(layer_of(name), name, int(moved.sum()), largest)


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Return where two tensors of one floating type hold the same bits."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.contiguous().view(words) == b.contiguous().view(words)


def prove(method: Method, names: Sequence[str], probes: Sequence[Probe], vault: Vault) -> Verification:
    """Recompute every finished task's probe logits and compare all it relies on, bit by bit.

    Logits that were stored on another machine, whose arithmetic rounds differently, are compared within a tolerance.
    Where nothing is promised (soft gates), nothing is locked: a later task may move an entry and rely on it as it is
    then, so that entries say where a change comes from, and only logits that there is one.
    """
    parameters = dict(method.model.net.named_parameters())
    here = environment(method.model.device)
    elsewhere = [probe.environment for probe in probes if probe.environment != here]
    proofs = []
    for task, (name, probe) in enumerate(zip(names, probes, strict=True)):
        now = probe_logits(method, probe.x, task)
        distance = (now - probe.logits).abs()
        tolerance = 0.0 if probe.environment == here else TOLERANCE
        scale = probe.logits.abs().amax(-1, keepdim=True).clamp(min=1)
        changed = ~same_bits(now, probe.logits) if tolerance == 0 else ~(distance <= tolerance * scale)
        use = (method.use(task) if method.promises() or bool(changed.any()) else None) or {}
        drifts = tuple(vault.drifts(parameters, use))
        largest = float(distance[changed].max()) if bool(changed.any()) else 0.0
        proofs.append(TaskProof(name, int(changed.sum()), now.numel(), largest, drifts, tolerance, bool(use)))
    notes = [] if method.promises() else [f"{method.name}, as it was set, makes no promise about old tasks."]
    if elsewhere:
        notes.append(
            f"{len(elsewhere)} of {len(probes)} tasks stored their logits under {elsewhere[0]}, here is {here}: these "
            f"are compared within {TOLERANCE:g} of their size, locked entries bit by bit."
        )
    return Verification(tuple(proofs), tuple(notes))
