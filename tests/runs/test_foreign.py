"""Runs with somebody else's method, network and benchmark: recorded by digest, gone on with when named again."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import hatrack
from foreign import TEXT, file, installed
from hatrack.cli import main
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.learn.fit import Epoch
from hatrack.runs import spec
from hatrack.runs.accepted import REGISTRIES
from hatrack.runs.folder import create
from hatrack.runs.runner import execute
from hatrack.runs.setup import prepare
from hatrack.runs.verify import verify_run

PARTS = {"method": "mine.py:Mine", "benchmark": "mine.py:make_tasks", "net": "mine.py:make_net"}
DIGEST = sha256(TEXT.encode()).hexdigest()


def options(folder: str = "", **parts: str) -> list[str]:
    return [word for part, name in (parts or PARTS).items() for word in (f"--{part}", folder + name)]


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test begin where nothing was named."""
    monkeypatch.chdir(tmp_path)
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do as a new process would."""
    for registry in REGISTRIES.values():
        monkeypatch.setattr(registry, "_named", {})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the code, a finished run, and one that was stopped in its second task."""
    path = tmp_path_factory.mktemp("foreign")
    file(path / "code")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        forget(patch)
        given = [*options("code/"), "--epochs", "3", "--set", "width=5", "--set", "pull=0.25"]
        assert main(["run", *given]) == 0
        whole = spec.read(path / "runs" / "make_tasks-Mine-make_net-s0" / "spec.toml")
        with pytest.raises(KeyboardInterrupt), create(whole.toml(), path / "stopped", "") as folder:
            execute(prepare(whole), folder, Stop())
        yield path


