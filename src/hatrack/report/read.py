"""Reads a run's folder into one typed object, and says in one line what is wrong with it and what to do."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import TypedDict  # which pydantic needs: that of Python 3.11 is too little for it

from hatrack import seal
from hatrack.errors import Edited, HatrackError, one_line
from hatrack.measure import MEASURES, Scale, scale
from hatrack.measure.scale import ACCURACY, SHARES, UP_TO_ONE

Floats: TypeAlias = NDArray[np.float64]
# Bounds that no run comes near: sums of such numbers and pictures of them stay finite.
Number: TypeAlias = Annotated[float, Field(ge=-1e15, le=1e15)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]

_CHECKED = ConfigDict(
    frozen=True, protected_namespaces=(), strict=True, extra="allow", allow_inf_nan=False, hide_input_in_errors=True
)


class Record(BaseModel):
    """What JSON says, of the right types; what nobody here knows is kept as it is."""

    model_config = _CHECKED


class TaskFacts(Record):
    """What the run knew of one task; a part that does not exist has no count.

    Of a task that was released a learner knows the name alone; an older version has been replaced by an update. What
    it predicts and by what it is scored, version 0.1 did not say: classes, by accuracy.
    """

    name: str
    classes: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    train: Count | None = None
    valid: Count | None = None
    test: Count | None = None
    target: str = "classification"
    score: str = ACCURACY
    larger_is_better: bool = True
    guess: Number | None = None

    @property
    def fate(self) -> str:
        """What has become of it: "released", "older", or nothing; where it is nothing, a result does not say it."""
        return next((fate for fate in ("released", "older") if (self.model_extra or {}).get(fate) is True), "")

    @model_validator(mode="before")
    @classmethod
    def _said_nothing(cls, given: Any) -> Any:
        plain = isinstance(given, Mapping) and "target" not in given and isinstance(given.get("classes"), int)
        return {**given, "guess": 1 / given["classes"]} if plain and given["classes"] > 0 else given


class Capacity(Record):
    """Share of the weights in use after a task, in all and layer by layer."""

    total: Share
    layers: dict[str, Share]


class Growth(Record):
    """A widening of the network: after how many tasks, its parameters before and after, and what was taken then."""

    tasks: Count
    parameters: Annotated[list[Count], Field(min_length=2, max_length=2)]
    taken: Capacity | None = None


class Epoch(Record):
    """One line of metrics.jsonl; what the method has no value for is None."""

    task: Count
    epoch: int = Field(ge=1, le=2**63 - 1)
    train_loss: Annotated[float, Field(allow_inf_nan=True)] | None = None
    valid_loss: Annotated[float, Field(allow_inf_nan=True)] | None = None
    valid_accuracy: Number | None = None
    lr: float | None = None
    capacity: float | None = None

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite, which is recorded as null."""
        return self.train_loss is None or self.valid_loss is None


class Histogram(Record):
    """How a layer's values are spread over the decades (see measure/histogram.py)."""

    start: Annotated[float, Field(ge=-400, le=400)]
    step: Annotated[float, Field(gt=0, le=1)]
    counts: Annotated[list[Count], Field(max_length=4000)]
    zeros: Count


class Spec(Record):
    """The part of the spec that names a run."""

    method: str
    benchmark: str
    net: str
    seed: int


class Free(Record):
    """How tasks are found when they are not named, by a score: a row a task, and figures a task."""

    score: str
    found: list[list[Share | None]]
    accuracy: list[Share | None] | None = None
    none: list[Share | None]
    auroc: Share | None = None


class Verified(Record):
    """What was compared once all was learned; `within`: how far answers of another machine may have been apart."""

    ok: bool
    within: float
    logits: int
    entries: int
    bytes: int


if TYPE_CHECKING:
    Metrics: TypeAlias = dict[str, Any]
else:  # what a run stores of its measures (see hatrack.measure); what it has no value for is None
    _STORED = {name: measure.stored for name, measure in MEASURES.own.items() if measure.stored != "no"}
    _EACH = {f"{name}_each": list[Number | None] | None for name, stored in _STORED.items() if stored == "each"}
    Metrics = TypedDict(
        "Metrics",
        {
            **dict.fromkeys(_STORED, Number | None),
            **_EACH,
            "missing": dict[str, list[str]],
            "undefined": dict[str, str],
        },
        total=False,
    )
    Metrics.__pydantic_config__ = _CHECKED


