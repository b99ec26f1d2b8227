"""Proof that old tasks are unchanged: what they answer and all that they are answered from, compared bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from hatrack.learn.processor import processor
from hatrack.learn.proof.relied import Relied, relied_on
from hatrack.learn.proof.seals import Finished, Seal, broken, seal
from hatrack.masks.unitmap import layer_of
from hatrack.masks.widen import Places
from hatrack.methods.base import Method
from hatrack.modes import one_thread
from hatrack.notebook import card, line, table
from hatrack.tree import mapped
from hatrack.visible import visible

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
    """The verdict on one finished task.

    `entries`, `bytes`: that were compared bit by bit, of the shared network and of what is the task's own; `parts`:
    what of its own changed; `locked`: whether any entry was compared.
    """

    task: str
    changed_logits: int
    logits: int
    largest: float
    drifts: tuple[Drift, ...]
    tolerance: float = 0.0
    entries: int = 0
    bytes: int = 0
    parts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing changed."""
        return not (self.changed_logits or self.drifts or self.parts)

    def __str__(self) -> str:
        if self.ok:
            within = f" within {self.tolerance:g}" if self.tolerance else ""
            entries = f" and {self.entries:,} entries ({self.bytes:,} bytes)" if self.entries else ""
            same = "" if within and not entries else " bit-identical"
            return f"{visible(self.task)}: unchanged ({self.logits:,} probe logits{within}{entries}{same})"
        text = f"{visible(self.task)}: CHANGED"
        if self.changed_logits:
            far = f"by up to {self.largest:.3g}" if isfinite(self.largest) else "nobody knows by how much"
            text += f", {self.changed_logits:,} of {self.logits:,} probe logits, {far}"
        if self.parts:
            more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
            text += f"; no longer as it was: {self.parts[0]}{more}"
        if self.drifts:
            first = self.drifts[0]
            text += (
                f"; first layer that drifted: {first.layer or first.parameter} ({first.entries} entries of "
                f"{first.parameter}, by up to {first.largest:.3g})"
            )
        return text


@dataclass(frozen=True)
class Verification:
    """The verdict on all finished tasks; `notes` say what else was found.

    `tampered`: files that are not what was written; `missing`: what could not be compared for want of a file.
    """

    tasks: tuple[TaskProof, ...]
    notes: tuple[str, ...] = ()
    tampered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was found that is not what it was."""
        return bool(self.tampered) or not all(t.ok for t in self.tasks)

    @property
    def ok(self) -> bool:
        """Whether every finished task is exactly what it was when it was finished."""
        return not self.changed and not self.missing

    def __str__(self) -> str:
        total = self.numbers()
        counted = f"In all {total['logits']:,} probe logits and {total['entries']:,} entries ({total['bytes']:,} bytes)"
        lines = [*map(str, self.tasks), *([f"{counted} were compared."] if self.tasks else [])]
        return "\n".join([*lines, *self.tampered, *self.missing, *self.notes])

    def _repr_html_(self) -> str:
        heads = ["task", "", "probe logits", "entries", "bytes"]
        rows = [
            [t.task, "unchanged" if t.ok else "CHANGED", f"{t.logits:,}", f"{t.entries:,}", f"{t.bytes:,}"]
            for t in self.tasks
        ]
        said = [*(t for t in self.tasks if not t.ok), *self.tampered, *self.missing, *self.notes]
        verdict = "unchanged" if self.ok else "changed" if self.changed else "not verified"
        return card(f"Finished tasks: {verdict}", table(heads, rows), *map(line, said))

    def numbers(self) -> dict[str, Any]:
        """Return what was compared, in all and task by task, in JSON values."""
        counts = [{key: getattr(t, key) for key in ("task", "ok", "logits", "entries", "bytes")} for t in self.tasks]
        total = {key: sum(count[key] for count in counts) for key in ("logits", "entries", "bytes")}
        within = max((t.tolerance for t in self.tasks), default=0.0)
        return {"ok": self.ok, "within": within, **total, "tasks": counts}


@dataclass
class Own:
    """What a finished task answered to inputs that the user handed in, of which only a digest is kept."""

    digest: str
    logits: Tensor


@dataclass
class Probe:
    """What a finished task answered to inputs drawn from the seed, where that was computed, and the task's seal.

    Of a save of version 0.1: `x`, the samples that it answered, until it is saved again; no seal. `relied`: the shared
    entries that it is answered from, None in a save of before these were stored, until it is saved again.
    """

    logits: Tensor
    environment: dict[str, str]
    seal: Seal | None = None
    own: Own | None = None
    x: Tensor | None = None
    relied: Relied | None = None


@torch.no_grad()
def probe_logits(method: Method, x: Any, task: int) -> Tensor:
    """Return the logits by which a task is held to its word, in float32: rounded products no two machines do alike."""
    method.model.net.eval()
    # In the layout of what is drawn: strides decide which kernel runs, and so the last bits.
    x = mapped(lambda part: part.clone(memory_format=torch.contiguous_format), x)
    with one_thread(), method.model.unrounded():
        return method.predict(x, task).float()


def witness(method: Method, task: int, about: Finished, x: Any, own: tuple[str, Any] | None = None) -> Probe:
    """Return what a task that has just ended is held to; `own`: the digest of the user's probes, and they, prepared."""
    answers: list[Tensor] = []
    asked = [x] if own is None else [x, own[1]]
    taken = seal(method, task, about, lambda: answers.extend(probe_logits(method, a, task) for a in asked))
    kept = None if own is None else Own(own[0], answers[1])
    where = environment(method.model.device)
    return Probe(answers[0], where, taken, kept, relied=relied_on(method, task, taken))


