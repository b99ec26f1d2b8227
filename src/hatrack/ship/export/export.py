"""Exporting: a finished task as files that run without hatrack, held against the learner before they are there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from hatrack import atomic
from hatrack.errors import HatrackError, HatrackWarning, unknown
from hatrack.modes import untouched
from hatrack.processes import several
from hatrack.ship.export import card as cards
from hatrack.ship.export.check import Ask, Checked, checked
from hatrack.ship.export.int8 import LOSS, write_int8
from hatrack.ship.export.needed import needed
from hatrack.ship.export.onnx_file import load_onnx, write_onnx
from hatrack.ship.export.place import replacing, slugs
from hatrack.ship.export.pt2_file import load_pt2, write_pt2
from hatrack.ship.export.readme import readme
from hatrack.ship.export.samples import Samples, samples_of
from hatrack.ship.export.source import CODE, load_source, write_source
from hatrack.ship.export.table import table
from hatrack.ship.export.timing import TURNS, multiply_adds, size, times
from hatrack.ship.export.traced import traced
from hatrack.ship.stored import digest, packed
from hatrack.tree import count, leaves, repeated

if TYPE_CHECKING:
    from hatrack.learn.core import Core

FORMATS = ("onnx", "pt2", "torch")
ONNX, INT8, PT2 = "model.onnx", "model.int8.onnx", "model.pt2"
RUN = {"onnx": ONNX, "int8": INT8}  # by onnxruntime
BATCH = 5  # inputs that a network is traced with


@dataclass(frozen=True)
class Exported:
    """An exported task: the folder that it is in, and what its card.json says."""

    folder: Path
    card: dict[str, Any]

    def __str__(self) -> str:
        return f"{table(self.card)}\n→ {self.folder}"

    __repr__ = __str__


def chosen(format: str) -> tuple[str, ...]:
    """Return the formats that a text names."""
    found = tuple(dict.fromkeys(name.strip() for name in format.split(",")))
    for name in found:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    return found


def export(core: Core, index: int, out: Path, format: str, int8: bool, samples: Any) -> Exported:
    """Write a finished task, given by number, into a folder of its own within `out`."""
    if several():
        raise HatrackError("an export is written by one process; start it without torchrun.")
    formats = chosen(format)
    if int8 and "onnx" not in formats:
        raise HatrackError(f"int8 is made of the ONNX file, got format={format!r}; add onnx to it.")
    if "onnx" in formats:
        needed("onnx", "onnxscript", "onnxruntime")
    learned = core.tasks[index]
    known = samples_of(core, index, samples)
    names = list(dict.fromkeys(task.name for task in core.tasks[: core.finished]))  # one for all versions of a task
    folder = out / slugs(names)[names.index(learned.name)]
    cut = core.cut_out(index).cpu()
    with replacing(folder, learned.name) as draft:
        card = _Work(core, index, cut, known).done(draft, formats, int8)
        atomic.write(draft / "README.md", readme(card))
        card["files"] = cards.files_in(draft)
        cards.write_card(card, draft)
    _warn_of_loss(card, learned.target.judged().larger_is_better)
    return Exported(folder, card)


class _Work:
    """One task on its way into a folder."""

    def __init__(self, core: Core, index: int, cut: fx.GraphModule, samples: Samples) -> None:
        self.core, self.index, self.cut, self.samples = core, index, cut, samples
        self.learned = core.tasks[index]
        self.names = [str(node.target) for node in cut.graph.nodes if node.op == "placeholder"]

    def done(self, folder: Path, formats: tuple[str, ...], int8: bool) -> dict[str, Any]:
        """Fill the folder, check what is in it, and return the card."""
        drawn = self.learned.probes(self.core.seed, self.index, torch.device("cpu"), BATCH)
        with untouched(self.cut):
            program = traced(self.cut, drawn, self.learned.name)
        card = cards.described(self.learned, self.names, self._cut(drawn))
        files: dict[str, Ask] = {"cut": self._cut}
        judged: dict[str, Ask] = {}
        if "onnx" in formats:
            write_onnx(program, folder / ONNX, self.names, self.learned.name)
            files[ONNX] = load_onnx(folder / ONNX)
        if int8:
            some, said = self.samples.calibrate or (None, None)
            what = write_int8(folder / ONNX, folder / INT8, self.names, some, self.learned.name)
            card["int8"] = {"what": what, "calibration": said}
            judged[INT8] = load_onnx(folder / INT8)
        if "pt2" in formats:
            write_pt2(program, folder / PT2)
            files[PT2] = load_pt2(folder / PT2)
        if "torch" in formats:
            write_source(program, self.cut, folder, self.names, self.learned.name)
            files[CODE] = load_source(folder)
        found = checked(self.core, self.index, self.samples, files, judged)
        card["score"] = self._score(found)
        card["apart"] = found.apart
        timed: dict[str, Ask] = {"full": self._full, "cut": self._cut}
        timed |= {key: ask for key, name in RUN.items() if (ask := {**files, **judged}.get(name))}
        card["sizes"] = self._sizes(timed, folder)
        card["cut_out"] = digest(self.cut)
        card["files"] = cards.files_in(folder)
        return card

    def _full(self, x: Any) -> torch.Tensor:
        return self.core.predict(x, self.index)

    @torch.no_grad()
    def _cut(self, x: Any) -> torch.Tensor:
        answer: torch.Tensor = self.cut(*leaves(x))
        return answer

    def _score(self, found: Checked) -> dict[str, Any]:
        judged = self.learned.target.judged() if self.samples.target is None else self.samples.target.judged()
        said = {"name": judged.score, "larger_is_better": judged.larger_is_better}
        return {**said, "samples": self.samples.count, "of": self.samples.said, **found.scores}

    def _sizes(self, asked: dict[str, Ask], folder: Path) -> dict[str, Any]:
        model = self.core.model
        x, _ = next(iter(self.samples.batches()))
        x = x if count(x) >= max(TURNS) else repeated(x, max(TURNS))
        parameters, packing = size(self.cut)[0], len(packed(self.cut))
        weighed = {"full": size(model.net, model.heads[self.index]), "cut": (parameters, packing)}
        weighed |= {key: (parameters, (folder / name).stat().st_size) for key, name in RUN.items() if key in asked}
        counted = {"full": multiply_adds(self._full, x), "cut": multiply_adds(self._cut, x)}
        taken = {str(batch): dict(zip(asked, times([*asked.values()], x, batch), strict=True)) for batch in TURNS}
        return {
            key: {
                "parameters": weighed[key][0],
                "bytes": weighed[key][1],
                "multiply_adds": counted.get(key, counted["cut"]),
                "milliseconds": {batch: each[key] for batch, each in taken.items()},
            }
            for key in asked
        }


def _warn_of_loss(card: dict[str, Any], larger_is_better: bool) -> None:
    score = card["score"]
    before, after = score["learner"], score.get(INT8)
    if before is None or after is None:
        return
    lost = before - after if larger_is_better else after - before
    if lost > LOSS:
        line = f"task {card['task']!r}: int8 costs {lost:.4f} of its {score['name']} ({before:.4f} → {after:.4f})."
        warnings.warn(HatrackWarning(line), stacklevel=4)
