"""A sequence written by the user: a TOML file that lists tasks over sets, benchmarks and own pictures."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hatrack.data.image_set import Pictures, load
from hatrack.data.locate import Folder
from hatrack.data.rows import shuffled
from hatrack.data.split import class_tasks, one_task
from hatrack.data.task import Task
from hatrack.data.user import UnnamedClasses, folder, parquet
from hatrack.errors import HatrackError, unknown

_TOP = {"shape", "shuffle", "valid", "task"}
_SOURCES = ("set", "folder", "parquet", "benchmark")
_SHAPING = {"name", "classes", "split"}
_ACCEPTED = {
    "set": {"set", *_SHAPING},
    "folder": {"folder", *_SHAPING},
    "parquet": {"parquet", "label", "number_of_classes", *_SHAPING},
    "benchmark": {"benchmark", "options", "name"},
}
_TYPES: dict[str, tuple[type, str]] = {
    **dict.fromkeys((*_SOURCES, "name", "label"), (str, "a text")),
    **dict.fromkeys(("split", "number_of_classes"), (int, "a whole number")),
    "classes": (list, "a list of names or labels, such as [0, 1]"),
    "options": (dict, "a table, such as { tasks = 5 }"),
}
Build = Callable[..., list[Task]]


def sequence(build: Build, seed: int, file: str | os.PathLike[str], data: Folder = None) -> list[Task]:
    """Return the tasks that a TOML file lists (docs/data.md); `build` gives the tasks of a benchmark."""
    path = Path(file)
    spec = _read(path)
    shape = _shape(path, spec.get("shape"))
    made: list[Task] = []
    for number, entry in enumerate(spec["task"], start=1):
        where = f"{path}, task {number}"
        source = _source(where, entry)
        if source == "benchmark":
            built = build(entry["benchmark"], seed=seed, data=data, **entry.get("options", {}))
            for task in built if entry.get("name") else ():  # whose names tell them apart among themselves
                task.name = f"{entry['name']} {task.name}"
            made += built
        else:
            pictures = _pictures(where, path.parent, entry, source, shape, data)
            made += _tasks(where, pictures, entry, seed, spec.get("valid", 0.15))
    _check(path, made, shape)
    return [made[position] for position in shuffled(len(made), seed)] if spec.get("shuffle", False) else made


def _read(path: Path) -> dict[str, Any]:
    try:
        spec = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HatrackError(f"{path} cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HatrackError(f"{path} is not TOML: {error}.") from error
    for key in spec:
        if key not in _TOP:
            raise unknown(f"key in {path}", key, _TOP)
    entries = spec.get("task")
    if not isinstance(entries, list) or not entries:
        raise HatrackError(f"{path} lists no task; write one [[task]] table a task.")
    valid = spec.get("valid", 0.15)
    if not isinstance(valid, float) or not 0 < valid < 1:
        raise HatrackError(f"{path}: valid must be a share between 0 and 1, got {valid!r}.")
    if not isinstance(spec.get("shuffle", False), bool):
        raise HatrackError(f"{path}: shuffle must be true or false, got {spec['shuffle']!r}.")
    return spec


def _shape(path: Path, given: Any) -> tuple[int, int, int] | None:
    if given is None:
        return None
    whole = isinstance(given, list) and len(given) == 3 and all(isinstance(size, int) for size in given)
    if not whole or given[0] not in (1, 3) or given[1] != given[2]:
        raise HatrackError(f"{path}: shape must be [channels, side, side] with 1 or 3 channels, got {given!r}.")
    return given[0], given[1], given[2]


def _source(where: str, entry: Mapping[str, Any]) -> str:
    named = [source for source in _SOURCES if source in entry]
    if len(named) != 1:
        raise HatrackError(f"{where}: give one of {', '.join(_SOURCES)}, got {', '.join(entry) or 'nothing'}.")
    for key in entry:
        if key not in _ACCEPTED[named[0]]:
            raise unknown(f"key in {where}", key, _ACCEPTED[named[0]])
    for key, given in entry.items():
        kind, words = _TYPES[key]
        if not isinstance(given, kind) or isinstance(given, bool):
            raise HatrackError(f"{where}: {key} must be {words}, got {given!r}.")
    if "classes" in entry and "split" in entry:
        raise HatrackError(f"{where}: give classes (one task) or split (several tasks), not both.")
    return named[0]


def _pictures(
    where: str,
    home: Path,
    entry: Mapping[str, Any],
    source: str,
    shape: tuple[int, int, int] | None,
    data: Folder,
) -> Pictures:
    if source == "folder":
        return folder(home / entry["folder"], shape)
    if source == "parquet":
        try:
            return parquet(home / entry["parquet"], shape, entry.get("label"), entry.get("number_of_classes"))
        except UnnamedClasses as error:
            raise HatrackError(f"{where}: {error.file} does not name its classes; set number_of_classes.") from None
    pictures = load(entry["set"], data, side=None if shape is None else shape[1])
    if shape is not None and shape[0] == 3:
        return pictures.rgb()
    return pictures


def _tasks(where: str, pictures: Pictures, entry: Mapping[str, Any], seed: int, valid: float) -> list[Task]:
    if "split" in entry:
        return class_tasks(pictures, entry["split"], seed, valid, name=entry.get("name"))
    classes = [_label(where, pictures, given) for given in entry["classes"]] if "classes" in entry else None
    if classes is not None and (not classes or len(set(classes)) < len(classes)):
        raise HatrackError(f"{where}: classes must be at least one and none twice, got {entry['classes']!r}.")
    return [one_task(pictures, entry.get("name"), classes, seed, valid)]


def _label(where: str, pictures: Pictures, given: Any) -> int:
    """Return the label of a class given by number or by name."""
    if isinstance(given, str):
        if given not in pictures.names:
            raise unknown(f"class in {where}", given, pictures.names)
        return pictures.names.index(given)
    if not isinstance(given, int) or not 0 <= given < len(pictures.names):
        raise HatrackError(f"{where}: class {given!r} is outside 0..{len(pictures.names) - 1}.")
    return given


def _check(path: Path, made: Sequence[Task], shape: tuple[int, int, int] | None) -> None:
    """Raise unless all tasks have their own name and the same shape: one network learns them all."""
    names = [task.name for task in made]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise HatrackError(f"{path}: two tasks are called {twice!r}; give one [[task]] a `name` of its own.")
    wanted = list(shape or made[0].about["shape"])
    todo = "set a shape at the top of the file, such as shape = [3, 32, 32], to bring sets to it"
    if shape is not None:
        todo = "a benchmark's tasks keep their shape: list its set instead, or give this shape at the top of the file"
    for task in made:
        if task.about["shape"] != wanted:
            given = task.about["shape"]
            raise HatrackError(f"{path}: task {task.name!r} has pictures of shape {given}, not {wanted}; {todo}.")
