"""The study file: which methods, benchmarks and seeds, with which settings, and the paper's figures.

    title, source, notes   text; what it is, where the figures come from, what is different here
    seeds, methods, benchmarks, measures      lists; a method or benchmark is named, or has a label and a table below
    [shared]               keys of `hatrack run` and settings of --set for every run
    [benchmark.LABEL]      use = NAME (else the label is the name), settings on this benchmark
    [method.LABEL]         use = NAME, settings; [method.LABEL.on.BENCHMARK] on one benchmark only;
                           [method.LABEL.grid] lists of values: the method is run at every combination
    [paper]                within = least half width of a band, or "order" (no band); [paper.MEASURE] may have its own
    [paper.MEASURE.BENCHMARK]        LABEL = mean, [mean, std] or {mean, std, within}; average = … over the benchmarks
    [scale.NAME]           a smaller form of the study (see `scale`)

A NAME, and that of a net, may be code: file.py:Name, from the folder of the study file, or package.module:Name; listed
so, its label is Name. What stands further down wins: shared, benchmark, method, method on a benchmark, grid (see
`overrides`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from hatrack.errors import HatrackError, unknown
from hatrack.measure import MEASURES, Reading, reading
from hatrack.registry import short
from hatrack.runs.accepted import REGISTRIES
from hatrack.runs.spec import TABLES, chosen
from hatrack.studies.figures import Figure, figure, half
from hatrack.studies.overrides import holds, merged
from hatrack.studies.scale import scaled, what_changes

_LISTS = ("seeds", "methods", "benchmarks", "measures")
_TOP = ("title", "source", "notes", *_LISTS, "shared", "benchmark", "method", "paper", "scale")
AVERAGE = "average"  # in [paper.MEASURE], beside the benchmarks: the mean over them


@dataclass(frozen=True)
class Entry:
    """A method or a benchmark of a study under its label; `point` and `family` where it comes from a grid."""

    label: str
    name: str
    settings: Mapping[str, Any]
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    point: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""


@dataclass(frozen=True)
class Study:
    """A study as its file says it; `figures` by measure, benchmark and method, each by its label."""

    name: str
    text: str
    title: str
    source: str
    notes: str
    seeds: list[int]
    methods: list[Entry]
    benchmarks: list[Entry]
    measures: list[Reading]
    shared: Mapping[str, Any]
    figures: Mapping[tuple[str, str, str], Figure]
    changes: tuple[str, ...] = ()  # what the command changed of the file, in words
    left_out: tuple[Entry, ...] = ()  # methods that the command leaves out; the others are still measured against them
    scale: str = ""  # which smaller form of the file this is; nothing for all of it
    scales: tuple[str, ...] = ()  # the smaller forms that the file has

    def shown(self, benchmark: str) -> str:
        """Return how a benchmark is called wherever figures stand: those of a smaller form must not be mistaken."""
        return f"{benchmark} (scaled)" if self.scale else benchmark

    def narrowed(self, methods: Sequence[str] | None, seeds: Sequence[int] | None) -> Study:
        """Return the study with some of its methods only (a label, or the family of a grid), or on other seeds."""
        kept, changes = self.methods, self.changes
        if methods:
            changes += (f"only {', '.join(methods)}",)
            labels = [name for m in self.methods for name in (m.label, m.family) if name]
            for label in methods:
                if label not in labels:
                    raise unknown(f"method of study {self.name!r}", label, set(labels))
            kept = [m for m in self.methods if m.label in methods or m.family in methods]
        if seeds and list(seeds) != self.seeds:
            changes += (f"seeds {', '.join(map(str, seeds))}",)
        gone = tuple(m for m in self.methods if m not in kept)
        figures = {key: figure for key, figure in self.figures.items() if key[2] not in {m.label for m in gone}}
        left_out, own = self.left_out + gone, list(seeds) if seeds else self.seeds
        return replace(self, methods=kept, seeds=own, figures=figures, changes=changes, left_out=left_out)

    def with_settings(self, sets: Mapping[str, Any]) -> Study:
        """Return the study with further shared settings; a section of the file that sets the same keeps its own."""
        _refuse_listed("--set", sets)
        sets = {key: chosen(key, value) for key, value in sets.items()}
        changes = tuple(f"{key} = {value}{self._except(key)}" for key, value in sets.items())
        return replace(self, shared=merged(self.shared, sets), changes=self.changes + changes)

    def _except(self, key: str) -> str:
        """Say which sections keep their own `key`; raise where no run is left that a shared one would reach."""
        sections = ", ".join(f"[{section}]" for section in self._sections(key))
        if all(holds(own_settings(benchmark, method), key) for benchmark in self.benchmarks for method in self.methods):
            raise HatrackError(
                f"--set {key} reaches no run: it counts as [shared], and the study has its own {key} in {sections}; "
                f"change it there."
            )
        return f" except in {sections}" if sections else ""

    def _sections(self, key: str) -> list[str]:
        """Return the names of the sections that set `key` for a method or a benchmark of this study."""
        found = [f"benchmark.{b.label}" for b in self.benchmarks if holds(b.settings, key)]
        for method in self.methods:
            section = f"method.{method.family or method.label}"
            found += [section] if holds(method.settings, key) else []
            found += [f"{section}.on.{label}" for label, settings in method.on.items() if holds(settings, key)]
            found += [f"{section}.grid"] if holds(method.point, key) else []
        return list(dict.fromkeys(found))  # the points of a grid have one section


def own_settings(benchmark: Entry, method: Entry) -> dict[str, Any]:
    """Return what the file sets for a method on a benchmark beyond what all runs share; what stands later wins."""
    return merged(benchmark.settings, method.settings, method.on.get(benchmark.label, {}), method.point)


def read(path: Path, scale: str = "") -> Study:
    """Read and check a study file; `scale` names a smaller form that it has."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise HatrackError(f"the study file {str(path)!r} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise HatrackError(f"the study file {str(path)!r} is not text in UTF-8 ({error}).") from None
    return parse(text, path.stem, path.parent, scale)


