"""What the storm compares: everything, but for the fields in its table, and those only where they stand."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from tests.storm.__main__ import summary
from tests.storm.compare import Content, compare, read
from tests.storm.play import Kill, Outcome

RUN = {
    "run": None,
    "run/.lock": b"17\n",
    "run/metrics.jsonl": b'{"event": "epoch", "train_loss": 0.25, "seconds": 0.5, "sha256": "' + b"1" * 64 + b'"}\n',
    "run/result.json": b'{\n  "accuracy": [[1.0]],\n  "seconds": 0.75,\n  "memory": 1024,\n  "files": '
    b'{"metrics.jsonl": "' + b"2" * 64 + b'", "masks.safetensors": "' + b"3" * 64 + b'"},\n'
    b'  "sha256": "' + b"4" * 64 + b'"\n}\n',
    "run/checkpoint/learner.json": b'{\n "run": {\n  "lines": 2,\n  "digest": "' + b"5" * 64 + b'"\n },\n "files": '
    b'{\n  "live": {\n   "sha256": "' + b"6" * 64 + b'"\n  }\n },\n "sha256": "' + b"7" * 64 + b'"\n}',
    "run/report.html": b'<div class="value">0.9 s</div><td class="number">0.0 min</td><div class="value">69.1 %</div>',
    "run/spec.toml": b"seed = 3\n",
    "runs.csv": b"method,acc,seconds,memory\nhat,0.5,1.25,77.0\n",
    "cache/decoded/signs/record.json": b'{"rows": 3, "files": {"x.npy": [\n 10,\n 1700000000,\n "ab"]}}',
}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("run/.lock", b"17", b"4711"),
        ("run/metrics.jsonl", b"0.5,", b"1e-05,"),
        ("run/metrics.jsonl", b"1" * 64, b"a" * 64),
        ("run/result.json", b"2" * 64, b"a" * 64),
        ("run/result.json", b"4" * 64, b"a" * 64),
        ("run/checkpoint/learner.json", b"5" * 64, b"a" * 64),
        ("run/checkpoint/learner.json", b"7" * 64, b"a" * 64),
        ("run/result.json", b"0.75", b"7.5"),
        ("run/result.json", b"1024", b"2048"),
        ("run/report.html", b"0.9 s", b"3 min 02 s"),
        ("run/report.html", b"0.0 min", b"0.1 min"),
        ("runs.csv", b"1.25,77.0", b"2.5,78.0"),
        ("cache/decoded/signs/record.json", b"1700000000", b"1800000000"),
    ],
)
def test_times_memory_and_process_ids_may_differ_but_not_where_nothing_may(path: str, old: bytes, new: bytes) -> None:
    found: Content = RUN | {path: (RUN[path] or b"").replace(old, new)}
    assert found != RUN
    assert not compare(RUN, found)
    assert bool(compare(RUN, found, strict=True)) == (path != "run/.lock")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("run/metrics.jsonl", b"0.25", b"0.250"),
        ("run/result.json", b"1.0", b"0.99"),
        ("run/result.json", b"3" * 64, b"a" * 64),
        ("run/checkpoint/learner.json", b"6" * 64, b"a" * 64),
        ("run/checkpoint/learner.json", b'"lines": 2', b'"lines": 3'),
        ("run/report.html", b"69.1", b"69.2"),
        ("run/spec.toml", b"3", b"4"),
        ("runs.csv", b"hat,0.5", b"hat,0.6"),
        ("runs.csv", b"method", b"Method"),
        ("cache/decoded/signs/record.json", b"10,", b"11,"),
        ("cache/decoded/signs/record.json", b"ab", b"cd"),
    ],
)
def test_all_else_is_compared(path: str, old: bytes, new: bytes) -> None:
    found = compare(RUN, RUN | {path: (RUN[path] or b"").replace(old, new)})
    assert found.lines() == [f"{path} differs"]


def test_what_is_missing_and_what_is_too_much_is_found(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "new.seal").write_bytes(b"1")
    before = read(tmp_path)
    assert not compare(before, read(tmp_path))
    (tmp_path / "run" / "new.seal").write_bytes(b"2")  # a file that the table does not know
    (tmp_path / "run" / ".result.json.17.tmp").symlink_to("nowhere")
    (tmp_path / "left").mkdir()
    assert compare(before, read(tmp_path)).lines() == [
        "run/new.seal differs",
        "left was left behind",
        "run/.result.json.17.tmp was left behind",
    ]
    assert compare(read(tmp_path), before).missing == ["left", "run/.result.json.17.tmp"]


def journal(values: list[float], failed: bool) -> bytes:
    """Return a journal of trials; the first one `failed`, and was tried again."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "journal.log"
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(JournalFileBackend(str(file))), study_name="a"
        )
        if failed:
            study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
        for value in values:
            trial = study.ask()
            trial.report(value, 1)
            study.tell(trial, value)
        return file.read_bytes()


def test_a_journal_is_compared_by_the_trials_that_were_finished() -> None:
    pytest.importorskip("optuna")
    whole = {"t/journal.log": journal([0.5, 0.25], failed=False)}
    assert not compare(whole, {"t/journal.log": journal([0.5, 0.25], failed=True)})
    assert compare(whole, {"t/journal.log": journal([0.5, 0.75], failed=False)})
    assert compare(whole, {"t/journal.log": journal([0.5], failed=False)})
    assert compare(whole, {"t/journal.log": json.dumps({}).encode()})
    rows = b"number,state,lr\n0,fail,0.1\n1,complete,0.1\n"
    assert not compare({"trials.csv": b"number,state,lr\n0,complete,0.1\n"}, {"trials.csv": rows})
    assert compare({"trials.csv": b"number,state,lr\n0,complete,0.2\n"}, {"trials.csv": rows})


def test_the_summary_counts_every_kill_once(tmp_path: Path) -> None:
    def case(number: int, problems: list[str], left: bool) -> Outcome:
        kills = [Kill("in training", "SIGKILL", fresh=number == 0, command="run") for _ in range(number + 1)]
        return Outcome(f"run hat#{number}", "run hat", tmp_path, kills, problems, left)

    said = summary([case(0, [], False), case(1, ["a differs"], False), case(2, ["b was left"], True)], 1, 7, 2.2)
    assert "6 kills (6 in training)" in said
    assert "in 3 cases: 1 byte-identical, 2 different, 3 left behind; seed 7, 2 min" in said
    assert "1 of the real command" in said
