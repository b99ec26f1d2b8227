"""What `hatrack list recipes` shows: the papers' experiments, what data each needs and how long it would take here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatrack.data.benchmarks import BENCHMARKS
from hatrack.data.sets import SETS
from hatrack.show.words import count
from hatrack.studies import recipes
from hatrack.studies.cost import estimate, said
from hatrack.studies.plan import Places, plan

HOW = (
    "Times: plain SGD timed here on each network × the samples of all runs, references included; from no progress "
    "after the first epoch to all epochs allowed, in all phases of a method. What a step takes beyond plain SGD comes "
    "on top. Fewer runs: --methods, --seeds."
)


def recipe(name: str) -> dict[str, Any]:
    """Return what there is to say of one recipe."""
    study = recipes.find(name)
    # All seeds cost the same, and one is planned much sooner than ten.
    planned = plan(study.narrowed(None, study.seeds[:1]), Places(Path("runs"), Path("references")))
    found, seeds = estimate(planned), len(study.seeds)
    time = None if found is None else {"low": seeds * found.low, "high": seeds * found.high, "on": found.where}
    return {
        "summary": study.title,
        "source": study.source,
        "runs": seeds * len(planned.work()),
        "figures": len(study.figures),
        "hours": time,
        "sets": list(dict.fromkeys(name for b in study.benchmarks for name in BENCHMARKS[b.name].sets)),
        "notes": study.notes,
    }


def details(entry: Mapping[str, Any]) -> list[str]:
    """Return the lines below the title of a recipe."""
    hours = entry["hours"]
    time = "time unknown" if hours is None else f"{said(hours['low'])} to {said(hours['high'])} on {hours['on']}"
    figures = f"{count(entry['figures'], 'figure')} of the paper" if entry["figures"] else "no figures in print"
    return [entry["source"], f"{count(entry['runs'], 'run')}, {time}; {figures}", _data(entry["sets"])]


def _data(sets: Sequence[str]) -> str:
    """Say which image sets are needed, and which of them hatrack cannot fetch for anyone who asks."""
    free = [name for name in sets if name in SETS and (hub := SETS[name].hub) is not None and not hub.gated]
    others = [name for name in sets if name not in free]
    return f"data: {', '.join(free)}" + (f"; to be got by hand: {', '.join(others)}" if others else "")
