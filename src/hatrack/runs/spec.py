"""A run's spec: every setting that decides its outcome, resolved and checked before anything is written.

`resolve` is the one way to a spec, from the command line and from spec.toml alike; what it returns is
complete, so that resolving it again gives the same. It loads no code: what is not hatrack's own has been named
before, by `chosen` where the user chooses, by `read` where a folder is gone on with.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from hatrack.data.benchmarks import OFFERED
from hatrack.errors import HatrackError, unknown
from hatrack.learn.core import pick_device
from hatrack.learn.machine.engine import resolve_engine
from hatrack.learn.schedule import SCHEDULERS
from hatrack.methods.base import Method
from hatrack.nets.precision import resolve_precision
from hatrack.registry import said, short
from hatrack.runs import accepted, toml, values
from hatrack.runs.accepted import REGISTRIES

TABLES = {"method": "settings", "net": "net_options", "benchmark": "benchmark_options"}
"""Which table of spec.toml holds the settings of the method, the net and the benchmark."""


class Spec(BaseModel):
    """All settings of a run; the three dicts hold every setting that the method, net and benchmark have.

    `code` says of those that are not hatrack's own what they are (see hatrack.registry); `found` where files and
    modules lie here, and is written nowhere.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    method: str = "hat"
    benchmark: str = "split-digits"
    net: str = "mlp"
    seed: int = Field(default=0, ge=0)
    epochs: int = Field(default=200, ge=1)
    batch_size: int = Field(default=64, ge=1)
    scheduler: str = "patience"
    features: str | int | None = None
    device: str = "auto"
    engine: str = "auto"
    precision: str = "tf32"
    data: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    net_options: dict[str, Any] = Field(default_factory=dict)
    benchmark_options: dict[str, Any] = Field(default_factory=dict)
    code: dict[str, str] = Field(default_factory=dict)
    found: dict[str, str] = Field(default_factory=dict, exclude=True)

    @property
    def name(self) -> str:
        """The name of the run's folder, unless the user gives one."""
        return f"{short(self.benchmark)}-{short(self.method)}-{short(self.net)}-s{self.seed}"

    def new_method(self) -> Method:
        """Return the method with its settings."""
        method: Method = REGISTRIES["method"][self.method](**self.settings)
        return method

    def full_names(self, *parts: str) -> dict[str, Any]:
        """Return the settings of the net, the benchmark or the method under their full names, such as net.dropout."""
        return {f"{part}.{key}": value for part in parts for key, value in getattr(self, TABLES[part]).items()}

    def bring(self) -> None:
        """Load the code of this spec in a process that it was sent to."""
        for part, reference in self.found.items():
            registry, name = REGISTRIES[part], getattr(self, part)
            if name not in registry:
                registry.named(reference)
            registry.agree(name, self.code[part])

    def toml(self) -> str:
        """Return the text of spec.toml."""
        return toml.dumps(self.written())

    def written(self) -> dict[str, Any]:
        """Return every setting, as spec.toml and result.json have them."""
        return {**self.model_dump(), "scheduler": self.scheduler}

    @model_serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what version 0.1 did not know, where it is as it was then: what is the same run is told by this."""
        usual = {"code": {}, "scheduler": type(self).model_fields["scheduler"].default, "features": None}
        return {key: value for key, value in dump(self).items() if key not in usual or value != usual[key]}


RUN_KEYS = tuple(key for key in Spec.model_fields if key not in (*TABLES.values(), "code", "found"))


def chosen(key: str, value: Any, home: Path | None = None) -> Any:
    """Return what the user gives as `key`; code for a method, net or benchmark is loaded, and has its name from now on.

    Files are looked for from `home`, else from the current folder.
    """
    return (
        REGISTRIES[key].named(values.fit(key, value, str), home) if key in REGISTRIES and value is not None else value
    )


def read(path: Path, anywhere: bool = False, named: Mapping[str, str | None] | None = None) -> Spec:
    """Return the spec that spec.toml at `path` holds; `anywhere`: a device that is not here becomes one that is.

    Code that it needs is that which the user has `named`, as the method, the net or the benchmark.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        codes = document.pop("code", {})
        run = {key: value for key, value in document.items() if key not in TABLES.values()}
        for key in run:
            if key not in RUN_KEYS:
                raise unknown("setting", key, RUN_KEYS)
        if anywhere and not _is_here(run.get("device", "auto")):
            run |= {"device": "auto", "engine": "auto"}
        _have(run, codes, named or {})
        spec = resolve(run, [*_tabled(document)])
        return spec.model_copy(update={"code": codes}) if codes else spec
    except (ValueError, RecursionError) as error:  # what TOML, UTF-8 or the settings object to
        raise HatrackError(f"{path}: {error}") from None


def _have(run: Mapping[str, Any], codes: Any, named: Mapping[str, str | None]) -> None:
    """Load what the user has named, if it is what a run was made with; say what else must be named."""
    if not isinstance(codes, dict) or not all(c in REGISTRIES and isinstance(codes[c], str) for c in codes):
        raise HatrackError(f"code must be a table of texts for {', '.join(REGISTRIES)}, got {codes!r:.99}.")
    names = {part: name for part in REGISTRIES if isinstance(name := run.get(part), str)}
    for part, reference in named.items():
        if reference is not None and REGISTRIES[part].named(reference) != names.get(part):
            raise HatrackError(f"the {part} is {names.get(part)!r} here, got {reference!r}; name that one, or none.")
    missing = {part: name for part, name in names.items() if ":" in name and name not in REGISTRIES[part]}
    if missing:
        needed = ", ".join(said(codes.get(part, name)) for part, name in missing.items())
        options = " ".join(f"--{part} {'PATH/' if '.py:' in name else ''}{name}" for part, name in missing.items())
        raise HatrackError(f"code is needed that is taken only where you name it ({needed}); give {options}.")
    for part, name in names.items():
        REGISTRIES[part].agree(name, codes.get(part))