class Result(Record):
    """result.json, schema 1."""

    format: Literal[1] = Field(alias="schema")
    hatrack: str
    spec: Spec
    tasks: list[TaskFacts] = Field(min_length=1)
    accuracy: list[list[Number | None]]
    metrics: Metrics
    free: Free | None = None
    capacity: list[Capacity] | None = None
    growth: list[Growth] | None = None
    reuse: list[list[Share | None]] | None = None
    blocked: list[Capacity | None] | None = None
    facts: list[dict[str, Number | None]] | None = None
    histograms: list[dict[str, Histogram] | None] | None = None
    guarantee: bool = False
    verified: Verified | None = None
    parameters: Count | None = None
    learnable: Count | None = None
    seconds: Annotated[Number, Field(ge=0)] | None = None
    memory: Count | None = None
    kept: Count | None = None
    device: str | None = None


@dataclass(frozen=True)
class Run:
    """All that a run wrote and a report shows.

    `accuracy[t, i]`: test score on task i after learning task t. `reuse[i, j]`: share of the weights used
    by task i that task j uses again. Both hold NaN where there is no value. `masks[site][t, u]`: gate of unit
    u for task t. `weights[parameter][t]`: how much task t uses of its entries, binned; or one for all tasks together.
    A task that was released and an older version have no unit on, and use nothing.
    """

    result: Result
    settings: Mapping[str, Any]
    accuracy: Floats
    reuse: Floats | None
    epochs: Sequence[Epoch]
    masks: Mapping[str, Floats] | None
    weights: Mapping[str, Floats] | None = None

    @property
    def scale(self) -> Scale:
        """What the tasks are scored by."""
        return scale(task.model_dump() for task in self.result.tasks)

    @property
    def names(self) -> list[str]:
        """The tasks' names, in the order they were learned."""
        marks = {"": "", "released": " (released)", "older": " (older version)"}
        return [task.name + marks[task.fate] for task in self.result.tasks]

    def curve(self, field: str) -> Floats:
        """Return what every epoch has under that name; NaN where it has nothing, or nothing finite."""
        values = np.array([getattr(epoch, field) for epoch in self.epochs], np.float64)  # None becomes NaN
        return np.where(np.isfinite(values), values, np.nan)


def read(folder: Path) -> Run:
    """Read and check the files of a finished run."""
    if not folder.is_dir():
        raise HatrackError(f"{folder} is not a run folder; give the folder that `hatrack run` wrote.")
    result = read_result(folder / "result.json")
    path = folder / "masks.safetensors"
    masks, weights = by_kind(_masks(path), result, path) if path.exists() else (None, None)
    return run_of(
        result,
        settings=_settings(folder / "spec.toml"),
        epochs=epochs(folder / "metrics.jsonl", len(result.tasks)),
        masks=masks,
        weights=weights,
    )


def run_of(
    result: Result,
    settings: Mapping[str, Any] | None = None,
    epochs: Sequence[Epoch] = (),
    masks: Mapping[str, Floats] | None = None,
    weights: Mapping[str, Floats] | None = None,
) -> Run:
    """Return a run with its tables filled up."""
    reuse = None if result.reuse is None else _filled(result.reuse, len(result.tasks))
    return Run(result, settings or {}, _filled(result.accuracy, len(result.tasks)), reuse, epochs, masks, weights)


