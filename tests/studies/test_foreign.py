"""Studies and searches over somebody else's code: from the file's folder, in worker processes, by its digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreign import TEXT, file
from hatrack.cli import main
from hatrack.errors import HatrackError
from hatrack.measure import MEASURES
from hatrack.runs.accepted import REGISTRIES
from hatrack.studies.executor import Local
from hatrack.studies.file import parse, read
from hatrack.studies.job import Job
from hatrack.studies.plan import Places, plan

STUDY = """
seeds = [0]
benchmarks = ["mine.py:make_tasks"]
methods = ["mine.py:Mine", "soft", "sgd"]
measures = ["acc", "mine.py:best@1"]

[shared]
epochs = 1
net = "mine.py:make_net"

[method.Mine]
pull = 0.25

[method.soft]
use = "mine.py:Mine"

[method.sgd.on.make_tasks]
lr = 0.1

[paper.acc.make_tasks]
Mine = 0.9
"""


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test begin where nothing was named, with the code beside the study and not in the current folder."""
    monkeypatch.chdir(tmp_path)
    forget(monkeypatch)
    file(tmp_path / "mine")
    (tmp_path / "mine" / "study.toml").write_text(STUDY)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (*REGISTRIES.values(), MEASURES):
        monkeypatch.setattr(registry, "_named", {})


def test_labels_are_the_names_without_their_file(tmp_path: Path) -> None:
    study = read(tmp_path / "mine" / "study.toml")
    assert [(m.label, m.name) for m in study.methods] == [
        ("Mine", "mine.py:Mine"),
        ("soft", "mine.py:Mine"),
        ("sgd", "sgd"),
    ]
    assert [(b.label, b.name) for b in study.benchmarks] == [("make_tasks", "mine.py:make_tasks")]
    assert study.shared["net"] == "mine.py:make_net"
    assert [(m.text, m.title) for m in study.measures][1] == ("mine.py:best@1", "best task after task 1")
    assert list(study.figures) == [("acc", "make_tasks", "Mine")]


def test_a_label_of_ones_own_may_look_like_code(tmp_path: Path) -> None:
    text = 'benchmarks = ["split-digits"]\nmethods = ["HAT: hard"]\n[method."HAT: hard"]\nuse = "hat"\n'
    assert [(m.label, m.name) for m in parse(text, "x").methods] == [("HAT: hard", "hat")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'methods = ["a/mine.py:Mine", "b/mine.py:Mine"]',
            "methods holds a name twice: .*; give each a label of its own",
        ),
        ('methods = ["gone.py:Mine"]', "gone.py' cannot be read"),
        ('methods = ["hat"]\n[shared]\nnet = "mine.py:Nett"', "unknown name in mine.py: 'Nett'; did you mean 'Net'"),
        ('methods = ["hat"]\n[method.hat.grid]\nnet = ["mlp", "mine.py:Nett"]', "unknown name in mine.py: 'Nett'"),
        ('methods = ["hat"]\n[method.hat.on.digits]\nnet = "mine.py:Nett"', "unknown name in mine.py: 'Nett'"),
    ],
)
def test_mistakes_are_one_line(text: str, says: str, tmp_path: Path) -> None:
    text = f'benchmarks = ["digits"]\n{text}\n[benchmark.digits]\nuse = "split-digits"\n'
    with pytest.raises(HatrackError, match=says):
        parse(text, "x", tmp_path / "mine")


def jobs(folder: Path) -> list[Job]:
    study = read(folder / "study.toml")
    return [Job(path, spec) for path, spec in plan(study, Places(folder / "runs", folder / "refs")).work().items()]


def test_a_run_is_known_by_its_code(tmp_path: Path) -> None:
    before = [job.path for job in jobs(tmp_path / "mine")]
    assert [path.name.rpartition("-")[0] for path in before] == [
        "make_tasks-Mine-make_net-s0",
        "make_tasks-Mine-make_net-s0",
        "make_tasks-sgd-make_net-s0",
    ]
    assert [job.path for job in jobs(tmp_path / "mine")] == before
    file(tmp_path / "mine", text=TEXT + "\n")
    assert set(before).isdisjoint(job.path for job in jobs(tmp_path / "mine"))


def test_workers_load_the_code_themselves(tmp_path: Path) -> None:
    first, second, _ = jobs(tmp_path / "mine")
    [over] = Local(1).run([first], lambda job, message: None)
    assert over.reason is None
    result = json.loads((first.path / "result.json").read_text())
    assert result["facts"] == [{"pull": 0.25}] * 2
    assert str(tmp_path) not in (first.path / "spec.toml").read_text()
    file(tmp_path / "mine", text=TEXT + "\n")
    [over] = Local(1).run([second], lambda job, message: None)
    assert over.reason is not None
    assert "'mine.py:Mine' was mine.py:Mine sha256:" in over.reason


def test_a_study_and_going_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["study", "mine/study.toml", "--methods", "Mine", "--workers", "1", "--set", "net=mine/mine.py:Net"]
    assert main(command) == 0
    assert "1 run to do" in capsys.readouterr().out
    forget(monkeypatch)
    assert main(command) == 0
    assert "0 runs to do; 1 run finished before" in capsys.readouterr().out
    assert "Mine" in (tmp_path / "studies" / "study" / "table.csv").read_text()
    [run] = (tmp_path / "studies" / "study" / "runs").iterdir()
    assert run.name.startswith("make_tasks-Mine-Net-s0-")


def test_a_search_and_the_study_of_its_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = [word for part, name in (("method", "Mine"), ("net", "Net"), ("benchmark", "make_tasks"))
            for word in (f"--{part}", f"mine/mine.py:{name}")]  # fmt: skip
    command = ["tune", *code, "--seeds", "0", "--trials", "2", "--epochs", "1", "--workers", "1", "--set", "lr=0.1"]
    assert main(command) == 0
    best = tmp_path / "studies" / "tune-Mine-make_tasks" / "best-Mine-make_tasks.toml"
    forget(monkeypatch)
    study = read(best)
    assert [(m.label, m.name) for m in study.methods] == [("Mine", "mine.py:Mine")]
    assert {"pull", "lr"} <= study.methods[0].settings.keys()
    assert (study.benchmarks[0].name, study.shared["net"]) == ("mine.py:make_tasks", "mine.py:Net")
    forget(monkeypatch)
    file(tmp_path / "mine", text=TEXT + "\n")
    assert main(command) == 2
    assert "holds a search with other settings" in capsys.readouterr().err
