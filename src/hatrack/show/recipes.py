"""What `hatrack list recipes` shows: the papers' experiments, what data each needs and how long it would take here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatrack.data.benchmarks import BENCHMARKS
from hatrack.data.sets import SETS
from hatrack.show.words import count
from hatrack.studies import recipes
from hatrack.studies.cost import between, estimate
from hatrack.studies.file import Study
from hatrack.studies.plan import Places, Plan, plan

HOW = (
    "Times: plain SGD timed here on each network × the samples of all runs, references included; from no progress "
    "after the first epoch to all epochs allowed, in all phases of a method; what a step takes beyond plain SGD and "
    "the testing of all tasks so far are counted. Fewer runs: --scale small, --methods, --seeds."
)


def recipe(name: str) -> dict[str, Any]:
    """Return what there is to say of one recipe."""
    study = recipes.find(name)
    return {
        "summary": study.title,
        "source": study.source,
        **_effort(study),
        "scales": {scale: _effort(recipes.find(name, scale)) for scale in study.scales},
        "figures": len(study.figures),
        "sets": list(dict.fromkeys(name for b in study.benchmarks for name in BENCHMARKS[b.name].sets)),
        "notes": study.notes,
    }


def _effort(study: Study) -> dict[str, Any]:
    """Return how many runs a study has, and how long they take here."""
    # All seeds cost the same, and one is planned much sooner than ten.
    planned = plan(study.narrowed(None, study.seeds[:1]), Places(Path("runs"), Path("references")))
    found, seeds = estimate(planned.work().values()), len(study.seeds)
    time = None if found is None else {"low": seeds * found.low, "high": seeds * found.high, "on": found.where}
    return {"runs": seeds * len(planned.work()), "hours": time}


def expected(planned: Plan) -> str:
    """Say how long the runs of a study that are not finished will take here; nothing where that is not known."""
    found = estimate(spec for path, spec in planned.work().items() if not (path / "result.json").exists())
    return "" if found is None else f"expected: {between(found.low, found.high)} on {found.where}"


def details(entry: Mapping[str, Any]) -> list[str]:
    """Return the lines below the title of a recipe."""
    figures = f"{count(entry['figures'], 'figure')} of the paper" if entry["figures"] else "no figures in print"
    scaled = [f"--scale {scale}: {_said(effort)}" for scale, effort in entry["scales"].items()]
    return [entry["source"], f"{_said(entry)}; {figures}", *scaled, _data(entry["sets"])]


def _said(effort: Mapping[str, Any]) -> str:
    hours = effort["hours"]
    time = "time unknown" if hours is None else f"{between(hours['low'], hours['high'])} on {hours['on']}"
    return f"{count(effort['runs'], 'run')}, {time}"


def _data(sets: Sequence[str]) -> str:
    """Say which image sets are needed, and which of them hatrack cannot fetch for anyone who asks."""
    free = [name for name in sets if name in SETS and (hub := SETS[name].hub) is not None and not hub.gated]
    others = [name for name in sets if name not in free]
    return f"data: {', '.join(free)}" + (f"; to be got by hand: {', '.join(others)}" if others else "")
