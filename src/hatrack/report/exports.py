"""What a run's exported tasks weigh and take: exports.json, and the table of it on a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from hatrack import seal
from hatrack.errors import Edited
from hatrack.report.builder import Section, how, table
from hatrack.report.read import Count, Number, Record, parse
from hatrack.report.words import plain, size, whole

EXPORTS = "exports.json"
AGAIN = "remove it, and export again"
TOLD = (
    "What the tasks weigh and take that were exported: in the full network, cut out of it, and as files. Milliseconds "
    "a sample in batches of 1 and 64, one thread, medians of calls in turns; multiply-adds are those of a sample."
)


class Form(Record):
    """One form of a task: the full network, the cut-out, a file; `milliseconds`: a sample, by batch."""

    name: str
    parameters: Count
    bytes: Count
    multiply_adds: Count
    milliseconds: dict[str, Number]
    score: Number | None = None


class Export(Record):
    """A task that was exported: its folder's name, what its forms are scored by, and the samples for it."""

    folder: str
    score: str
    held: str
    forms: list[Form]


class Exports(Record):
    """exports.json, schema 1."""

    format: Literal[1] = Field(alias="schema")
    tasks: dict[str, Export]


def read_exports(folder: Path) -> Mapping[str, Export]:
    """Return the exports that are noted in a run's folder, by task."""
    path = folder / EXPORTS
    if not path.exists():
        return {}
    data = path.read_bytes()
    if not seal.intact(data):
        raise Edited(f"{path} was changed after it was written (its SHA-256 differs from the one in it); {AGAIN}.")
    return parse(Exports, data.decode(), str(path), AGAIN).tasks


def section(exports: Mapping[str, Export]) -> Section:
    """Return the part of a page that shows exports."""
    batches = [*dict.fromkeys(batch for made in exports.values() for form in made.forms for batch in form.milliseconds)]
    heads = ["Task", "Form", "Parameters", "Bytes", "Multiply-adds", *(f"ms at {batch}" for batch in batches), "Score"]
    rows = []
    for task, made in exports.items():
        for form in made.forms:
            counts = [whole(form.parameters), size(form.bytes), whole(form.multiply_adds)]
            times = [plain(form.milliseconds.get(batch)) for batch in batches]
            rows.append([task, form.name, *counts, *times, plain(form.score)])
    held = "; ".join(f"{task}: {made.score}, held against the learner on {made.held}" for task, made in exports.items())
    return Section(
        "exports", "Exports", how(TOLD) + table("exports", heads, rows, numbers=4 + len(batches)) + how(held)
    )