def renewed(method: Method, task: int, old: Probe, x: Any) -> Probe:
    """Return a probe of version 0.1 without its samples: with the answers to `x` where its own still hold.

    Where they do not, what to compare with is lost; then no answer is right, and it stays found out.
    """
    assert old.x is not None
    here = environment(method.model.device)
    changed, _ = _compared(probe_logits(method, old.x, task), old.logits, _tolerance(old, here))
    logits = probe_logits(method, x, task)
    return Probe(torch.full_like(logits, torch.inf) if bool(changed.any()) else logits, here)


class LockedValues:
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

    def only(self, uses: Iterable[Mapping[str, Tensor]]) -> None:
        """Forget all but what is among these uses."""
        relied = {name: torch.zeros_like(mask) for name, mask in self.held.items()}
        for use in uses:
            for name in relied.keys() & use.keys():
                relied[name] |= use[name] > 0
        self.held = {name: mask & relied[name] for name, mask in self.held.items() if bool(relied[name].any())}
        self.values = {name: torch.where(self.held[name], self.values[name], 0) for name in self.held}

    def widen(self, places: Places, parameters: Mapping[str, Tensor]) -> None:
        """Keep what is held where it stands now that the network is wider; new entries are not relied on."""
        wide = {name: torch.zeros_like(parameters[name].detach()) for name in self.values}
        self.values = {name: places.spread(name, then, wide[name]) for name, then in self.values.items()}
        self.held = {name: places.spread(name, mask, wide[name].bool()) for name, mask in self.held.items()}

    def drifts(self, parameters: Mapping[str, Tensor], use: Mapping[str, Tensor]) -> Iterator[Drift]:
        """Yield the parameters whose used entries are not what they were, in the order of `use`.

        Of an entry that came into use later (a layer unfrozen since), nothing is known from before.
        """
        for name, relied in self._relied(use):
            now, then = parameters[name].detach(), self.values[name]
            moved = relied & ~same_bits(now, then)
            if bool(moved.any()):
                largest = float((now - then)[moved].abs().max())
                yield Drift(layer_of(name), name, int(moved.sum()), largest)

    def counted(self, use: Mapping[str, Tensor]) -> tuple[int, int]:
        """Return how many entries `drifts` compares, and their bytes."""
        counts = [(int(relied.sum()), self.values[name].element_size()) for name, relied in self._relied(use)]
        return sum(n for n, _ in counts), sum(n * size for n, size in counts)

    def _relied(self, use: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        return ((name, (amount > 0) & self.held[name]) for name, amount in use.items() if name in self.held)


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Return where two tensors of one floating type hold the same bits."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.contiguous().view(words) == b.contiguous().view(words)


def _tolerance(probe: Probe, here: Mapping[str, str]) -> float:
    return 0.0 if probe.environment == here else TOLERANCE


def _compared(now: Tensor, then: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return which logits changed, and how far apart they are."""
    if now.shape != then.shape:
        return torch.ones_like(now, dtype=torch.bool), torch.full_like(now, torch.inf)
    distance = (now - then).abs()
    scale = then.abs().amax(-1, keepdim=True).clamp(min=1)
    return ~same_bits(now, then) if tolerance == 0 else ~(distance <= tolerance * scale), distance


def prove(
    method: Method,
    tasks: Sequence[Finished],
    probes: Sequence[Probe],
    locked: LockedValues,
    drawn: Callable[[int], Any],
    own: Mapping[int, Any],
) -> Verification:
    """Recompute every finished task's probe logits and compare all it is answered from, bit by bit.

    `drawn` gives a task's prepared probes, `own` holds those that the user handed in. Logits that were stored on
    another machine, whose arithmetic rounds differently, are compared within a tolerance. Where nothing is promised
    (soft gates), nothing is locked or sealed: a later task may move an entry and rely on it as it is then, so that
    entries say where a change comes from, and only logits that there is one.
    """
    parameters = dict(method.model.net.named_parameters())
    here = environment(method.model.device)
    proofs = []
    for task, about, probe in _there(method, tasks, probes):
        tolerance = _tolerance(probe, here)
        asked = [(drawn(task) if probe.x is None else probe.x, probe.logits)]
        asked += [(own[task], probe.own.logits)] if probe.own is not None and task in own else []
        found = [_compared(probe_logits(method, x, task), then, tolerance) for x, then in asked]
        changed, distance = (torch.cat([pair[i].flatten() for pair in found]) for i in (0, 1))
        use = (method.use(task) if method.promises() or bool(changed.any()) else None) or {}
        drifts = tuple(locked.drifts(parameters, use))
        odd, sealed = broken(probe.seal, method, task, about) if probe.seal else ([], [])
        entries, size = locked.counted(use)
        largest = float(distance[changed].max()) if bool(changed.any()) else 0.0
        proofs.append(
            TaskProof(
                about.name,
                int(changed.sum()),
                changed.numel(),
                largest,
                drifts,
                tolerance,
                entries + sum(t.numel() for t in sealed),
                size + sum(t.nbytes for t in sealed),
                tuple(odd),
            )
        )
    return Verification(tuple(proofs), tuple(_notes(method, tasks, probes, here, own)))


def _there(method: Method, tasks: Sequence[Finished], probes: Sequence[Probe]) -> Iterator[tuple[int, Finished, Probe]]:
    """Yield what is known of the tasks that are not released, with their numbers."""
    for task, (about, probe) in enumerate(zip(tasks, probes, strict=True)):
        if task not in method.model.released:
            yield task, about, probe


def _notes(
    method: Method,
    tasks: Sequence[Finished],
    probes: Sequence[Probe],
    here: Mapping[str, str],
    own: Iterable[int],
) -> Iterator[str]:
    """Yield what a verdict does not cover, and why."""
    known = list(_there(method, tasks, probes))
    if not method.promises():
        yield f"{method.name}, as it was set, makes no promise about old tasks."
    elsewhere = [probe.environment for _, _, probe in known if probe.environment != here]
    if elsewhere:
        yield (
            f"{len(elsewhere)} of {len(known)} tasks stored their logits under {elsewhere[0]}, here is {here}: these "
            f"are compared within {TOLERANCE:g} of their size, entries bit by bit."
        )
    unsealed = sum(probe.seal is None for _, _, probe in known)
    if unsealed and method.promises():
        yield (
            f"{unsealed} of {len(known)} tasks were saved by version 0.1, which sealed neither heads nor masks: of "
            f"these, only answers and shared entries are compared."
        )
    for task, about, probe in known:
        if probe.own is not None and task not in set(own):
            yield (
                f"{about.name} has probes of its own, which were not handed in: verify(probes={{{about.name!r}: x}}) "
                f"compares them too."
            )
