from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test its own cache and no data folder."""
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HATRACK_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder
