"""The papers' experiments that come with the library, as study files."""

from __future__ import annotations

from pathlib import Path

from hatrack.errors import unknown
from hatrack.shipped import shipped
from hatrack.studies.file import Study, read


def names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(file.stem for file in shipped("recipes").glob("*.toml"))


def find(given: str, scale: str = "") -> Study:
    """Return the study in a file, or the recipe of that name; `scale` names a smaller form that it has."""
    path = Path(given)
    if path.suffix == ".toml" or path.is_file():
        return read(path, scale)
    if given not in names():
        raise unknown("recipe", given, names())
    return read(shipped("recipes") / f"{given}.toml", scale)
