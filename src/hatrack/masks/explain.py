"""The unit map in words: which sites a network has, who writes and reads them, what becomes of each parameter,
and what a cut-out leaves whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from textwrap import wrap
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from hatrack.errors import HatrackError
from hatrack.features import Features, Pick
from hatrack.masks.cutting import stay_whole
from hatrack.masks.trace import derive
from hatrack.masks.unitmap import Note, Site, UnitMap, layer_of
from hatrack.notebook import card, line, table
from hatrack.tree import leaves

Row: TypeAlias = tuple[str, str, str, str]
WIDTH = 100
HEADS = ("site", "units", "written by", "read by")
CHECKED = (
    "Checked on this network: with units closed at random, noise in every entry that the map calls unused left the "
    "features bit-identical."
)


@dataclass(frozen=True)
class Explanation:
    """What the unit map says about a network; `str` gives a page of text.

    by_unit    parameters of which a later task may change every entry that no earlier task's units use
    by_task    parameters and buffers of norms with running statistics, of which masking methods keep a copy a task
    frozen     parameters (or parts of them) that stay as the first task leaves them, and why
    untrained  parameters with requires_grad off: what they write is on for every task
    unused     parameters that the forward pass never meets
    notes      everything handled conservatively
    whole      sites that a cut-out (learner.cut_out) leaves at full width, and why: it was tried on this network
    checked    whether the map was tried on this network: noise in every entry that it calls unused changed nothing
    """

    net: str
    sites: tuple[Site, ...]
    parameters: int
    by_unit: tuple[str, ...]
    by_task: tuple[str, ...]
    frozen: dict[str, str]
    untrained: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[Note, ...]
    whole: dict[str, str]
    checked: bool

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = WIDTH) -> str:
        """Return the page, lines no longer than `width` where names allow."""
        lines = [self._headline(), "", *_table(self._rows(), width)]
        for title, named in self._sections():
            lines += ["", f"{title}:"]
            if isinstance(named, dict):
                for name, why in named.items():
                    lines += wrap(f"{name}  {why}", width, initial_indent="  ", subsequent_indent="    ")
            else:
                lines += wrap(", ".join(named), width, initial_indent="  ", subsequent_indent="  ")
        return "\n".join([*lines, "", *wrap(CHECKED, width)] if self.checked else lines)

    def _headline(self) -> str:
        units = sum(site.size for site in self.sites)
        places = f"{len(self.sites)} site{'s' if len(self.sites) != 1 else ''}"
        return f"{self.net}: {units:,} units at {places}, {self.parameters:,} parameters"

    def _rows(self) -> list[Row]:
        return [(s.name, f"{s.size:,}", ", ".join(s.writers), ", ".join(s.readers) or "nobody") for s in self.sites]

    def _sections(self) -> list[tuple[str, tuple[str, ...] | dict[str, str]]]:
        """Return what becomes of the parameters, kind by kind: their names, or why by name; no kind that is empty."""
        norms = tuple(dict.fromkeys(layer_of(name) for name in self.by_task))
        layers = tuple(dict.fromkeys(layer_of(name) or name for name in self.untrained))
        always_on = {note.where: note.what for note in self.notes if note.where not in self.frozen}
        kinds: list[tuple[str, tuple[str, ...] | dict[str, str]]] = [
            ("Locked by unit, entry by entry, once a task uses the units an entry connects", self.by_unit),
            ("Kept per task (norms with running statistics)", norms),
            ("Frozen after the first task", self.frozen),
            ("Not trained, so on for every task", layers),
            ("Never used by forward()", self.unused),
            ("Handled with caution", always_on),
            ("At full width in a cut-out, with zeros for closed units", self.whole),
        ]
        return [(title, named) for title, named in kinds if named]

    def _repr_html_(self) -> str:
        said = [table(HEADS, self._rows())]
        for title, named in self._sections():
            said.append(line(f"{title}:"))
            said.append(table(("", "why"), named.items()) if isinstance(named, dict) else line(", ".join(named)))
        return card(self._headline(), *said, line(CHECKED) if self.checked else "")


def explain(net: nn.Module, example: Any, features: Pick | None = None) -> Explanation:
    """Return what the unit map of `net` says, for inputs like `example` (a batch of at least one, in the form that
    tasks have); `features` as `Learner` takes them.
    """
    if not isinstance(net, nn.Module):
        raise HatrackError(f"explain takes a torch module, got {type(net).__name__}; hatrack.nets.build makes some.")
    parts = leaves(example)
    if not parts or not all(isinstance(part, Tensor) and part.numel() and part.ndim for part in parts):
        got = f"of shape {tuple(example.shape)}" if hasattr(example, "shape") else repr(example)
        kind = type(example).__name__
        raise HatrackError(f"explain needs a batch such as torch.zeros(1, 3, 32, 32), got {kind} {got}.")
    if isinstance(example, Tensor) and example.dtype == torch.uint8:  # pictures, as tasks hold them
        example = example.float() / 255
    with Features(net, features).as_output():
        units = derive(net, example)
    whole = stay_whole(net, units, example, features)
    by_task = tuple(_norm_tensors(net, units))
    untrained = tuple(n for n, p in net.named_parameters() if not p.requires_grad and n in units.uses)
    frozen = {name: why for name, why in _frozen(units).items() if name not in (*by_task, *untrained)}
    return Explanation(
        net=type(net).__name__,
        sites=tuple(units.sites),
        parameters=sum(prod(shape) for shape in units.shapes.values()),
        by_unit=tuple(n for n in units.uses if n not in (*by_task, *untrained) and frozen.get(n, "")[:5] != "whole"),
        by_task=by_task,
        frozen=frozen,
        untrained=untrained,
        unused=tuple(name for name in units.shapes if name not in units.uses),
        notes=tuple(units.notes),
        whole=whole,
        checked=units.checked,
    )


def _norm_tensors(net: nn.Module, units: UnitMap) -> Iterable[str]:
    """Name what a task keeps of norms: of PyTorch's own all tensors, of written-out ones the statistics."""
    for layer in units.norms:
        module = net.get_submodule(layer)
        own = module.named_parameters(recurse=False) if isinstance(module, _NormBase) else ()
        for name, _ in (*own, *module.named_buffers(recurse=False)):
            yield f"{layer}.{name}" if layer else name


def _frozen(units: UnitMap) -> dict[str, str]:
    """Say of every parameter with entries that count as used even when all units are off: how much, and why."""
    reasons = {note.where: note.what.partition(": ")[2] for note in units.notes if note.where in units.uses}
    found = {}
    for name, used in units.used(torch.zeros(units.size)).items():
        share = float((used > 0).float().mean())
        if share > 0:
            part = "whole" if share == 1 else f"{share:.0%} of it"
            found[name] = f"{part}: {reasons.get(name, 'the units it serves are always on')}"
    return found


# ---- text


def _table(sites: Sequence[Row], width: int) -> list[str]:
    rows = [HEADS, *sites]
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    rest = max(20, (width - first - second - 6) // 2)
    lines = []
    for name, size, writers, readers in rows:
        cells = zip_longest([name], [size], wrap(writers, rest), wrap(readers, rest), fillvalue="")
        lines += [f"{a:{first}}  {b:>{second}}  {c:{rest}}  {d}".rstrip() for a, b, c, d in cells]
    return lines
