"""The command line from outside: what it prints, what it leaves behind, how it fails."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

from hatrack import __version__
from hatrack.cli import main
from sealing import edited

SMALL = ["--epochs", "2", "--set", "widths=[12, 8]"]
COMMAND = [sys.executable, "-c", "import sys; from hatrack.cli import main; sys.exit(main())"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small finished run; tests that change it work on a copy."""
    path = tmp_path_factory.mktemp("cli") / "run"
    assert main(["run", *SMALL, "--out", str(path)]) == 0
    return path


# ---- running


def test_run_leaves_a_complete_folder(finished: Path) -> None:
    assert sorted(p.name for p in finished.iterdir()) == [
        ".lock",
        "checkpoint",
        "masks.safetensors",
        "metrics.jsonl",
        "report.html",
        "result.json",
        "spec.toml",
    ]
    result = json.loads((finished / "result.json").read_text())
    assert list(result) == [
        "schema",
        "hatrack",
        "spec",
        "tasks",
        "accuracy",
        "metrics",
        "free",
        "capacity",
        "growth",
        "reuse",
        "blocked",
        "facts",
        "histograms",
        "guarantee",
        "verified",
        "parameters",
        "learnable",
        "seconds",
        "memory",
        "kept",
        "device",
        "files",
        "sha256",
    ]
    spec = tomllib.loads((finished / "spec.toml").read_text())
    assert result["spec"] == spec | {"data": None}
    assert result["hatrack"] == __version__
    assert [task["name"] for task in result["tasks"]] == [f"digits {i}-{i + 1}" for i in range(0, 10, 2)]
    assert [len(row) for row in result["accuracy"]] == [1, 2, 3, 4, 5]
    assert result["metrics"]["acc"] == pytest.approx(sum(result["accuracy"][-1]) / 5)
    assert result["metrics"]["forgetting"] == 0
    assert [round(entry["total"], 12) for entry in result["capacity"]] == sorted(
        round(entry["total"], 12) for entry in result["capacity"]
    )
    assert (len(result["reuse"]), result["guarantee"], result["device"]) == (5, True, "cpu")
    # 64·12 + 12, 12·8 + 8, and five heads of 8·2 + 2
    assert result["parameters"] == 780 + 104 + 90
    assert result["learnable"] == result["parameters"] + 5 * 20  # an embedding a unit and task
    assert result["kept"] == 5 * (12 + 8)  # a byte a unit and task


