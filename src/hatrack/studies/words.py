"""How the figures of a study read, the same in the terminal, on the page and in LaTeX."""

from __future__ import annotations

from collections import Counter

from hatrack.report.parts import DASH, counted, duration
from hatrack.studies.measures import HALF, Measure
from hatrack.studies.table import Cell

MEANINGS = {
    "acc": "average accuracy",
    "bwt": "backward transfer",
    "fwt": "forward transfer",
    "forgetting": "forgetting",
    "rho": "forgetting ratio ρ",
    "ncl": "difference to NCL",
    "acc_weighted": "average accuracy, weighted",
    "bwt_weighted": "backward transfer, weighted",
    "capacity": "capacity used",
    "blocked": "parameters blocked",
    "F-each": "CHI above the task’s own importance, how often",
    "G-each": "CHI above the task’s own importance, by how much",
    "F-total": "CHI above the accumulated importance, how often",
    "G-total": "CHI above the accumulated importance, by how much",
    "seconds": "time",
    "memory": "peak memory",
    "parameters": "parameters",
    "kept": "kept for the tasks besides network and heads",
}


def title(measure: Measure) -> str:
    """Say what a measure is."""
    if measure.of is not None:
        said = f"accuracy on task {measure.of}"
    else:
        said = MEANINGS[measure.name] + (f" of {measure.layer}" if measure.layer else "")
    if measure.after is None:
        return said
    return said + (" after half of the tasks" if measure.after == HALF else f" after task {measure.after}")


def number(value: float | None, measure: Measure) -> str:
    """Write a value: four digits of a share, whole parameters, time and memory in fitting units."""
    if value is None:
        return DASH
    if measure.name == "seconds":
        return duration(value)
    if measure.name in ("memory", "kept"):
        return size(value)
    return f"{value:.4f}" if measure.share else f"{value:,.0f}"


def ours(cell: Cell, measure: Measure) -> str:
    """Write mean ± standard deviation."""
    mean = number(cell.mean, measure)
    return mean if cell.std is None else f"{mean} ± {number(cell.std, measure)}"


def theirs(cell: Cell) -> str:
    """Write the paper's figure."""
    return DASH if cell.figure is None else str(cell.figure)


def agreement(found: Counter[str]) -> str:
    """Say how our figures lie to the paper's; nothing where it has none."""
    if not found:
        return ""
    beside = ", ".join(f"{found[where]} {where}" for where in ("above", "below") if found[where])
    within = f"{found['within']} of {counted(found.total(), 'figure')} within the paper’s band"
    return within + (f", {beside} it." if beside else ".")


def size(memory: float | None) -> str:
    """Write bytes as B, KiB, MiB or GiB."""
    if memory is None:
        return DASH
    if memory < 2**10:
        return f"{memory:.0f} B"
    if memory < 2**20:
        return f"{memory / 2**10:.0f} KiB"
    mebi = memory / 2**20
    return f"{mebi:.0f} MiB" if mebi < 1024 else f"{mebi / 1024:.1f} GiB"


def chance(p: float | None) -> str:
    """Write a p-value."""
    if p is None:
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
