"""What `hatrack list` shows: the methods, benchmarks and nets there are, with their settings, measures and recipes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from json import dumps
from textwrap import wrap
from typing import Any

from hatrack.data.benchmarks import BENCHMARKS
from hatrack.errors import HatrackError, unknown
from hatrack.learn.schedule import SCHEDULERS
from hatrack.measure import MEASURES
from hatrack.methods import METHODS
from hatrack.methods.hyper import hyperparameters
from hatrack.nets import NETS
from hatrack.runs.accepted import Setting, of_benchmark, of_net
from hatrack.runs.values import plain
from hatrack.show import recipes
from hatrack.studies.recipes import names

LEAST = 20
"""Characters of a line beside the names, however narrow the terminal says it is."""


def entries(kind: str) -> list[dict[str, Any]]:
    """Return all methods, benchmarks, nets, measures, schedulers or recipes as plain data."""
    if kind not in _KINDS:
        raise unknown("kind", kind, _KINDS)
    table, describe = _KINDS[kind]
    return [{"name": name, **_described(name, describe)} for name in table]


def _described(name: str, describe: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Describe one; of an installed package that offers what does not fit, say why."""
    try:
        return describe(name)
    except HatrackError as error:
        return {"summary": str(error), "settings": []}


def text(kind: str, width: int) -> str:
    """Return the same for reading: a line each, and below it what --set takes, with the defaults."""
    found = entries(kind)
    margin = " " * (max(len(entry["name"]) for entry in found) + 2)
    width = max(width, len(margin) + LEAST)
    lines: list[str] = []
    for entry in found:
        said = wrap(entry["summary"], width - len(margin))
        lines.append(entry["name"].ljust(len(margin)) + said[0])
        for line in [*said[1:], *_details(entry)]:
            lines += wrap(line, width, initial_indent=margin, subsequent_indent=margin)
    return "\n".join([*lines, *(["", *wrap(recipes.HOW, width)] if kind == "recipes" else [])])


def _details(entry: Mapping[str, Any]) -> list[str]:
    if "runs" in entry:
        return recipes.details(entry)
    if "forms" in entry:
        needs = f"; needs runs of {', '.join(entry['against'])}" if entry["against"] else ""
        return [", ".join(entry["forms"]) + needs]
    lines = []
    if "source" in entry:
        kept = "old tasks cannot change" if entry["guarantee"] else "old tasks may change"
        lines.append(f"{entry['family']}, {entry['source']}; {kept}")
        old = "; needs the data of old tasks" if entry["needs_old_data"] else ""
        samples = "; its samples stand in what is saved" if entry["keeps_samples"] else ""
        lines.append(f"keeps per task: {entry['stores']}{old}{samples}")
    if entry.get("settings"):
        lines.append("--set " + " ".join(f"{s['name']}={_shown(s['default'])}" for s in entry["settings"]))
    return lines


def _shown(value: Any) -> str:
    """Return a default as --set takes it."""
    return "none" if value is None else dumps(value).replace(" ", "").strip('"')


def _method(name: str) -> dict[str, Any]:
    method = METHODS[name]
    facts = ("family", "source", "summary", "guarantee", "stores", "needs_old_data", "keeps_samples")
    settings = [{**plain(vars(h)), "type": h.type.__name__} for h in hyperparameters(method).values()]
    return {**{fact: getattr(method, fact) for fact in facts}, "settings": settings}


def _benchmark(name: str) -> dict[str, Any]:
    benchmark = BENCHMARKS[name]
    return {
        "summary": benchmark.summary,
        "needs_data": benchmark.needs_data,
        "defaults": {key: plain(value) for key, value in benchmark.defaults.items()},
        "settings": _settings(of_benchmark(name)),
    }


def _net(name: str) -> dict[str, Any]:
    about = sys.modules[NETS[name].__module__].__doc__ or NETS[name].__doc__ or name
    return {"summary": about.strip().splitlines()[0], "settings": _settings(of_net(name))}


def _measure(name: str) -> dict[str, Any]:
    measure = MEASURES[name]
    facts = ("title", "meaning", "forms", "against", "larger_is_better", "bounds", "unit")
    return {"summary": measure.said, **{fact: getattr(measure, fact) for fact in facts}}


def _settings(settings: Mapping[str, Setting]) -> list[dict[str, Any]]:
    return [
        {"name": name, "default": None if s.required else plain(s.default), "required": s.required}
        for name, s in settings.items()
    ]


_KINDS: dict[str, tuple[Iterable[str], Callable[[str], dict[str, Any]]]] = {
    "methods": (METHODS, _method),
    "benchmarks": (BENCHMARKS, _benchmark),
    "nets": (NETS, _net),
    "measures": (MEASURES, _measure),
    "schedulers": (SCHEDULERS, lambda name: {"summary": SCHEDULERS[name]}),
    "recipes": (names(), recipes.recipe),
}
