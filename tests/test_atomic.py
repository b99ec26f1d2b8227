"""Old content or new content, never half."""

from __future__ import annotations

import errno
import multiprocessing
import os
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


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    for name in (".result.json.4711.tmp", ".result.json.4711-0a1b2c3d.tmp"):
        (tmp_path / name).write_text("half")
    folder = tmp_path / ".result.json.4712-0a1b2c3d.tmp"
    folder.mkdir()
    (folder / "x.npy").write_text("half")
    others = [tmp_path / name for name in (".other.json.4711.tmp", ".result.json.swp", "result.json.tmp")]
    for other in others:
        other.write_text("kept")
    atomic.write(file, "whole")
    assert sorted(tmp_path.iterdir()) == sorted([file, *others])


def test_a_draft_is_left_alone_while_its_maker_lives(tmp_path: Path) -> None:
    for folder in (False, True):
        with atomic.draft(tmp_path / "a", folder=folder) as (mine, _):
            atomic.write(tmp_path / "a", "another's")
            assert mine.exists()
        assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_may_be_written_into_the_draft_of_a_folder(tmp_path: Path) -> None:
    with atomic.draft(tmp_path / "a", folder=True) as (mine, _):
        atomic.write(mine / "spec.toml", "x = 1")
        mine.rename(tmp_path / "a")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "spec.toml"]


def test_what_dies_meanwhile_is_removed_too(tmp_path: Path) -> None:
    with atomic.draft(tmp_path / "a"):
        (tmp_path / ".a.4711-0a1b2c3d.tmp").write_text("half")
    assert not any(tmp_path.iterdir())


def _write_often(file: Path) -> None:
    for number in range(300):
        atomic.write(file, f"{number}" * 100)
    os._exit(0)


def test_many_writers_of_one_file_take_nothing_from_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic.os, "fsync", lambda handle: None)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_often, args=(tmp_path / "a",)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_where_no_folder_can_be_locked_what_was_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / ".a.4711.tmp"
    left.write_text("half")

    def no_locks(*given: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", no_locks)
    atomic.write(tmp_path / "a", "whole")
    assert sorted(tmp_path.iterdir()) == [left, tmp_path / "a"]
