"""The values of settings: read from `key=value` words, and fitted to the type a setting has."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from hatrack.errors import HatrackError


def parse(word: str) -> tuple[str, Any]:
    """Split `key=value`; the value is a TOML scalar, array or table, anything else is taken as plain text."""
    key, equals, text = (part.strip() for part in word.partition("="))
    if not (key and equals and text):
        raise HatrackError(f"--set takes key=value, such as --set s_max=400, got {word!r}.")
    return key, value_of(text)


def parse_all(words: Iterable[str]) -> dict[str, Any]:
    """Return the settings of several `key=value`; one that is given twice must be given alike."""
    found: dict[str, Any] = {}
    for word in words:
        key, value = parse(word)
        if found.setdefault(key, value) != value:
            raise HatrackError(f"{key} was given twice, as {found[key]!r} and as {value!r}; give it once.")
    return found


def parse_tasks(words: Iterable[str]) -> dict[str, str]:
    """Return the folders of several `NAME=DIR`, by the names of their tasks."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, place = (part.strip() for part in word.partition("="))
        if not (name and equals and place):
            raise HatrackError(f"--task takes NAME=DIR, such as --task cats=pictures/cats, got {word!r}.")
        if name in found:
            raise HatrackError(f"two tasks are called {name!r}; give each --task a name of its own.")
        found[name] = place
    return found


def fit(name: str, value: Any, annotation: Any) -> Any:
    """Return `value` as `annotation` has it (a whole number where a float is due, a list for a tuple)."""
    if value == "none" and NoneType in get_args(annotation):
        return None
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        raise HatrackError(f"{name} must be finite, got {value!r}.") from None
    except TypeError:
        raise HatrackError(f"{name} must be a number, text, a list or true/false, got {value!r}.") from None
    try:
        # As JSON, because there a list may stand for a tuple and still nothing else is converted.
        fitted = TypeAdapter(annotation).validate_json(text, strict=True)
    except ValidationError as error:
        raise complaint(error, name) from None
    except PydanticUserError:
        raise HatrackError(f"{name} is annotated with {annotation!r}, which no setting can be given for.") from None
    if isinstance(fitted, dict):
        return {key: _placed(f"{name}.{key}", inner, get_args(annotation)[-1]) for key, inner in fitted.items()}
    return _placed(name, fitted, annotation)


def _placed(name: str, fitted: Any, annotation: Any) -> Any:
    """Return a path as one that means the same from anywhere, and whatever else as it is."""
    if isinstance(fitted, str) and "\0" in fitted:
        raise HatrackError(f"{name} must not hold a zero byte, got {fitted!r:.99}.")
    is_path = any(get_origin(part) is os.PathLike for part in get_args(annotation))
    return absolute(name, fitted) if is_path else fitted


def absolute(name: str, path: str) -> str:
    """Return a path that means the same when the run is resumed from another folder."""
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError:
        raise HatrackError(f"{name} names the home of a user that is not known here: {path!r:.99}.") from None


def complaint(error: ValidationError, name: str = "") -> HatrackError:
    """Put the first thing pydantic objects to into one line: the setting, what it must be, what was given."""
    first = error.errors(include_url=False)[0]
    steps = [f"[{step}]" if isinstance(step, int) else str(step) for step in first["loc"]]
    place = (name + "".join(steps)) if name else "".join(steps)
    expected = first["msg"].replace("Input should be", "must be").replace("valid array", "list such as [1, 2]")
    return HatrackError(f"{place} {expected}, got {first['input']!r:.99}.")


def plain(value: Any) -> Any:
    """Return `value` with lists for tuples, as TOML and JSON give them back."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def value_of(text: str) -> Any:
    """Return what a text stands for."""
    if "\n" in text:
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, or more digits or brackets than Python takes
        with suppress(ValueError):
            return float(text)  # the numbers that TOML does not take, such as .5 and 1.
        return text
    return value if isinstance(value, bool | int | float | str | list | dict) else text