def test_metrics_have_a_line_an_epoch_and_a_line_a_task(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["spec", *["epoch", "epoch", "task"] * 5]
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert [(line["task"], line["epoch"]) for line in epochs] == [(t, e) for t in range(5) for e in (1, 2)]
    assert {"train_loss", "valid_loss", "valid_accuracy", "lr", "s", "capacity", "best"} <= set(epochs[0])
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    result = json.loads((finished / "result.json").read_text())
    assert [line["accuracy"] for line in lines if line["event"] == "task"] == result["accuracy"]


def test_run_prints_plain_lines_and_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *SMALL, "--seed", "1"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "hat on split-digits, net mlp, seed 1, cpu → runs/split-digits-hat-mlp-s1"
    assert [line.split(":")[0] for line in out[1:6]] == [f"task {i + 1}/5 digits {2 * i}-{2 * i + 1}" for i in range(5)]
    for part in ("average accuracy", "forgetting        0.0000", "Capacity used by layer, after 5 tasks:"):
        assert any(line.startswith(part) for line in out)
    assert "Files in runs/split-digits-hat-mlp-s1:" in out
    assert max(map(len, out)) <= 80


@pytest.mark.parametrize("method", ["sgd", "joint", "random"])
def test_methods_without_masks_have_null_where_they_have_no_value(method: str) -> None:
    assert main(["run", *SMALL, "--method", method, "--out", "a"]) == 0
    result = json.loads(Path("a/result.json").read_text())
    assert result["capacity"] is None
    assert result["reuse"] is None
    assert result["guarantee"] is False
    assert not Path("a/masks.safetensors").exists()
    assert Path("a/report.html").exists()


def test_options_and_sets_arrive() -> None:
    words = "run --method sgd --seed 2 --epochs 1 --batch-size 50 --device cpu --set widths=[7] --set lr=.01 --out a"
    assert main(words.split()) == 0
    spec = tomllib.loads(Path("a/spec.toml").read_text())
    assert (spec["method"], spec["seed"], spec["epochs"], spec["batch_size"]) == ("sgd", 2, 1, 50)
    assert (spec["net_options"]["widths"], spec["settings"]["lr"]) == ([7], 0.01)


# ---- mistakes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run --method hatt", "unknown method 'hatt'; did you mean 'hat'? Accepted: "),
        ("run --benchmark digits", "unknown benchmark 'digits'; did you mean "),
        ("run --net mpl", "unknown net 'mpl'; did you mean 'mlp'? Accepted: "),
        ("run --net alexnet", "alexnet takes square pictures of at least 20×20"),
        ("run --sed 1", "unknown option '--sed'; did you mean '--seed'? Accepted: --batch-size, "),
        ("run --seed one", "seed must be a valid integer, got 'one'."),
        ("run --epochs 0", "epochs must be greater than or equal to 1, got 0."),
        ("run --device gpu", "device 'gpu' cannot be used"),
        ("run --set", "Option '--set' requires an argument"),
        ("run --set c", "--set takes key=value, such as --set s_max=400, got 'c'."),
        ("run --set smax=4", "unknown setting 'smax'; did you mean 's_max'? Accepted: "),
        ("run --set s_max=much", "s_max must be a valid number, got 'much'."),
        ("run --set dropout=1.5", "net 'mlp' cannot be built with"),
        ("run --set widths=[0]", "net 'mlp' cannot be built with"),
        ("run --set widths=[-1]", "net 'mlp' cannot be built with"),
        ("run more", "Got unexpected extra argument"),
        ("run --benchmark mixture --data nowhere", "data names"),
        ("rum", "unknown command 'rum'; did you mean 'run'? Accepted: bench, "),
        ("bench stp", "unknown command 'stp'; did you mean 'step'? Accepted: "),
        ("bench --device nonsense step", "device 'nonsense'"),
        (
            "list method",
            "unknown kind 'method'; did you mean 'methods'? Accepted: benchmarks, measures, methods, nets, recipes, "
            "schedulers.",
        ),
        ("resume nowhere", "no run at 'nowhere': there is no such folder."),
        ("verify nowhere", "no run at 'nowhere': there is no such folder."),
        ("report nowhere", "no run at 'nowhere': there is no such folder."),
        ("resume", "Missing argument 'RUN'."),
        (f"run --seed {'9' * 5000}", "seed must be finite, got inf."),
        (f"run --seeds {'9' * 5000}", "--seeds takes numbers and ranges such as 0-7 or 0,3,5; got '999"),
        ("run --seeds 0-9999999999", "--seeds takes at most 10000 seeds, got '0-9999999999'."),
        (f"run --set widths={'[' * 5000}", "widths must be a list such as [1, 2], got '[[["),
        ("run --set benchmark=[1]", "benchmark must be a valid string, got [1]."),
        ("run --device privateuseone", "device 'privateuseone' cannot be used"),
        ("run --data ~nobody-of-this-name/x", "data names the home of a user that is not known here"),
        ("run --benchmark sequence --set file=~nobody-of-this-name/x", "file names the home of a user"),
        ("run --benchmark sequence --set file=a\0b", "file must not hold a zero byte, got 'a\\x00b'."),
        (f"run --out {'a/' * 1500}b", "cannot make the run folder 'a/a/"),
        ("explain mlp --shape 999999,999999,999999", "no mlp for inputs of '999999,999999,999999': "),
        ("explain mlp --shape 99999999999", "no mlp for inputs of '99999999999': "),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str], words: str, says: str
) -> None:
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hatrack: {says}")
    assert err.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_an_existing_run_is_never_written_over(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()}
    assert main(["run", *SMALL, "--seed", "9", "--out", str(finished)]) == 2
    assert f"hatrack resume {finished}" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()} == before


# ---- the other commands


def test_resume_of_a_finished_run_shows_it_again(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (finished / "result.json").read_bytes()
    assert main(["resume", str(finished)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("This run was already finished.\n\nTest accuracy")
    assert (finished / "result.json").read_bytes() == before


def test_verify_of_a_good_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(finished)]) == 0
    assert capsys.readouterr().out.count("unchanged") == 5


def test_verify_of_a_run_made_on_a_device_that_is_not_here(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "moved")
    spec = tmp_path / "moved" / "spec.toml"
    text = spec.read_text()
    spec.write_text(text.replace('device = "cpu"', 'device = "cuda:9"').replace('engine = "eager"', 'engine = "graph"'))
    assert spec.read_text() != text
    page = tmp_path / "moved" / "checkpoint" / "learner.json"
    digest = sha256(spec.read_bytes()).hexdigest()
    edited(page, lambda said: said["run"].update({"spec.toml": digest}))  # as if it had been written there
    assert main(["verify", str(tmp_path / "moved")]) == 0


def test_verify_finds_what_sgd_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *SMALL, "--method", "sgd", "--out", "a"]) == 0
    capsys.readouterr()
    assert main(["verify", "a"]) == 1
    assert "CHANGED" in capsys.readouterr().out


