"""The papers' experiments that come with the library, as study files."""

from __future__ import annotations

from pathlib import Path

import hatrack
from hatrack.errors import unknown
from hatrack.studies.file import Study, read


def folder() -> Path:
    """Return the folder of the recipes: inside the package once installed, else `recipes/` of the clone."""
    package = Path(hatrack.__file__).parent
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parents[1] / "recipes"


def names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(file.stem for file in folder().glob("*.toml"))


def find(given: str) -> Study:
    """Return the study in a file, or the recipe of that name."""
    path = Path(given)
    if path.suffix == ".toml" or path.is_file():
        return read(path)
    if given not in names():
        raise unknown("recipe", given, names())
    return read(folder() / f"{given}.toml")
