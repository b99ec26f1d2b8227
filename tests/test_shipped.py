"""Recipes and benchmarks are found in a clone and in an installed package."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hatrack import shipped

CLONE = Path(__file__).resolve().parents[1]
WHEEL = tomllib.loads((CLONE / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


def test_what_a_wheel_holds_is_found_under_its_name_in_the_clone() -> None:
    for name, inside in WHEEL["force-include"].items():
        assert shipped.shipped(name) == CLONE / name
        assert (CLONE / name).is_dir()
        assert inside == f"hatrack/{name}"


def test_inside_the_package_it_is_found_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "hatrack" / "shipped.py"))
    (tmp_path / "hatrack" / "recipes").mkdir(parents=True)
    assert shipped.shipped("recipes") == tmp_path / "hatrack" / "recipes"