def _text(path: Path, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HatrackError(f"{path} does not exist; {remedy}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HatrackError(f"{path} cannot be read ({one_line(error)}); {remedy}.") from None


_Model = TypeVar("_Model", bound=Record)


def parse(model: type[_Model], given: str | Mapping[str, Any], where: str, remedy: str) -> _Model:
    """Return the record that JSON, or what was read from it, holds; `remedy`: what to do where it is broken."""
    try:
        return model.model_validate_json(given) if isinstance(given, str) else model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        message = f"{place}: {first['msg']}" if place else first["msg"]
        raise HatrackError(f"{where} is broken ({message}); {remedy}.") from None


WEIGHTS = "weights/"  # before what is kept of the masks on single weights
_TABLES = ("capacity", "blocked", "facts", "histograms")  # each with an entry a task
AGAIN = "run it again with `hatrack run` into a new folder"


def remake(path: Path) -> str:
    """Say what to do about a broken result.json: it follows from the run's other files."""
    return f"remove it, and `hatrack resume {path.parent}` makes it again"


def refuse_edited(path: Path, text: str) -> None:
    """Refuse a result.json that is not as it was written; version 0.1 sealed none."""
    data = text.encode()
    if ('"verified"' in text or seal.borne(data) is not None) and not seal.intact(data):
        raise Edited(
            f"{path} was changed after it was written (its SHA-256 differs from the one in it); {remake(path)}."
        )


def read_result(path: Path) -> Result:
    """Read and check the result.json of a finished run."""
    if not path.exists():
        raise HatrackError(
            f"{path} does not exist: the run has not finished; finish it with `hatrack resume {path.parent}`."
        )
    text = _text(path, remake(path))
    result = parse(Result, text, str(path), remake(path))
    refuse_edited(path, text)
    require_whole(result, str(path), remake(path))
    return result


def require_whole(result: Result, where: str, remedy: str) -> None:
    """Raise where a table of the result does not have what it must for each of its tasks."""
    count = len(result.tasks)
    counts = {name: len(entries) for name in _TABLES if (entries := getattr(result, name)) is not None}
    broken = [f"{name}: expected {count} entries, got {got}" for name, got in counts.items() if got != count]
    lengths = [len(row) for row in result.accuracy]
    if lengths != list(range(1, count + 1)):
        broken.append(f"accuracy: row t must hold tasks 1..t for each of {count} tasks, its rows hold {lengths}")
    lengths = [count] * count if result.reuse is None else [len(row) for row in result.reuse]
    if lengths != [count] * count:
        broken.append(f"reuse: expected {count} rows of {count}, its rows hold {lengths}")
    if result.free is not None:
        broken += _unlike(result.free, count)
    for i, task in enumerate(result.tasks):
        strange = [row[i] for row in result.accuracy[i:] if i < len(row) and not _possible(row[i], task.score)]
        if strange:
            broken.append(f"accuracy: task {i + 1} is scored by {task.score}, which cannot be {strange[0]:g}")
    if broken:
        raise HatrackError(f"{where} is broken ({broken[0]}); {remedy}.")


def _unlike(free: Free, count: int) -> list[str]:
    """Say where what is known of answers without a task is not of so many tasks."""
    tables = {"found": free.found, "accuracy": free.accuracy, "none": free.none}
    lengths = {f"free.{name}": len(table) for name, table in tables.items() if table is not None}
    lengths |= {f"free.found, row {row + 1}": len(shares) for row, shares in enumerate(free.found)}
    return [f"{name}: expected {count} entries, got {got}" for name, got in lengths.items() if got != count]


def _possible(value: float | None, score: str) -> bool:
    return value is None or ((value <= 1 or score not in UP_TO_ONE) and (value >= 0 or score not in SHARES))


def _settings(path: Path) -> dict[str, Any]:
    text = _text(path, AGAIN)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise HatrackError(f"{path} is broken ({one_line(error)}); {AGAIN}.") from None


def _filled(rows: Sequence[Sequence[float | None]], count: int) -> Floats:
    table = np.full((count, count), np.nan)
    for i, row in enumerate(rows):
        table[i, : len(row)] = np.array(row, np.float64)  # None becomes NaN
    return table


def epochs(path: Path, count: float = math.inf) -> list[Epoch]:
    """Return the epochs in metrics.jsonl, those of `count` tasks, in order; of one recorded twice, the later counts."""
    latest: dict[tuple[int, int], Epoch] = {}
    # A name may hold other characters that end a line for splitlines.
    for number, line in enumerate(_text(path, AGAIN).removesuffix("\n").split("\n"), start=1):
        where = f"{path}, line {number},"
        if parse(_Event, line, where, AGAIN).event != "epoch":
            continue
        epoch = parse(Epoch, line, where, AGAIN)
        if epoch.task >= count:
            raise HatrackError(f"{where} is of task {epoch.task}, but result.json has {count} tasks; {AGAIN}.")
        latest[epoch.task, epoch.epoch] = epoch
    return [latest[key] for key in sorted(latest)]


class _Event(Record):
    event: str


def _masks(path: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        stored: dict[str, NDArray[Any]] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise HatrackError(f"{path} cannot be read ({one_line(error)}); {AGAIN}.") from None
    return stored


Masks: TypeAlias = "tuple[dict[str, Floats] | None, dict[str, Floats] | None]"


def by_kind(stored: Mapping[str, NDArray[Any]], result: Result, path: Path | str) -> Masks:
    """Return the gates of units and the fields of weights; None where there are none of them."""
    weights = {key.removeprefix(WEIGHTS): value for key, value in stored.items() if key.startswith(WEIGHTS)}
    gates = {key: value for key, value in stored.items() if not key.startswith(WEIGHTS)}
    return by_site(gates, result, path) if gates else None, by_parameter(weights, result, path) if weights else None


def by_parameter(stored: Mapping[str, NDArray[Any]], result: Result, path: Path | str) -> dict[str, Floats]:
    """Return the fields of each parameter, a table a task or one for all tasks; in the network's order."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for key, fields in stored.items():
        task, _, name = key.partition("/")
        found.setdefault(name, {})[task] = fields
    every = [str(task) for task in range(len(result.tasks))]
    tasks = {number for number, task in zip(every, result.tasks, strict=True) if not task.fate}
    expected = {"all"} if all(set(each) == {"all"} for each in found.values()) else tasks
    for name, each in found.items():
        shapes = {fields.shape for fields in each.values()}
        alike = len(shapes) == 1 and len(min(shapes)) == 2 and all(fields.dtype == np.uint8 for fields in each.values())
        if not alike or set(each) != expected:
            raise HatrackError(
                f"{path} is broken (weights of {name!r}: expected tables of bytes, of one size, for each of "
                f"{len(tasks)} tasks or one for all, got {sorted(each)}); {AGAIN}."
            )
    rank = _rank(result)
    ordered = sorted(found, key=lambda name: (rank.get(name.rpartition(".")[0], len(rank)), _natural(name)))
    tables = {
        name: [found[name].get(task, np.zeros_like(next(iter(found[name].values())))) for task in every]
        if expected == tasks
        else list(found[name].values())
        for name in ordered
    }
    return {name: np.stack(each) / 255 for name, each in tables.items()}


def _rank(result: Result) -> dict[str, int]:
    """Return the places of layers in the network, as far as they are known."""
    return {name: place for place, name in enumerate(result.capacity[0].layers if result.capacity else ())}


def by_site(stored: Mapping[str, NDArray[Any]], result: Result, path: Path | str) -> dict[str, Floats]:
    """Return the gates of each site, tasks by units; sites in the network's order where it is known."""
    found: dict[str, dict[int, NDArray[Any]]] = {}
    for key, gate in stored.items():
        task, slash, site = key.partition("/")
        if not (task.isdecimal() and slash and site) or gate.ndim != 1:
            raise HatrackError(f"{path} is broken (expected 1-D '<task>/<site>', got {key!r} {gate.shape}); {AGAIN}.")
        found.setdefault(site, {})[int(task)] = gate
    rank = _rank(result)
    ordered = sorted(found, key=lambda site: (rank.get(site, len(rank)), _natural(site)))
    there = [number for number, task in enumerate(result.tasks) if not task.fate]
    return {site: _stacked(path, site, found[site], len(result.tasks), there) for site in ordered}


def _stacked(path: Path | str, site: str, gates: dict[int, NDArray[Any]], count: int, there: list[int]) -> Floats:
    if sorted(gates) != there or len({gate.size for gate in gates.values()}) != 1:
        sizes = {task: gates[task].size for task in sorted(gates)}
        raise HatrackError(
            f"{path} is broken (site {site!r}: expected equally many units for each of {count} tasks, "
            f"got {sizes}); {AGAIN}."
        )
    closed = np.zeros_like(next(iter(gates.values())))
    return np.stack([gates.get(task, closed).astype(np.float64) for task in range(count)])


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key under which fc10 comes after fc9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
