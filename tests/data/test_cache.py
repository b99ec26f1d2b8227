from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hatrack.data.cache import Bytes, Labels, Source, Stored, fingerprint, stored
from hatrack.errors import HatrackError

from .make import entries

SHAPE = (2, 3, 4)
PIXELS = np.random.default_rng(0).integers(0, 256, (10, *SHAPE)).astype(np.uint8)
LABELS = np.arange(10)


def source(fail_after: int = 99) -> Source:
    def chunks() -> Iterator[tuple[Bytes, Labels]]:
        for start in range(0, 10, 4):
            if start >= fail_after:
                raise HatrackError("file, row 5: broken")
            yield PIXELS[start : start + 4], LABELS[start : start + 4]

    return Source(10, 7, SHAPE, chunks(), {"names": ["a"]})


def fetch(verify: bool = False, **identity: Any) -> Stored:
    return stored("toy", identity or {"v": 1}, source, verify)


def never() -> Source:
    raise AssertionError("the cache was built again")


def test_arrays_come_back_as_they_went_in_and_are_mapped_read_only() -> None:
    held = fetch()
    np.testing.assert_array_equal(held.x, PIXELS)
    np.testing.assert_array_equal(held.y, LABELS)
    assert not held.x.flags.writeable
    base: Any = held.x
    while not isinstance(base, np.memmap):
        base = base.base
    assert held.record["names"] == ["a"]


def test_the_record_holds_mean_and_std_of_the_training_rows_alone() -> None:
    record = fetch().record
    trained = PIXELS[:7].astype(np.float64) / 255
    np.testing.assert_allclose(record["mean"], trained.mean(axis=(0, 2, 3)), atol=6e-5)
    np.testing.assert_allclose(record["std"], trained.std(axis=(0, 2, 3)), atol=6e-5)


def test_a_second_start_builds_nothing() -> None:
    fetch()
    np.testing.assert_array_equal(stored("toy", {"v": 1}, never).x, PIXELS)


def test_another_identity_is_another_entry(own_cache: Path) -> None:
    fetch(v=1)
    fetch(v=2)
    assert len(entries(own_cache)) == 2


def test_a_source_that_fails_leaves_nothing(own_cache: Path) -> None:
    with pytest.raises(HatrackError, match="row 5"):
        stored("toy", {"v": 1}, lambda: source(fail_after=4))
    assert entries(own_cache) == []


def test_what_a_killed_process_was_building_is_removed(own_cache: Path) -> None:
    fetch()
    (name,) = entries(own_cache)
    left = own_cache / "decoded" / f".{name}.17-0a1b2c3d.tmp"
    (own_cache / "decoded" / name).rename(left)
    fetch()
    assert entries(own_cache) == [name]


def only_entry(cache: Path) -> Path:
    (name,) = entries(cache)
    return cache / "decoded" / name


@pytest.mark.parametrize("name", ["x.npy", "y.npy", "record.json"])
def test_a_truncated_file_is_built_again(own_cache: Path, name: str) -> None:
    fetch()
    file = only_entry(own_cache) / name
    file.write_bytes(file.read_bytes()[:-5])
    np.testing.assert_array_equal(fetch().x, PIXELS)
    assert len(entries(own_cache)) == 1


def flip_last_byte(file: Path, keep_time: bool) -> None:
    stat = file.stat()
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 255
    file.write_bytes(bytes(raw))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + (0 if keep_time else 10**9)))


def test_a_changed_byte_is_found_when_the_file_time_changed(own_cache: Path) -> None:
    fetch()
    flip_last_byte(only_entry(own_cache) / "x.npy", keep_time=False)
    np.testing.assert_array_equal(fetch().x, PIXELS)


def test_a_changed_byte_behind_an_unchanged_time_is_found_on_request(own_cache: Path) -> None:
    fetch()
    flip_last_byte(only_entry(own_cache) / "x.npy", keep_time=True)
    assert fetch().x[-1, -1, -1, -1] != PIXELS[-1, -1, -1, -1]
    np.testing.assert_array_equal(fetch(verify=True).x, PIXELS)


def test_a_copied_cache_with_new_times_is_not_built_again(own_cache: Path) -> None:
    fetch()
    os.utime(only_entry(own_cache) / "x.npy", ns=(1, 1))
    np.testing.assert_array_equal(stored("toy", {"v": 1}, never).x, PIXELS)


def test_a_map_stays_valid_while_its_entry_is_replaced(own_cache: Path) -> None:
    held = fetch()
    (only_entry(own_cache) / "y.npy").unlink()
    fetch()
    np.testing.assert_array_equal(held.x, PIXELS)


def test_who_comes_second_uses_the_first_ones_entry(own_cache: Path) -> None:
    def overtaken() -> Source:
        fetch()  # another process finishes while this one still builds
        return source()

    np.testing.assert_array_equal(stored("toy", {"v": 1}, overtaken).x, PIXELS)
    assert len(entries(own_cache)) == 1


def _build_in_child(barrier: Any) -> None:
    barrier.wait()
    ok = bool((fetch().x == PIXELS).all())
    os._exit(0 if ok else 1)


def test_processes_that_build_at_once_all_end_with_one_sound_entry(own_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    children = [context.Process(target=_build_in_child, args=(barrier,)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0] * 4
    assert len(entries(own_cache)) == 1
    np.testing.assert_array_equal(stored("toy", {"v": 1}, never, verify=True).x, PIXELS)


def test_a_cache_that_cannot_be_written_says_what_to_do_and_announces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hatrack")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path / "file"))
    with pytest.raises(HatrackError, match="set HATRACK_CACHE"):
        fetch()
    assert caplog.messages == []
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path / "folder"))
    fetch()
    assert [line.partition(";")[0] for line in caplog.messages] == ["decoding toy"]


def test_fewer_pictures_than_announced_are_not_cached(own_cache: Path) -> None:
    def short() -> Source:
        made = source()
        return Source(11, 7, SHAPE, made.chunks, made.info)

    with pytest.raises(HatrackError, match="cannot be written"):
        stored("toy", {"v": 1}, short)
    assert entries(own_cache) == []


def test_a_fingerprint_changes_with_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one")
    first = fingerprint([file])
    assert json.loads(json.dumps(first)) == first
    os.utime(file, ns=(5, 5))
    assert fingerprint([file]) != first