def test_report_is_written_again(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (finished / "report.html").read_bytes()
    (finished / "report.html").unlink()
    assert main(["report", str(finished)]) == 0
    assert capsys.readouterr().out == f"{finished}/report.html\n"
    assert (finished / "report.html").read_bytes() == page


@pytest.mark.parametrize(
    ("kind", "some", "keys"),
    [
        ("methods", {"hat", "sgd", "joint", "random"}, {"name", "summary", "guarantee", "settings"}),
        ("benchmarks", {"split-digits", "mixture"}, {"name", "summary", "needs_data", "defaults", "settings"}),
        ("nets", {"mlp", "alexnet"}, {"name", "summary", "settings"}),
        ("schedulers", {"patience", "cosine", "onecycle", "constant"}, {"name", "summary"}),
        ("measures", {"acc", "rho", "kept"}, {"name", "summary", "title", "meaning", "forms", "against", "unit"}),
    ],
)
def test_list(capsys: pytest.CaptureFixture[str], kind: str, some: set[str], keys: set[str]) -> None:
    assert main(["list", kind, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert some <= {entry["name"] for entry in entries}
    assert all(keys <= set(entry) for entry in entries)
    assert main(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert some <= {line.split()[0] for line in lines}
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    "columns", ["1", "x", *(pytest.param(n, marks=pytest.mark.slow) for n in ("10", "-5", "1000"))]
)
def test_list_on_any_terminal(columns: str, monkeypatch: pytest.MonkeyPatch, finished: Path) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert [
        main(["list", kind]) for kind in ("methods", "benchmarks", "nets", "measures", "schedulers", "recipes")
    ] == [0] * 6
    assert main(["resume", str(finished)]) == 0


def test_list_names_every_setting_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", "methods", "--json"])
    hat = next(entry for entry in json.loads(capsys.readouterr().out) if entry["name"] == "hat")
    c = next(setting for setting in hat["settings"] if setting["name"] == "c")
    assert (c["type"], c["default"], c["low"]) == ("float", 0.75, 0.0)
    main(["list", "nets"])
    assert "widths=[2000,2000]" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--help"], ["bench", "--help"], ["run", "--help"]])
def test_help(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("Usage: hatrack")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_bench_makes_the_table_of_the_device(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    import torch

    from hatrack.bench import cpu, speed
    from hatrack.learn import core

    monkeypatch.setattr(core, "pick_device", torch.device)
    monkeypatch.setattr(cpu, "cpu_table", lambda device: f"cpu_table on {device}")
    monkeypatch.setattr(speed, "speed_table", lambda device: f"speed_table on {device}")
    assert main(["bench", "--device", kind]) == 0
    assert capsys.readouterr().out == {"cpu": "cpu_table on cpu\n", "cuda": "speed_table on cuda\n"}[kind]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hatrack {__version__}\n"


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    script = (
        "import sys; import hatrack; before = set(sys.modules); import hatrack.cli;"
        "new = {m.split('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(new & {'torch', 'pydantic', 'rich', 'sklearn', 'matplotlib', 'safetensors'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- logging


def test_loggers_write_into_the_run_and_those_there_are_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    assert main(["run", *SMALL, "--log", "tensorboard", "--tensorboard", "--out", "a"]) == 0
    assert len([*Path("a/tensorboard").iterdir()]) == 1
    assert main(["verify", "a"]) == 0
    for words in (["run", "--out", "b"], ["resume", "a"], ["study", "hat-mnist2", "--out", "b"]):
        capsys.readouterr()
        assert main([*words, "--log", "tensorbored"]) == 2
        assert "unknown logger 'tensorbored'; did you mean 'tensorboard'?" in capsys.readouterr().err
    assert not Path("b").exists()


# ---- interruption


def test_ctrl_c_says_how_to_go_on_and_resume_does(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--epochs", "15", "--set", "widths=[12, 8]", "--set", "lr_patience=15", "--out", "a"]
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    deadline = time.monotonic() + 60
    while not Path("a/checkpoint/learner.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "hatrack: stopped; to go on: hatrack resume a\n"
    assert not Path("a/result.json").exists()
    assert main(["resume", "a"]) == 0
    assert "(resumed: " in capsys.readouterr().out
    assert Path("a/result.json").exists()
    assert main(["verify", "a"]) == 0


@pytest.mark.parametrize(
    ("words", "where"), [(["run"], "hatrack.runs.spec.resolve"), (["list", "methods"], "hatrack.show.lists.text")]
)
def test_ctrl_c_before_anything_has_begun_leaves_nothing(
    words: list[str], where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupt)
    assert main(words) == 130
    assert capsys.readouterr().err.strip() == ""
    assert list(Path().iterdir()) == []


def test_a_run_in_use_is_left_alone(capsys: pytest.CaptureFixture[str], finished: Path) -> None:
    from hatrack.runs.folder import open_run

    with open_run(finished):
        assert main(["resume", str(finished)]) == 2
    assert "is in use by another hatrack process" in capsys.readouterr().err