def parse(text: str, name: str, home: Path | None = None, scale: str = "") -> Study:
    """Return the study that a text describes; code that it names is loaded, files from `home`."""
    try:
        document = tomllib.loads(text)
        return _scaled(document, text, name, home, scale) if scale else _study(document, text, name, home)
    except (ValueError, RecursionError) as error:  # what TOML or the keys object to
        raise HatrackError(f"study {name!r}: {error}") from None


def _scaled(document: Mapping[str, Any], text: str, name: str, home: Path | None, scale: str) -> Study:
    """Return a smaller form: its runs are another experiment than the paper's, so that no figure keeps a band."""
    study = _study(scaled(document, scale), text, f"{name}-{scale}", home)
    figures = {key: replace(figure, half=None) for key, figure in study.figures.items()}
    changes = (f"scaled by [scale.{scale}]: {what_changes(document['scale'][scale])}",)
    title, scales = f"{study.title} (scaled)", tuple(document["scale"])
    return replace(study, title=title, figures=figures, changes=changes, scale=scale, scales=scales)


def _study(document: Mapping[str, Any], text: str, name: str, home: Path | None) -> Study:
    for key in document:
        if key not in _TOP:
            raise unknown("key", key, _TOP)
    benchmarks = [
        Entry(label, table["use"], _without(table, "use"))
        for label, table in _labelled(document, "benchmark", home).items()
    ]
    labelled = _labelled(document, "method", home).items()
    methods = [entry for label, table in labelled for entry in _method(label, table, benchmarks, home)]
    shared = _settled("shared", document.get("shared", {}), home)
    _refuse_listed("shared", shared)
    for kind, entries in (("method", methods), ("benchmark", benchmarks)):
        for entry in entries:
            for settings in (entry.settings, entry.point, *entry.on.values()):
                _refuse_listed(f"{kind}.{entry.label}", settings)
    return Study(
        name=name,
        text=text,
        title=_words(document, "title") or name,
        source=_words(document, "source"),
        notes=_words(document, "notes"),
        seeds=_seeds(document.get("seeds", [0])),
        methods=methods,
        benchmarks=benchmarks,
        measures=[_reading(m, home) for m in _names(document, "measures", ["acc", "forgetting"])],
        shared=shared,
        figures=_figures(document.get("paper", {}), [b.label for b in benchmarks]),
        scales=tuple(document.get("scale", {})),
    )


def _reading(text: str, home: Path | None) -> Reading:
    """Return a measure with its form; code, `file.py:Name` or `package.module:Name`, has the form @t alone."""
    name, at, when = text.partition("@")
    if ":" in name and name.partition(":")[0] not in MEASURES.own:
        return reading(MEASURES.named(name, home) + at + when)
    return reading(text)


def _refuse_listed(where: str, settings: Mapping[str, Any]) -> None:
    for part in TABLES:
        for name in settings[part] if isinstance(settings.get(part), dict) else ():
            raise HatrackError(f'{where}: TOML reads {part}.{name} as a table; write "{part}.{name}" in quotes.')
    for key in ("method", "benchmark", "seed"):
        if key in settings:
            raise HatrackError(f"{where} cannot hold {key!r}; list it in {key}s.")


def _labelled(document: Mapping[str, Any], kind: str, home: Path | None) -> dict[str, Mapping[str, Any]]:
    """Return the listed labels, each with its table and what it uses; code is listed by its name, or under a label."""
    listed, tables = _names(document, f"{kind}s", None), document.get(kind, {})
    _table(kind, tables)
    for label, table in tables.items():
        _table(f"{kind}.{label}", table)
    labels = [name if "use" in tables.get(name, {}) else short(name) for name in listed]
    _require_different(f"{kind}s", labels)
    for label in tables:
        if label not in labels:
            raise HatrackError(f"[{kind}.{label}] is described but not listed in {kind}s = {labels}.")
    found: dict[str, Mapping[str, Any]] = {}
    for name, label in zip(listed, labels, strict=True):
        table = tables.get(label, {})
        found[label] = _settled(f"{kind}.{label}", table, home) | {"use": _named(kind, name, table, home)}
    return found


