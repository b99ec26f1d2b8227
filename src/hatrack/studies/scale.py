"""A smaller form of a study, [scale.NAME] in its file: what a small machine can do in hours.

    notes                  what stays, what changes, what can be learned from it
    seeds, methods, benchmarks, measures      in place of the file's
    [scale.NAME.shared], .benchmark.LABEL, .method.LABEL      settings that win over those of the same table of the file

Its runs are not the paper's experiment: the paper's figures stand beside ours without a band, and only order and sign
are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from hatrack.errors import HatrackError, unknown
from hatrack.registry import short
from hatrack.studies.overrides import merged

_LISTS = ("seeds", "methods", "benchmarks", "measures")
_KEYS = ("notes", *_LISTS, "shared", "benchmark", "method")
_TABLES = ("on", "grid")  # inside the table of a method


def scaled(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the study file that the smaller form `name` of a study file stands for."""
    form = _form(document, name)
    gone = {kind: _gone(document, form, kind) for kind in ("methods", "benchmarks")}
    made = {key: value for key, value in document.items() if key not in ("scale", "paper")}
    made |= {key: form[key] for key in _LISTS if key in form}
    notes = {"Scaled": form.get("notes"), "At full size": document.get("notes")}
    made["notes"] = " ".join(f"{size}: {said}" for size, said in notes.items() if said)
    made["shared"] = merged(document.get("shared", {}), form.get("shared", {}))
    for kind in ("benchmark", "method"):
        ours, theirs = document.get(kind, {}), form.get(kind, {})
        labels = [label for label in dict.fromkeys([*ours, *theirs]) if label not in gone[f"{kind}s"]]
        made[kind] = {label: _section(ours.get(label, {}), theirs.get(label, {}), gone) for label in labels}
    made["paper"] = _kept_figures(document.get("paper", {}), gone)
    return made


def what_changes(form: Mapping[str, Any]) -> str:
    """Say what a smaller form changes of the study."""
    said = [f"{key} {', '.join(map(str, form[key]))}" for key in _LISTS if key in form]
    tables = {"": form.get("shared", {})}
    tables |= {f"{label}: ": t for kind in ("benchmark", "method") for label, t in form.get(kind, {}).items()}
    said += [f"{place}{text}" for place, table in tables.items() for text in _settings(table)]
    return "; ".join(said)


def _settings(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from (f"{key} {text}" for text in _settings(value))
        else:
            yield f"{key} = {value}"


def _form(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    forms = document.get("scale", {})
    if not isinstance(forms, Mapping) or not all(isinstance(form, Mapping) for form in forms.values()):
        raise HatrackError("scale must hold a table for every smaller form, such as [scale.small].")
    if not forms:
        raise HatrackError(f"the file has no smaller form; write one as [scale.{name}], or leave --scale out.")
    if name not in forms:
        raise unknown("scale", name, forms)
    for key in forms[name]:
        if key not in _KEYS:
            raise unknown(f"key of [scale.{name}]", key, _KEYS)
    return dict(forms[name])


def _gone(document: Mapping[str, Any], form: Mapping[str, Any], kind: str) -> set[str]:
    """Return the labels that the smaller form leaves out."""
    listed = [str(name) for name in document.get(kind, [])]
    kept = form.get(kind, listed)
    return {label for name in listed if name not in kept for label in (name, short(name))}


def _section(ours: Mapping[str, Any], theirs: Mapping[str, Any], gone: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return the table of a method or a benchmark, with what the smaller form sets in it."""
    plain = [{key: value for key, value in table.items() if key not in _TABLES} for table in (ours, theirs)]
    made = merged(*plain)
    if "grid" in ours or "grid" in theirs:
        made["grid"] = merged(ours.get("grid", {}), theirs.get("grid", {}))
    on = [table.get("on", {}) for table in (ours, theirs)]
    places = [place for place in dict.fromkeys([*on[0], *on[1]]) if place not in gone["benchmarks"]]
    return made | ({"on": {p: merged(*(table.get(p, {}) for table in on)) for p in places}} if places else {})


def _kept_figures(paper: Any, gone: Mapping[str, Collection[str]]) -> Any:
    """Return the paper's figures but for benchmarks and methods that are left out, and for means over benchmarks."""
    if not isinstance(paper, Mapping):
        return paper
    left_out = {*gone["benchmarks"], *(["average"] if gone["benchmarks"] else [])}
    made: dict[str, Any] = {}
    for name, by_benchmark in paper.items():
        if not isinstance(by_benchmark, Mapping):
            made[name] = by_benchmark
            continue
        made[name] = {
            where: {m: f for m, f in row.items() if m not in gone["methods"]} if isinstance(row, Mapping) else row
            for where, row in by_benchmark.items()
            if where not in left_out
        }
    return made
