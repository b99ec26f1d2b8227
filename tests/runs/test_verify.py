"""One bit that is flipped anywhere in a run is found out and its file named; what only looks like a change is none."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hatrack
from hatrack.cli import main
from hatrack.errors import HatrackError
from hatrack.learn import state
from hatrack.runs import folder
from hatrack.runs.references import read_result
from hatrack.runs.verify import _Files, verify_run
from sealing import edited

FILES = ("spec.toml", "metrics.jsonl", "result.json", "masks.safetensors", "learner.json", "tasks-", "live-")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "run"
    assert main(["run", "--epochs", "1", "--set", "widths=[10, 6]", "--device", "cpu", "--out", str(path)]) == 0
    return path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def file(run: Path, name: str) -> Path:
    [found] = [p for p in run.rglob("*") if p.name.startswith(name)]
    return found


def flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def places(data: bytes, draw: random.Random, every: int) -> Iterator[tuple[int, int]]:
    """Yield places to flip a bit at: every number's last digit, and one byte of `every`."""
    numbers = [m.end() - 1 for m in re.finditer(rb"\d+", data)] if data[:1] in b"{m" else []
    some = range(draw.randrange(every), len(data), every)
    yield from ((place, draw.randrange(8)) for place in sorted({*numbers, *some}))


def noticed(run: Path, name: str) -> str:
    """Return what is said of the files of a run, without computing a single answer."""
    checkpoint = run / "checkpoint"
    try:
        if name in FILES[:4]:
            return "\n".join(_Files(folder.Folder(run)).tampered)
        page, intact = state._read_page(checkpoint)
        tampered = [] if intact else ["learner.json was changed"]
        for entry in page["files"].values() if intact else ():
            state._read_tensors(checkpoint, entry, tampered)
        return "\n".join(tampered)
    except HatrackError as error:
        return str(error)


@pytest.mark.parametrize("name", FILES)
def test_a_bit_anywhere_in_any_file(name: str, run: Path) -> None:
    path, draw = file(run, name), random.Random(name)
    assert noticed(run, name) == ""
    data = path.read_bytes()
    for place, bit in places(data, draw, every=5):
        path.write_bytes(flipped(data, place, bit))
        assert path.name in noticed(run, name), (place, bit, data[place - 20 : place + 20])