def _named(kind: str, label: str, table: Mapping[str, Any], home: Path | None) -> Any:
    name = table.get("use", label)
    if not isinstance(name, str) or (":" not in name and name not in REGISTRIES[kind]):
        raise unknown(f"{kind} of {label!r}" if "use" in table else kind, str(name), REGISTRIES[kind])
    return chosen(kind, name, home)


def _settled(where: str, table: Any, home: Path | None) -> dict[str, Any]:
    """Return settings, with a net's code loaded."""
    _table(where, table)
    return {key: _net(key, value, home) for key, value in table.items()}


def _net(key: str, value: Any, home: Path | None) -> Any:
    """Return the value of a setting; what no net can be called is refused where the run is resolved."""
    return chosen(key, value, home) if key == "net" and isinstance(value, str) else value


def _method(label: str, table: Mapping[str, Any], benchmarks: Sequence[Entry], home: Path | None) -> list[Entry]:
    on, grid = table.get("on", {}), table.get("grid", {})
    for part, value in (("on", on), ("grid", grid)):
        _table(f"method.{label}.{part}", value)
    for where in on:
        if where not in [b.label for b in benchmarks]:
            raise unknown("benchmark of this study", where, [b.label for b in benchmarks])
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise HatrackError(f"method.{label}.grid: {key} must be a list of values, got {values!r}.")
    grid = {key: [_net(key, value, home) for value in values] for key, values in grid.items()}
    on = {where: _settled(f"method.{label}.on.{where}", settings, home) for where, settings in on.items()}
    plain = Entry(label, table["use"], _without(table, "use", "on", "grid"), on)
    if not grid:
        return [plain]
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    if any(point in points[:i] for i, point in enumerate(points)):
        raise HatrackError(f"method.{label}.grid holds a point twice: {grid}.")
    labels = [_said(point, "g") for point in points]
    if len(set(labels)) < len(points):  # six digits do not tell them apart
        labels = [_said(point, "") for point in points]
    named = zip(labels, points, strict=True)
    return [replace(plain, label=f"{label} {said}", point=point, family=label) for said, point in named]


def _said(point: Mapping[str, Any], digits: str) -> str:
    shown = {key: format(value, digits) if isinstance(value, float) else value for key, value in point.items()}
    return " ".join(f"{key}={value}" for key, value in shown.items())


def _figures(paper: Any, benchmarks: Sequence[str]) -> dict[tuple[str, str, str], Figure]:
    """Read [paper]; a label that is not among the methods is a row of the paper's alone."""
    _table("paper", paper)
    places = [*benchmarks, AVERAGE] if len(benchmarks) > 1 else [*benchmarks]
    everywhere = half(paper.get("within", 0.0), "paper.within")
    found = {}
    for name, by_benchmark in _without(paper, "within").items():
        _table(f"paper.{name}", by_benchmark)
        here = half(by_benchmark["within"], f"paper.{name}.within") if "within" in by_benchmark else everywhere
        for where, by_method in _without(by_benchmark, "within").items():
            if where not in places:
                raise unknown(f"benchmark in paper.{name}", where, places)
            _table(f"paper.{name}.{where}", by_method)
            for label, given in by_method.items():
                place = f"paper.{name}.{where}.{label}"
                found[reading(name).text, where, label] = figure(given, here, place)
    return found


def _names(document: Mapping[str, Any], key: str, default: list[str] | None) -> list[str]:
    given = document.get(key, default)
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise HatrackError(f"{key} must be a list of one name or more, got {given!r}.")
    _require_different(key, given)
    return given


def _require_different(key: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        remedy = "give each a label of its own (use = NAME)" if key in ("methods", "benchmarks") else "list it once"
        raise HatrackError(f"{key} holds a name twice: {names}; {remedy}.")


def _seeds(given: Any) -> list[int]:
    whole = isinstance(given, list) and given and all(isinstance(s, int) and not isinstance(s, bool) for s in given)
    if not whole or min(given) < 0 or len(set(given)) < len(given):
        raise HatrackError(f"seeds must be a list of different whole numbers of at least 0, got {given!r}.")
    return list(given)


def _words(document: Mapping[str, Any], key: str) -> str:
    given = document.get(key, "")
    if not isinstance(given, str):
        raise HatrackError(f"{key} must be text, got {given!r}.")
    return " ".join(given.split())  # a long text may be broken into lines


def _table(name: str, given: Any) -> None:
    if not isinstance(given, Mapping):
        raise HatrackError(f"{name} must be a table, got {given!r}.")


def _without(table: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}
