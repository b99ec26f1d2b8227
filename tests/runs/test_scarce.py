"""A full disk, memory that runs out, a folder that is taken away: one line, and nothing is lost or made again."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hatrack import atomic
from hatrack.cli import main
from hatrack.runs import writer
from hatrack.runs.folder import lock
from hatrack.runs.records import Records
from hatrack.show.failures import ran_out

RUN = ["run", "--epochs", "1", "--set", "widths=[6]", "--out", "a"]
GO_ON = "; make room, then go on with what is saved: hatrack resume a\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def outcome(path: Path) -> list[str]:
    texts = [(path / name).read_text() for name in ("result.json", "metrics.jsonl")]
    texts[0] = re.sub(r'"files": {[^}]*}', "", texts[0])  # digests of lines that say how long they took
    return [re.sub(r'"(seconds|memory|sha256)": ("[0-9a-f]*"|[0-9.e-]+)', "", text) for text in texts]


def at(number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let `act` happen at the flush of that number to disk; return a list that counts them."""
    seen: list[int] = []
    real = os.fsync

    def flush(handle: int) -> None:
        seen.append(handle)
        if len(seen) == number:
            act()
        real(handle)

    monkeypatch.setattr(atomic.os, "fsync", flush)
    return seen


def test_a_full_disk_names_the_file_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as counting:
        counted = at(0, lambda: None, counting)
        assert main(RUN) == 0
        flushes = len(counted)
    whole = outcome(Path("a"))
    files = set()

    def full() -> None:
        raise OSError(code, "full")

    for number in (4, 5, 9, flushes // 2, *range(flushes - 7, flushes, 2)):
        code = errno.EDQUOT if number % 2 else errno.ENOSPC
        shutil.rmtree("a")
        capsys.readouterr()
        with monkeypatch.context() as failing:
            at(number, full, failing)
            assert main(RUN) == 1
        err = capsys.readouterr().err
        assert err.startswith(f"hatrack: {os.strerror(code)} (a")
        assert err.endswith(GO_ON)
        assert err.count("\n") == 1
        files.add(re.sub(r"-[0-9a-f]{12}", "", err.split("(a")[1].split(")")[0]))
        assert main(["resume", "a"]) == 0
        assert outcome(Path("a")) == whole
        assert Path("a/report.html").exists()
        assert main(["verify", "a"]) == 0
        assert not list(Path("a").rglob("*.tmp"))
    assert {"/metrics.jsonl", "/masks.safetensors", "/result.json", "/report.html"} <= files
    assert any(file.startswith("/checkpoint/") for file in files)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 64 KiB, where this machine lets us make one."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small_disk / "a"
    assert main([*RUN[:-1], str(path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"hatrack: No space left on device ({path}/")
    assert err.endswith(f"hatrack resume {path}\n")
    assert main(["resume", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"hatrack: No space left on device ({path}/")
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert main(["resume", str(path)]) == 0
    assert main(["verify", str(path)]) == 0


def test_a_full_disk_keeps_nobody_from_looking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("hatrack.runs.folder.os.write", full)
    os.close(lock(tmp_path))


@pytest.mark.parametrize("moved", [False, True])
def test_a_folder_that_is_taken_away_ends_the_run(
    moved: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (5, 9, 30):
        capsys.readouterr()
        with monkeypatch.context() as taking:
            at(number, lambda: shutil.move("a", "b") if moved else shutil.rmtree("a"), taking)
            code = main(RUN)
        err = capsys.readouterr().err
        assert code == 1
        assert err.startswith("hatrack: ")
        assert err.count("\n") == 1
        assert not Path("a").exists()
        if moved:
            assert main(["resume", "b"]) == 0
            assert main(["verify", "b"]) == 0
            shutil.rmtree("b")


def test_a_folder_that_is_taken_away_is_named_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    records = Records(tmp_path / "a" / "metrics.jsonl")
    records.start({"seed": 0})
    records.sync()
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "metrics.jsonl").touch()  # another run in its place
    with pytest.raises(FileNotFoundError, match="folder was removed or moved, so the run ends here"):
        records.sync()
    records.close()


def test_a_checkpoint_does_not_make_the_runs_folder_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Some:
        device = torch.device("cpu")

    monkeypatch.setattr(
        writer, "snapshot", lambda learner, folder, run: lambda: folder.mkdir(parents=True, exist_ok=True)
    )
    with pytest.raises(FileNotFoundError), writer.Writer(Some(), tmp_path / "a" / "checkpoint", lambda: None) as made:  # type: ignore[arg-type]
        made.save()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "memory ran out"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 bytes"), "memory ran out"),
        (torch.OutOfMemoryError("CUDA out of memory."), "the GPU's memory ran out"),
    ],
)
def test_memory_that_runs_out_in_the_report_loses_nothing(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(path: Path) -> None:
        raise error

    with monkeypatch.context() as failing:
        failing.setattr("hatrack.runs.runner.write_report", fails)
        assert main(RUN) == 1
    assert capsys.readouterr().err == f"hatrack: {says}{GO_ON}"
    assert main(["resume", "a"]) == 0
    assert Path("a/report.html").exists()


def test_other_errors_are_not_explained_away() -> None:
    for error in (OSError(errno.EIO, "x"), OSError("x"), RuntimeError("x"), ValueError("x")):
        assert ran_out(error) is None
    assert ran_out(OSError(errno.ENOSPC, "full", "file")) == "full (file)"


STUDY = """
benchmarks = ["split-digits"]
methods = ["sgd"]
seeds = [0, 1]
measures = ["acc"]
[shared]
epochs = 1
widths = [6]
"""


@pytest.mark.slow
def test_a_study_on_a_full_disk_says_so_and_goes_on(small_disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("s.toml").write_text(STUDY)
    words = ["study", "s.toml", "--out", str(small_disk / "s"), "--workers", "1"]
    assert main(words) == 1
    out, err = capfd.readouterr()
    assert "No space left on device" in out
    assert str(small_disk) in out
    assert "Traceback" not in out + err
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert main(words) == 0
    assert (small_disk / "s" / "report.html").exists()