@pytest.mark.parametrize("name", FILES)
def test_verify_says_so(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, draw = file(run, name), random.Random(name)
    data = path.read_bytes()
    for place in draw.sample(range(len(data)), 12):
        path.write_bytes(flipped(data, place, draw.randrange(8)))
        code = main(["verify", str(run)])
        said = capsys.readouterr()
        assert code in (1, 3)
        assert path.name in said.out + said.err
        assert said.err.count("\n") == (code == 3), "one line, never a traceback"
    path.write_bytes(data)
    assert main(["verify", str(run)]) == 0


def test_an_accuracy_that_is_edited_by_hand_is_noticed_by_all_who_read_it(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run / "result.json"
    accuracy = json.loads(result.read_text())["accuracy"][0][0]
    result.write_text(result.read_text().replace(str(accuracy), "0.123"))
    for command, code in (("verify", 1), ("resume", 1), ("report", 1)):
        assert main([command, str(run)]) == code
        said = capsys.readouterr()
        assert "result.json was changed after it was written" in said.out + said.err
    with pytest.raises(HatrackError, match=r"result\.json was changed"):
        read_result(run)


def test_a_line_of_the_record_that_is_edited_by_hand_goes_into_no_result(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = run / "metrics.jsonl"
    metrics.write_text(re.sub(r'"accuracy": \[[0-9.]+', '"accuracy": [0.123', metrics.read_text(), count=1))
    assert "0.123" in metrics.read_text()
    assert main(["verify", str(run)]) == 1
    assert "metrics.jsonl, line 3 or the one before it was changed" in capsys.readouterr().out
    (run / "result.json").unlink()
    assert main(["resume", str(run)]) == 1
    assert "metrics.jsonl, line 3 or the one before it was changed" in capsys.readouterr().err
    assert not (run / "result.json").exists()


def test_files_of_another_run_do_not_pass_for_its_own(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    words = ["--epochs", "1", "--set", "widths=[10, 6]", "--device", "cpu", "--seed", "1"]
    assert main(["run", *words, "--out", str(other)]) == 0
    for name, says in (
        ("metrics.jsonl", "metrics.jsonl is not the one that its checkpoint belongs to"),
        ("result.json", "result.json does not belong to metrics.jsonl"),
        ("masks.safetensors", "masks.safetensors was changed"),
        ("spec.toml", "spec.toml was changed"),
    ):
        kept = (run / name).read_bytes()
        shutil.copy(other / name, run / name)
        assert main(["verify", str(run)]) == 1
        assert says in capsys.readouterr().out
        (run / name).write_bytes(kept)
    shutil.rmtree(run / "checkpoint")
    shutil.copytree(other / "checkpoint", run / "checkpoint")
    assert main(["verify", str(run)]) == 1


def test_what_is_missing_or_cannot_be_read_is_not_called_a_change(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in FILES:
        path = file(run, name)
        if name == "result.json":  # without it the run is not finished, and can be
            continue
        data = path.read_bytes()
        for gone in (path.unlink, lambda path=path: (path.unlink(), path.mkdir())):
            gone()
            assert main(["verify", str(run)]) == 3
            said = capsys.readouterr()
            assert path.name in said.out + said.err or "checkpoint is gone" in said.err
            if path.is_dir():
                path.rmdir()
            path.write_bytes(data)
    assert main(["verify", str(run)]) == 0


def test_exit_codes_tell_a_wrong_word_from_what_cannot_be_verified(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(run / "nowhere")]) == 2
    assert main(["verify"]) == 2
    assert main(["verify", str(run / "checkpoint")]) == 3
    assert "does not name its network" in capsys.readouterr().err
    with folder.open_run(run):
        assert main(["verify", str(run)]) == 3
    assert "is in use by another hatrack process" in capsys.readouterr().err
    (run / "checkpoint" / "learner.json").unlink()
    (run / "checkpoint" / "learner.json").mkdir()
    with pytest.raises(HatrackError, match=r"learner\.json cannot be read"):
        hatrack.load(run / "checkpoint", hatrack.nets.build("mlp", (1, 8, 8)))


def test_a_copy_new_times_and_a_second_report_are_no_change(run: Path) -> None:
    for path in run.rglob("*"):
        os.utime(path, (0, 0))
    assert main(["report", str(run)]) == 0
    assert main(["resume", str(run)]) == 0
    assert main(["verify", str(run)]) == 0
    (run / "result.json").unlink()  # it follows from the rest
    assert main(["resume", str(run)]) == 0
    assert main(["verify", str(run)]) == 0


def test_measures_that_other_runs_complete_are_no_change(run: Path, tmp_path: Path) -> None:
    for method in ("joint", "random"):
        words = ["--method", method, "--epochs", "40", "--set", "widths=[10, 6]", "--device", "cpu"]
        assert main(["run", *words, "--out", str(tmp_path / method)]) == 0  # joint beats chance on every task
    against = [word for method in ("joint", "random") for word in ("--against", str(tmp_path / method))]
    assert main(["report", str(run), *against]) == 0
    assert read_result(run)["metrics"]["rho"] is not None
    assert main(["verify", str(run)]) == 0


READ_ONLY = """
import os, sys
from hatrack.cli import main

def refuse(event, arguments):
    writes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.utime", "os.chmod")
    if event == "open":
        writes = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    paths = [os.fsdecode(a) for a in arguments if isinstance(a, (str, bytes, os.PathLike))]
    if writes and any(os.path.abspath(p).startswith(sys.argv[1]) for p in paths):
        raise OSError(30, "Read-only file system", paths[0])

sys.addaudithook(refuse)
sys.exit(main(["verify", sys.argv[1]]))
"""


def test_a_disk_that_takes_no_writing_verifies(run: Path) -> None:
    (run / ".lock").unlink()
    before = sorted(run.rglob("*"))
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("unchanged") == 5
    file(run, "masks").write_bytes(b"")
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert sorted(run.rglob("*")) == before


def test_a_run_of_version_0_1_verifies_resumes_and_reports(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no digest besides those of its checkpoint; one that it wrote is in tests/learn."""
    metrics, result = run / "metrics.jsonl", run / "result.json"
    metrics.write_text(re.sub(', "sha256": "[0-9a-f]*"', "", metrics.read_text()))
    said = json.loads(result.read_text())
    result.write_text(json.dumps({k: v for k, v in said.items() if k not in ("verified", "files", "sha256")}))
    edited(run / "checkpoint" / "learner.json", lambda page: page.pop("run"))
    for command in ("verify", "resume", "report", "verify"):
        assert main([command, str(run)]) == 0
    assert "This run was written by version 0.1, which sealed the checkpoint only" in capsys.readouterr().out
    assert "Promised" in (run / "report.html").read_text()
    result.unlink()
    assert main(["resume", str(run)]) == 0
    assert main(["verify", str(run)]) == 0
    assert (
        "Files that are as they were written: spec.toml, metrics.jsonl (11 lines), result.json"
        in capsys.readouterr().out
    )


def test_what_was_compared_is_counted_in_the_result(run: Path) -> None:
    verdict, told = verify_run(run), read_result(run)["verified"]
    assert told["ok"]
    assert told == verdict.numbers()
    assert told["logits"] == 5 * 64 * 2
    assert told["entries"] == sum(task["entries"] for task in told["tasks"]) > 5 * (6 * 2 + 2)  # the heads alone
    assert "Exact" in (run / "report.html").read_text()