def _is_here(device: Any) -> bool:
    try:
        pick_device(values.fit("device", device, str))
    except HatrackError:
        return False
    return True


def _tabled(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings in the tables of spec.toml under their full names, such as net.dropout."""
    for group, name in TABLES.items():
        table = document.get(name, {})
        if not isinstance(table, dict):
            raise HatrackError(f"{name} must be a table, got {table!r}.")
        yield from ((f"{group}.{key}", value) for key, value in table.items())


def resolve(given: Mapping[str, Any], sets: Iterable[tuple[str, Any]] = ()) -> Spec:
    """Return the complete spec for what was `given` (run keys; None: not given) and `sets` (any setting).

    A setting that nobody gave takes the benchmark's default, else its own.
    """
    run = {key: value for key, value in given.items() if value is not None}
    others: dict[str, Any] = {}
    for key, value in sets:
        home = run if key in RUN_KEYS else others
        if key in home and home[key] != value:
            raise HatrackError(f"{key} was given twice, as {home[key]!r} and as {value!r}; give it once.")
        home[key] = value
    named = run.get("benchmark", Spec.model_fields["benchmark"].default)
    benchmark = REGISTRIES["benchmark"].find(values.fit("benchmark", named, str))
    run = {**{k: v for k, v in benchmark.defaults.items() if k in RUN_KEYS}, **run}
    spec = _checked(run)
    method, _ = REGISTRIES["method"].find(spec.method), REGISTRIES["net"].find(spec.net)
    chosen = _chosen(spec, others, benchmark.defaults)
    for option, plain in OFFERED.items():
        if option not in benchmark.options and chosen["benchmark"][option] == plain:
            del chosen["benchmark"][option]  # the run that it is without the option
    built = method(**chosen["method"])
    chosen["method"] = {name: getattr(built, name) for name in chosen["method"]}
    tables = {TABLES[group]: {k: values.plain(v) for k, v in found.items()} for group, found in chosen.items()}
    return spec.model_copy(update=tables | _code(spec))


def _code(spec: Spec) -> dict[str, dict[str, str]]:
    """Return what is to be known of a spec's code that is not hatrack's own."""
    names = {part: getattr(spec, part) for part in REGISTRIES}
    codes = {part: code for part, name in names.items() if (code := REGISTRIES[part].code(name))}
    return {"code": codes, "found": {p: REGISTRIES[p].reference(names[p]) for p in codes if ":" in names[p]}}


def _chosen(spec: Spec, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a value for every setting of the method, the net and the benchmark."""
    types = {
        "method": accepted.of_method(spec.method),
        "net": accepted.of_net(spec.net),
        "benchmark": accepted.of_benchmark(spec.benchmark),
    }
    chosen: dict[str, dict[str, Any]] = {group: {} for group in types}
    for key, value in given.items():
        group, name = _place(key, types)
        if name in chosen[group]:
            raise HatrackError(f"{name} was given twice, as {name} and as {group}.{name}; give it once.")
        chosen[group][name] = values.fit(key, value, types[group][name].type)
    for group, settings in types.items():
        for name, setting in settings.items():
            if name not in chosen[group] and setting.required:
                raise HatrackError(f"{group} {getattr(spec, group)!r} needs --set {name}=VALUE.")
            chosen[group].setdefault(name, defaults.get(name, setting.default))
    return chosen


def _checked(run: Mapping[str, Any]) -> Spec:
    fitted = {key: values.fit(key, value, Spec.model_fields[key].annotation) for key, value in run.items()}
    try:
        spec = Spec(**fitted)
    except ValidationError as error:
        raise values.complaint(error) from None
    data = None if spec.data is None else values.absolute("data", spec.data)
    if spec.scheduler not in SCHEDULERS:
        raise unknown("scheduler", spec.scheduler, SCHEDULERS)
    device = pick_device(spec.device)
    precision = resolve_precision(spec.precision, device)
    engine = resolve_engine(spec.engine, device)
    found = {"data": data, "device": str(device), "engine": engine, "precision": precision}
    return spec.model_copy(update=found)


def _place(key: str, types: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Say whose setting `key` is, the method's, the net's or the benchmark's; `net.dropout` says it itself."""
    prefix, dot, name = key.partition(".")
    if dot and prefix in types:
        if name not in types[prefix]:
            raise unknown(f"setting of the {prefix}", name, types[prefix])
        return prefix, name
    homes = [group for group, settings in types.items() if key in settings]
    if not homes:
        raise unknown("setting", key, [*RUN_KEYS, *(name for settings in types.values() for name in settings)])
    if len(homes) > 1:
        raise HatrackError(
            f"{key!r} is a setting of several parts; say which: {', '.join(f'{h}.{key}' for h in homes)}."
        )
    return homes[0], key
