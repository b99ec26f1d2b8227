"""From a study to its runs: every method on every benchmark with every seed, and the references they are held against.

A run of a reference method (random, joint, one, sgd) is kept in the folder of references, which all studies share;
every other run is kept in the study's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatrack.errors import HatrackError
from hatrack.measure import REFERENCES, SERVES
from hatrack.methods import METHODS
from hatrack.nets import OWN
from hatrack.runs import accepted
from hatrack.runs.references import SAME
from hatrack.runs.spec import RUN_KEYS, Spec, resolve
from hatrack.studies.file import Entry, Study, own_settings
from hatrack.studies.overrides import merged

TRAINING = ("epochs", "batch_size", "scheduler")  # what a method that never trains has no use for


@dataclass(frozen=True)
class Planned:
    """One run: the benchmark and method of the study it stands for (by label), its spec, its folder, its references."""

    benchmark: str
    method: str
    spec: Spec
    path: Path
    against: tuple[Path, ...]


@dataclass(frozen=True)
class Plan:
    """All runs of a study, and the specs of the references that no run of the study itself is."""

    runs: list[Planned]
    references: dict[Path, Spec]

    def work(self) -> dict[Path, Spec]:
        """Return every folder with the spec of its run, references first, since measures wait for them."""
        return self.references | {run.path: run.spec for run in self.runs}


@dataclass(frozen=True)
class Places:
    """Where a study keeps its own runs, and where the references of all studies are."""

    runs: Path
    references: Path

    def of(self, spec: Spec) -> Path:
        home = self.references if spec.method in SERVES else self.runs
        return home / folder_name(spec)


def folder_name(spec: Spec) -> str:
    """Return the name of the folder of a study's run: what it is, for people, and its content."""
    return f"{spec.name}-{digest(spec)}"


def digest(spec: Spec) -> str:
    """Return twelve hexadecimal digits of a resolved spec's content, by which two runs are the same run.

    What is not meant to change the outcome is left out: the device, the engine that drives it, the place of the data. A
    file that the spec names (a sequence of tasks) counts by what is in it.
    """
    content = spec.model_dump(exclude={"device", "engine", "data"})
    named = (value for value in spec.benchmark_options.values() if isinstance(value, str))
    files = [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in named if Path(name).is_file()]
    text = json.dumps([content, files], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def plan(study: Study, places: Places, device: str | None = None, data: str | None = None) -> Plan:
    """Return what the study asks for; whatever is wrong with its settings comes to light here."""
    machine = {key: value for key, value in (("device", device), ("data", data)) if value is not None}
    needs = {need for reading in study.measures for need in reading.measure.needs}
    wanted = [REFERENCES[need][0] for need in sorted(needs)]
    runs: list[Planned] = []
    references: dict[Path, Spec] = {}
    for benchmark, seed in ((b, s) for b in study.benchmarks for s in study.seeds):
        specs = [(m, _spec(study, benchmark, m, seed, machine)) for m in study.methods]
        others = [m for m in study.left_out if m.name in wanted]
        listed = [spec for _, spec in specs] + [_spec(study, benchmark, m, seed, machine) for m in others]
        for method, spec in specs:
            against = [_reference(study, benchmark, spec, other, listed) for other in wanted]
            references |= {places.of(other): other for other in against}
            found = tuple(places.of(other) for other in against)
            runs.append(Planned(benchmark.label, method.label, spec, places.of(spec), found))
    own = {run.path for run in runs}
    return Plan(runs, {path: spec for path, spec in references.items() if path not in own})


def _spec(study: Study, benchmark: Entry, method: Entry, seed: int, machine: Mapping[str, Any]) -> Spec:
    """Return the spec of a run, with the settings of the file in their order."""
    chosen = merged(study.shared, own_settings(benchmark, method))
    fixed = {"method": method.name, "benchmark": benchmark.name, "seed": seed}
    try:
        return _settled({**machine, **fixed}, chosen)
    except HatrackError as error:
        raise HatrackError(f"{method.label!r} on {benchmark.label!r}: {error}") from None


def _settled(given: Mapping[str, Any], chosen: Mapping[str, Any]) -> Spec:
    spec = resolve(given, [(key, value) for key, value in chosen.items() if key not in given])
    if METHODS[spec.method].trains:
        return spec
    # It never trains, so that these mean nothing: one such run serves every study.
    return spec.model_copy(update={key: Spec.model_fields[key].default for key in TRAINING})


def _reference(study: Study, benchmark: Entry, run: Spec, method: str, listed: Sequence[Spec]) -> Spec:
    """Return the reference of `method` for a run: one that the study lists for the same network, else its plain form.

    Of several, such as the points of a grid, none is taken for its place in the list: there too it is the plain form,
    whether it is among them or not.
    """
    shared = merged(study.shared, benchmark.settings)
    run = _of_common_form(run, shared)
    fit = [spec for spec in listed if spec.method == method and all(getattr(spec, k) == getattr(run, k) for k in SAME)]
    return fit[0] if len(set(map(folder_name, fit))) == 1 else _plain(method, run, shared)


def _plain(method: str, run: Spec, shared: Mapping[str, Any]) -> Spec:
    """Return the reference of `method` by itself: with what all runs share, so far as it has such a setting."""
    settings = accepted.of_method(method)
    kept = {key: value for key, value in shared.items() if key.removeprefix("method.") in settings}
    given = {key: getattr(run, key) for key in RUN_KEYS} | {"method": method}
    given |= {key: shared[key] for key in TRAINING if key in shared}
    return _settled(given, {**kept, **run.full_names("net", "benchmark")})


def _of_common_form(run: Spec, shared: Mapping[str, Any]) -> Spec:
    """Return a run with the network that all methods have, where its own has columns or modules of its own."""
    plain = {key: s.default for key, s in accepted.of_net(run.net).items() if key in OWN}
    common = {key: shared[name] for key in plain for name in (key, f"net.{key}") if name in shared}
    return run.model_copy(update={"net_options": {**run.net_options, **plain, **common}})
