"""Folders that stand beside `src/` in a clone, and inside the package once it is installed."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """Return such a folder, by its name in the clone."""
    package = Path(__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parents[1] / name
