"""Files of a run that are not what a run writes: one line that names the file, or an answer; never a traceback."""

from __future__ import annotations

import json
import shutil
import tomllib
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from hatrack.cli import main
from hatrack.errors import HatrackError
from hatrack.measure import MEASURES
from hatrack.report.page import page
from hatrack.report.read import read
from hatrack.runs import toml
from hatrack.runs.records import Records
from hatrack.runs.references import complete, completed, read_result
from hatrack.runs.spec import read as read_spec
from hatrack.show.summary import summary
from hatrack.studies.execute import Outcome
from hatrack.studies.export import latex, runs_csv, table_csv
from hatrack.studies.file import parse
from hatrack.studies.findings import diverged, gather, without_value
from hatrack.studies.page import page as study_page
from hatrack.studies.plan import Plan, Planned
from hatrack.studies.table import tables
from hatrack.studies.text import summary as study_text

WRONG = (None, True, -1, 0, 0.5, 7, 10**400, 1e300, 5e-324, "", "x", "\ud800", [], [None], [[0.5]], {}, {"x": [1]})
RAW = ("", "{", "null", "[]", "3", '"x"', "NaN", "[" * 100_000, "1" * 5000, "\ufeff{}", '{"x": 1}', "\0")
Place = tuple[Any, ...]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small finished run as version 0.1 left it, without seals; tests that change it work on a copy."""
    path = tmp_path_factory.mktemp("broken") / "run"
    assert main(["run", "--epochs", "1", "--set", "widths=[6]", "--out", str(path)]) == 0
    for name in ("result.json", "metrics.jsonl"):
        whole = (path / name).read_text()
        texts = whole.splitlines() if name == "metrics.jsonl" else [whole]
        bare = ({k: v for k, v in json.loads(text).items() if k not in ("sha256", "verified")} for text in texts)
        (path / name).write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in bare))
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def places(value: Any, before: Place = ()) -> Iterator[Place]:
    """Yield the places of all values within one, the first and the last of what a list holds."""
    yield before
    inner = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, item in inner if isinstance(value, dict) else dict([*inner[:1], *inner[-1:]]).items():
        yield from places(item, (*before, key))


def wrongs(document: Any) -> Iterator[tuple[Place, Any]]:
    """Yield the document with every value wrong in every way, and without it."""
    for place in places(document):
        for value in WRONG:
            holder, inner = _copied(document, place)
            inner[("", *place)[-1]] = value
            yield place, holder[""]
        holder, inner = _copied(document, place)
        if place:
            del inner[place[-1]]
            yield place, holder[""]


def _copied(document: Any, place: Place) -> tuple[dict[str, Any], Any]:
    """Return a copy below the key "", and what holds the place in it."""
    holder = {"": deepcopy(document)}
    inner: Any = holder
    for step in ("", *place)[:-1]:
        inner = inner[step]
    return holder, inner


def answers(act: Callable[[], Any], named: Path) -> bool:
    """Return whether there is an answer; if there is none, one line names the file."""
    line = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            act()
    except HatrackError as error:
        line = " ".join(str(error).split())
    assert line is None or (str(named) in line and len(line) < 600)
    return line is None


STUDY = parse(
    'benchmarks = ["split-digits"]\nmethods = ["hat"]\nseeds = [0]\nmeasures = [\n"acc@2", "acc1@2", "acc@half", '
    '"rho@2", "fwt@2", "bwt@1", "acc_weighted@3", "capacity:fc1@1", "blocked@2", "F-each@2", '
    + ", ".join(f'"{name}"' for name in MEASURES)
    + "]",
    "made-up",
)


def shown(run: Path) -> None:
    """Do all that is done with the result of a finished run, but for drawing."""
    summary(read_result(run), run)
    completed(run, [])
    read(run)


def study(run: Path, told: list[str], drawing: bool = False) -> str:
    """Do all that a study does with a run."""
    planned = Planned("split-digits", "hat", read_spec(run / "spec.toml"), run, (run,))
    findings = gather(Plan([planned], {}), run.parent / "runs", {}, told.append)
    told += without_value(STUDY.measures, findings)
    outcome = Outcome(STUDY, findings, {}, diverged([run], told.append))
    made = tables(outcome)
    whole = [study_text(outcome, run), table_csv(made), runs_csv(outcome, run), latex(made, "x")]
    return "".join([*whole, study_page(outcome) if drawing else ""])


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])  # of 18 ways, so that each comes
def test_every_value_of_the_result(run: Path, step: int) -> None:
    path = run / "result.json"
    document = json.loads(path.read_text())
    seen = [0, 0]
    for place, wrong in islice(wrongs(document), None, None, step):
        path.write_text(json.dumps(wrong))
        good = answers(lambda: shown(run), path)
        seen[good] += 1
        if good or seen[False] % 20 == 0:
            told: list[str] = []
            assert study(run, told).encode()
            assert good or any(str(path) in line for line in told), place
    assert min(seen) > 100  # both happen


@pytest.mark.slow
def test_reports_of_wrong_results_can_be_drawn(run: Path) -> None:
    path = run / "result.json"
    drawn = 0
    for _, wrong in islice(wrongs(json.loads(path.read_text())), None, None, 41):  # of 18 ways, so that each comes
        path.write_text(json.dumps(wrong))
        if answers(lambda: read(run), path):
            drawn += 1
            assert page(read(run)).encode()
            assert study(run, [], drawing=True).encode()
    assert drawn > 5


def test_the_result_serves_nobody_when_it_is_wrong(run: Path, tmp_path: Path) -> None:
    reference = Path(shutil.copytree(run, tmp_path / "sgd"))
    path = reference / "result.json"
    document = json.loads(path.read_text())
    document["spec"]["method"] = "sgd"
    path.write_text(json.dumps(document))
    assert complete(run, [reference])["metrics"]["ncl"] == 0
    for _, wrong in wrongs(document):
        path.write_text(json.dumps(wrong))
        answers(lambda: completed(run, [reference]), reference)


def test_every_value_of_the_records(run: Path) -> None:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines()
    seen = [0, 0]
    for number in (0, 1, 2, len(lines) - 1):
        for _, wrong in wrongs(json.loads(lines[number])):
            path.write_text("\n".join([*lines[:number], json.dumps(wrong), *lines[number + 1 :]]) + "\n")
            seen[answers(lambda: read(run), path)] += 1
            seen[answers(lambda: _records(path), path)] += 1
    assert min(seen) > 100


def _records(path: Path) -> None:
    records = Records(path)
    try:
        assert records.seconds >= -1e15
        assert [len(line["accuracy"]) for line in records.tasks()] == list(range(1, len(records.tasks()) + 1))
        answers(lambda: records.start({"seed": 0}), Path())
    finally:
        records.close()


def test_every_value_of_the_spec(run: Path) -> None:
    path = run / "spec.toml"
    document = tomllib.loads(path.read_text())
    for _, wrong in wrongs(document):
        if isinstance(wrong, dict):
            try:
                path.write_text(toml.dumps(wrong))
            except UnicodeEncodeError:
                continue
            answers(lambda: read_spec(path, anywhere=True), path)
            answers(lambda: read(run), path)


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "spec.toml", "masks.safetensors"])
@pytest.mark.parametrize("how", [*range(len(RAW)), "directory", "bytes", "long", "utf-16", "half", "without end"])
def test_every_file(run: Path, capsys: pytest.CaptureFixture[str], name: str, how: int | str) -> None:
    path = run / name
    whole = path.read_bytes()
    path.unlink()
    if how == "directory":
        path.mkdir()
    elif isinstance(how, int):
        path.write_text(RAW[how])
    else:
        long = b'{"x": "' + b"a" * 20_000_000 + b'"}\n'
        texts = {"bytes": b"\xff\xfe\x80", "long": long, "utf-16": b"\xff\xfe" + b"{\0}\0\n\0", "half": whole[:-9]}
        path.write_bytes(texts.get(str(how), whole.rstrip()))
    for words in (["report", str(run)], ["resume", str(run)]):
        code = main(words)
        err = capsys.readouterr().err
        assert code in (0, 1, 2, 3)
        if code:
            assert err.startswith("hatrack: ")
            assert err.count("\n") == 1
            assert name in err
            assert len(err) < 700
    assert not list(run.glob(".*.tmp"))


def test_a_line_of_records_may_hold_any_letter(run: Path) -> None:
    path = run / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    whole = len(read(run).epochs)
    for line in lines:
        if "name" in line:
            line["name"] = "a\u2028b\x85c\x1ed\x0c"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    assert len(read(run).epochs) == whole
    _records(path)


def test_a_ratio_without_any_value_is_not_drawn(run: Path) -> None:
    path = run / "result.json"
    document = json.loads(path.read_text())
    document["metrics"]["rho_each"] = [None] * 5
    path.write_text(json.dumps(document))
    assert "Forgetting ratio" not in page(read(run))
