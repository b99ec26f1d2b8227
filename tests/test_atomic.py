"""Old content or new content, never half."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack import atomic


def test_write_replaces_and_leaves_no_temporary(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    atomic.write(file, "old")
    atomic.write(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "result.json"
    atomic.write(file, "old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        atomic.write(file, "new")
    assert caught.value.filename == str(file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_replaced_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="Is a directory") as caught:
        atomic.write(tmp_path / "a", "x")
    assert caught.value.filename == str(tmp_path / "a")
    with pytest.raises(FileNotFoundError) as caught:
        atomic.write(tmp_path / "none" / "a", "x")
    assert caught.value.filename == str(tmp_path / "none" / "a")
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_the_content_is_on_disk_before_it_has_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real_flush, real_replace = atomic.os.fsync, atomic.os.replace
    monkeypatch.setattr(atomic.os, "fsync", lambda handle: (order.append("fsync"), real_flush(handle)))
    monkeypatch.setattr(atomic.os, "replace", lambda a, b: (order.append("rename"), real_replace(a, b)))
    atomic.write(tmp_path / "a", "x")
    assert order == ["fsync", "rename", "fsync"]
