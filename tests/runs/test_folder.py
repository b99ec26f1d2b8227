"""A run's folder: made in one step, never over another, locked until closed or killed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from hatrack import atomic
from hatrack.errors import HatrackError
from hatrack.runs.folder import create, open_run, require


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


def test_the_folder_holds_the_spec_and_nothing_else() -> None:
    with create("seed = 1\n", Path("a/b"), "unused") as made:
        assert made.path == Path("a/b")
        assert made.spec.read_text() == "seed = 1\n"
        assert names(Path("a/b")) == [".lock", "spec.toml"]
    assert names(Path("a")) == ["b"]


def test_default_names_count_up() -> None:
    paths = []
    for _ in range(3):
        with create("", None, "digits-hat-s0") as made:
            paths.append(str(made.path))
    assert paths == ["runs/digits-hat-s0", "runs/digits-hat-s0-2", "runs/digits-hat-s0-3"]


def test_an_empty_folder_may_become_a_run() -> None:
    Path("empty").mkdir()
    with create("x = 1\n", Path("empty"), "") as made:
        assert made.spec.exists()


def refuse(path: Path, **files: str) -> None:
    """Refuse a run in a new folder after it has written `files`, named without their endings."""
    made = create("x = 1\n", path, "")
    for name, text in files.items():
        (path / {"metrics": "metrics.jsonl", "result": "result.json"}.get(name, name)).write_text(text)
    with pytest.raises(HatrackError, match="refused"), made:
        raise HatrackError("refused")


def test_a_refused_run_leaves_no_folder() -> None:
    refuse(Path("a"))
    refuse(Path("a"), metrics="spec\n")
    assert names(Path()) == []
    Path("stood").mkdir()
    refuse(Path("stood"), metrics="spec\n")
    assert names(Path("stood")) == []


def test_a_refused_run_takes_the_folders_along_that_were_made_for_it() -> None:
    Path("stood").mkdir()
    refuse(Path("stood/a/b/run"))
    refuse(Path("new/run"))
    assert names(Path()) == ["stood"]
    assert names(Path("stood")) == []


def test_a_folder_above_several_runs_goes_with_the_last_of_them() -> None:
    for kept in ([], ["two"]):
        with create("", Path("many/one"), "") as one, create("", Path("many/two"), "") as two:
            for run in (one, two):
                if run.path.name not in kept:
                    with pytest.raises(HatrackError, match="refused"), run:
                        raise HatrackError("refused")
        assert [str(path) for path in Path().rglob("*/") if path.is_dir()] == ["many", "many/two"][: 2 * len(kept)]


def test_where_no_run_can_be_made_nothing_is() -> None:
    with pytest.raises(HatrackError, match="cannot make the run folder"):
        create("", Path("a/b") / ("x" * 300), "")
    assert names(Path()) == []


def test_what_was_learned_outlives_a_refusal() -> None:
    refuse(Path("a"), metrics="spec\nepoch\n")
    refuse(Path("b"), result="")
    refuse(Path("c"), checkpoint="")
    refuse(Path("d"), mine="")
    found = {path.name: names(path) for path in Path().iterdir()}
    assert found == {
        "a": [".lock", "metrics.jsonl", "spec.toml"],
        "b": [".lock", "result.json", "spec.toml"],
        "c": [".lock", "checkpoint", "spec.toml"],
        "d": ["mine"],
    }


def test_other_ends_than_a_refusal_leave_the_folder() -> None:
    with pytest.raises(KeyboardInterrupt), create("", Path("a"), ""):
        raise KeyboardInterrupt
    with pytest.raises(HatrackError, match="refused"), open_run(Path("a")):
        raise HatrackError("refused")
    assert names(Path("a")) == [".lock", "spec.toml"]


def test_nothing_is_written_over() -> None:
    with create("first = 1\n", Path("a"), ""):
        pass
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/mine").write_text("mine")
    Path("link").symlink_to("nowhere")
    for taken in ("a", "file", "full", "link"):
        with pytest.raises(HatrackError, match=f"hatrack resume {taken}"):
            create("second = 2\n", Path(taken), "")
    assert Path("a/spec.toml").read_text() == "first = 1\n"
    assert names(Path("full")) == ["mine"]
    assert names(Path(".")) == ["a", "file", "full", "link"]


def test_a_run_that_appears_meanwhile_is_not_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.rename

    def late(source: str, target: Path) -> None:
        target.mkdir()
        (target / "spec.toml").write_text("other = 1\n")
        real(source, target)

    monkeypatch.setattr("hatrack.runs.folder.os.rename", late)
    with pytest.raises(HatrackError, match="already holds something"):
        create("mine = 1\n", Path("a"), "")
    assert Path("a/spec.toml").read_text() == "other = 1\n"
    assert names(Path(".")) == ["a"]


def test_the_current_folder_is_no_place_for_a_run() -> None:
    with pytest.raises(HatrackError, match="folder of its own"):
        create("", Path("."), "")


def test_a_place_that_cannot_be_written_is_one_line() -> None:
    Path("file").write_text("")
    with pytest.raises(HatrackError, match="cannot make the run folder 'file/run'"):
        create("", Path("file/run"), "")


def test_a_second_opener_is_kept_out_until_the_first_closes() -> None:
    with (
        create("", Path("a"), "") as made,
        pytest.raises(HatrackError, match=f"'a' is in use.*{os.getpid()}"),
    ):
        open_run(made.path)
    with open_run(Path("a")) as opened:
        assert opened.path == Path("a")


def test_a_killed_process_gives_the_lock_back() -> None:
    with create("", Path("a"), ""):
        pass
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        open_run(Path("a"))
        os.write(tell, b"x")
        signal.pause()
    os.read(ready, 1)
    with pytest.raises(HatrackError, match=f"in use.*{child}"):
        open_run(Path("a"))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open_run(Path("a")):
        pass


def test_one_that_leaves_in_time_is_waited_for() -> None:
    made = create("", Path("a"), "")
    with pytest.raises(HatrackError, match="in use"):
        open_run(Path("a"))
    threading.Timer(0.2, made.close).start()
    with open_run(Path("a"), patience=60) as opened:
        assert opened.path == Path("a")


def test_opening_sweeps_half_written_files_and_nothing_else() -> None:
    with create("", Path("a"), ""):
        pass
    for name in (".result.json.123.tmp", ".report.html.77-0a1b.tmp", ".gitignore", "notes.txt"):
        Path("a", name).write_text("")
    with open_run(Path("a")):
        assert names(Path("a")) == [".gitignore", ".lock", "notes.txt", "spec.toml"]


def test_opening_takes_no_draft_from_a_process_that_writes_it() -> None:
    with create("", Path("a"), ""):
        pass
    with atomic.draft(Path("a", "report.html")) as (draft, _), open_run(Path("a")):
        assert draft.exists()


def test_the_next_run_of_that_name_sweeps_what_a_killed_process_was_making() -> None:
    left, other = Path("runs/.b.17-0a1b2c3d.tmp"), Path("runs/.a.17-0a1b2c3d.tmp")
    for draft in (left, other):
        draft.mkdir(parents=True)
        (draft / "spec.toml").write_text("")
    with create("", Path("runs/b"), ""):
        assert names(Path("runs")) == [other.name, "b"]


def test_what_is_not_a_run_is_named_with_the_nearest_that_is() -> None:
    with create("", None, "split-digits-hat-mlp-s0"):
        pass
    with pytest.raises(HatrackError, match=r"no such folder\. Did you mean 'runs/split-digits-hat-mlp-s0'"):
        require(Path("runs/split-digit-hat-mlp-s0"))
    with pytest.raises(HatrackError, match=r"no spec\.toml"):
        require(Path("runs"))