class Stop:
    """A callback that is interrupted in the second task."""

    def on_epoch(self, epoch: Epoch) -> None:
        if (epoch.task, epoch.epoch) == (1, 2):
            raise KeyboardInterrupt


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished run."""
    return Path(shutil.copytree(home / "runs" / "make_tasks-Mine-make_net-s0", tmp_path / "run"))


def trap(*folders: Path) -> None:
    """Lay code of the same name where it must not be taken from."""
    for folder in folders:
        file(folder, text="raise SystemExit('sprung')")


def test_what_is_recorded(home: Path, run: Path) -> None:
    text = (run / "spec.toml").read_text()
    document = tomllib.loads(text)
    assert {part: document[part] for part in PARTS} == PARTS
    assert document["code"] == {part: f"{name} sha256:{DIGEST}" for part, name in PARTS.items()}
    assert (document["settings"]["pull"], document["net_options"]) == (0.25, {"width": 5})
    result = json.loads((run / "result.json").read_text())
    assert result["spec"]["code"] == document["code"]
    assert result["facts"] == [{"pull": 0.25}] * 2
    page = json.loads((run / "checkpoint" / "learner.json").read_text())
    assert (page["method"], page["code"]) == ("mine", document["code"]["method"])
    for written in run.rglob("*"):
        assert written.is_dir() or str(home).encode() not in written.read_bytes()


def test_hatracks_own_records_nothing_of_it(tmp_path: Path) -> None:
    learner = hatrack.Learner(hatrack.nets.build("mlp", (4,), widths=(4,)), epochs=1)
    learner.save(tmp_path)
    assert "code" not in json.loads((tmp_path / "learner.json").read_text())
    dumped = spec.resolve({}).model_dump()
    assert dumped.keys().isdisjoint({"code", "found"})
    assert spec.resolve({}).model_dump(exclude={"data"}).keys() == dumped.keys() - {"data"}


def test_a_run_that_was_stopped_ends_like_an_undisturbed_one(home: Path, run: Path, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    shutil.copytree(home / "stopped", stopped)
    assert main(["resume", str(stopped), *options(f"{home}/code/")]) == 0
    ours, theirs = (json.loads((path / "result.json").read_text()) for path in (stopped, run))
    assert {key for key in ours if ours[key] != theirs[key]} <= {"seconds", "memory", "files", "sha256"}
    for name in ("spec.toml", "checkpoint/learner.json"):
        pages = [(path / name).read_text().splitlines() for path in (stopped, run)]
        different = [ours for ours, theirs in zip(*pages, strict=True) if ours != theirs]
        assert all('"digest"' in line or '"sha256"' in line for line in different), different


@pytest.mark.parametrize("which", ["run", "stopped"])
def test_nothing_is_imported_that_nobody_names(
    which: str, home: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run
    if which == "stopped":
        path = Path(shutil.copytree(home / "stopped", tmp_path / "stopped"))
    trap(tmp_path, path, path / "checkpoint")
    needed = "code is needed that is taken only where you name it (mine.py:Mine sha256:"
    if which == "stopped":
        assert main(["resume", str(path)]) == 2
        assert needed in capsys.readouterr().err
    assert main(["verify", str(path)]) == 3
    said = capsys.readouterr().err
    assert needed in said
    assert "give --method PATH/mine.py:Mine --net PATH/mine.py:make_net --benchmark PATH/mine.py:make_tasks." in said
    with pytest.raises(HatrackError, match=r"give hatrack.load\(…, method='PATH/mine.py:Mine'\)"):
        hatrack.load(path / "checkpoint", hatrack.nets.build("mlp", (4,)))


def test_a_report_needs_no_code(run: Path, tmp_path: Path) -> None:
    trap(tmp_path, run)
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert "mine.py:Mine" in (run / "report.html").read_text()
    assert DIGEST[:12] in (run / "report.html").read_text()


def test_verify_takes_what_is_named(home: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    main(["verify", str(run), *options(f"{home}/code/")])
    assert "spec.toml" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before


def test_code_that_was_edited_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file(tmp_path, text=TEXT.replace("0.5", "0.6"))
    assert main(["verify", str(run), *options()]) == 3
    assert f"method 'mine.py:Mine' was mine.py:Mine sha256:{DIGEST[:12]} and is" in capsys.readouterr().err
    file(tmp_path, "other.py")
    assert main(["verify", str(run), *options(method="other.py:Mine")]) == 3
    assert "the method is 'mine.py:Mine' here, got 'other.py:Mine'; name that one, or none." in capsys.readouterr().err


def test_a_saved_learner_takes_its_method_by_name_or_as_an_object(home: Path, run: Path, tmp_path: Path) -> None:
    def net() -> Any:
        return hatrack.nets.build(f"{home}/code/mine.py:make_net", (4,), width=5)

    learner = hatrack.load(run / "checkpoint", net(), method=f"{home}/code/mine.py:Mine")
    assert (learner.method.name, learner.method.facts(), learner.finished) == ("mine", {"pull": 0.25}, 2)
    learner.save(tmp_path / "again")
    assert hatrack.load(tmp_path / "again", net()).finished == 2  # named in this process, and the same
    mine = type(learner.method)
    assert hatrack.load(tmp_path / "again", net(), method=mine(pull=0.25)).finished == 2
    with pytest.raises(HatrackError, match="holds a learner of mine, got method=hat"):
        hatrack.load(tmp_path / "again", net(), method="hat")


def test_a_spec_whose_code_is_no_table_is_refused(run: Path) -> None:
    (run / "spec.toml").write_text("code = 3\n")
    with pytest.raises(HatrackError, match="code must be a table of texts for method, net, benchmark, got 3"):
        spec.read(run / "spec.toml")


def test_code_of_an_installed_package_is_found_and_its_version_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "[hatrack.methods]\nmine = brought:Mine\n[hatrack.nets]\nhalf = brought:make_net\n"
    installed(tmp_path / "site", "brought", entries)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert main(["run", "--method", "mine", "--net", "half", "--epochs", "1", "--out", "run"]) == 0
    assert tomllib.loads((tmp_path / "run" / "spec.toml").read_text())["code"] == {
        "method": "brought 1.2",
        "net": "brought 1.2",
    }
    forget(monkeypatch)
    assert verify_run(tmp_path / "run").tampered == ()
    (tmp_path / "site" / "brought-1.2.dist-info" / "METADATA").write_text("Name: brought\nVersion: 1.3\n")
    forget(monkeypatch)
    with pytest.warns(HatrackWarning, match=r"'(mine|half)' was brought 1.2 and is brought 1.3 now"):
        assert verify_run(tmp_path / "run").tampered == ()


def test_seeds_side_by_side(tmp_path: Path) -> None:
    file(tmp_path)
    assert main(["run", *options(), "--epochs", "1", "--seeds", "0,1"]) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        f"make_tasks-Mine-make_net-s{seed}" for seed in (0, 1)
    ]


def test_code_is_named_by_set_as_well(tmp_path: Path) -> None:
    file(tmp_path)
    assert spec.chosen("net", "mine.py:make_net") == "mine.py:make_net"
    assert spec.resolve({"net": "mine.py:make_net"}, [("width", 3)]).net_options == {"width": 3}
    with pytest.raises(HatrackError, match="net must be a valid string, got 3"):
        spec.chosen("net", 3)
    with pytest.raises(HatrackError, match="unknown setting 'code'"):
        spec.resolve({}, [("code", "x")])


def test_explain_takes_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file(tmp_path)
    assert main(["explain", "mine.py:make_net", "--shape", "4"]) == 0
    assert "6 units" in capsys.readouterr().out
