"""The study file: what it gives, and what is said about mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.errors import HatrackError
from hatrack.studies.file import parse, read

WHOLE = """
title = "A study"
source = "A paper"
seeds = [3, 4]
benchmarks = ["split-digits", "short"]
methods = ["hat", "plain", "search"]
measures = ["acc", "rho@2"]

[shared]
epochs = 3

[benchmark.short]
use = "permuted-digits"
tasks = 2

[method.plain]
use = "sgd"
lr = 0.1

[method.plain.on.short]
lr = 0.2

[method.search]
use = "hat"
hard = false

[method.search.grid]
c = [0.5, 1]
s_max = [100, 200]

[paper]
within = 0.02

[paper.acc.short]
hat = [0.9, 0.03]
plain = 0.8
CAB = 0.7
"""


def test_a_whole_file() -> None:
    study = parse(WHOLE, "name")
    assert (study.name, study.title, study.source, study.seeds) == ("name", "A study", "A paper", [3, 4])
    assert [(b.label, b.name, b.settings) for b in study.benchmarks] == [
        ("split-digits", "split-digits", {}),
        ("short", "permuted-digits", {"tasks": 2}),
    ]
    assert [m.label for m in study.methods] == [
        "hat",
        "plain",
        "search c=0.5 s_max=100",
        "search c=0.5 s_max=200",
        "search c=1 s_max=100",
        "search c=1 s_max=200",
    ]
    assert study.methods[1].on == {"short": {"lr": 0.2}}
    assert study.methods[3].point == {"c": 0.5, "s_max": 200}
    assert study.methods[3].settings == {"hard": False}
    assert [m.text for m in study.measures] == ["acc", "rho@2"]
    figure = study.figures["acc", "short", "hat"]
    assert (figure.mean, figure.std, figure.half) == (0.9, 0.03, 0.06)
    assert study.figures["acc", "short", "plain"].half == 0.02
    assert ("acc", "short", "CAB") in study.figures


def test_some_methods_and_other_seeds() -> None:
    study = parse(WHOLE, "name")
    part = study.with_settings({"epochs": 1}).narrowed(["plain"], [7])
    assert part.changes == ("epochs = 1", "only plain", "seeds 7")
    assert part.shared == {"epochs": 1}
    assert {label for _, _, label in part.figures} == {"plain", "CAB"}  # hat is left out, CAB is the paper's alone
    assert study.narrowed(None, [3, 4]).changes == ()
    assert [m.label for m in study.narrowed(["plain"], [7]).methods] == ["plain"]
    assert study.narrowed(["plain"], [7]).seeds == [7]
    assert len(study.narrowed(["search"], None).methods) == 4
    with pytest.raises(HatrackError, match="unknown method of study 'name' 'plane'; did you mean 'plain'"):
        study.narrowed(["plane"], None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed = [1]", "unknown key 'seed'; did you mean 'seeds'"),
        ("benchmarks = ['split-digits']", "methods must be a list of one name or more, got None"),
        ("benchmarks = ['split-digits']\nmethods = ['hatt']", "unknown method 'hatt'; did you mean 'hat'"),
        ("benchmarks = ['digits']\nmethods = ['hat']", "unknown benchmark 'digits'"),
        ("benchmarks = ['split-digits']\nmethods = ['hat', 'hat']", "methods holds a name twice: .* \\(use = NAME\\)"),
        ("measures = ['acc', 'acc']", "measures holds a name twice: .*; list it once.$"),
        ("seeds = [0, 0]", "seeds must be a list of different whole numbers"),
        ("seeds = [-1]", "seeds must be a list of different whole numbers"),
        ("seeds = true", "seeds must be a list of different whole numbers"),
        ("measures = ['acck']", "unknown measure 'acck'"),
        ("title = 3", "title must be text, got 3"),
        ("[shared]\nseed = 1", "shared cannot hold 'seed'; list it in seeds"),
        ("[shared]\nnet.widths = [9]", 'shared: TOML reads net.widths as a table; write "net.widths" in quotes'),
        ("[method.sgd]\nlr = 1", r"\[method.sgd\] is described but not listed"),
        ("[method.hat.on.mnist2]\nlr = 1", "unknown benchmark of this study 'mnist2'"),
        ("[method.hat.grid]\nc = 1", "method.hat.grid: c must be a list of values, got 1"),
        ("[paper.acc.mnist2]\nhat = 1", "unknown benchmark in paper.acc 'mnist2'"),
        ("[paper.acc.split-digits]\nhat = 'good'", "must be a mean, or .mean, standard deviation., got 'good'"),
        ("[paper]\nwithin = -1", "paper.within must be a number from 0 to 1e.15 or 'order', got -1"),
        ("[paper]\nwithin = nan", "paper.within must be a number from 0 to 1e.15 or 'order', got nan"),
        ("[paper]\nwithin = inf", "paper.within must be a number from 0 to 1e.15 or 'order', got inf"),
        (
            "[paper.acc]\nwithin = 'narrow'",
            "paper.acc.within must be a number from 0 to 1e.15 or 'order', got 'narrow'",
        ),
        ("[paper.acc.split-digits]\nhat = {mean = 1, band = 2}", "unknown key of paper.acc.split-digits.hat 'band'"),
        ("[paper.acc.average]\nhat = 1", "unknown benchmark in paper.acc 'average'"),
        ("[paper.acc.split-digits]\nhat = nan", "at most 1e.15, its standard deviation at least 0, got nan"),
        (
            "[paper.acc.split-digits]\nhat = [1, 1e308]",
            "at most 1e.15, its standard deviation at least 0, got .1, 1e.308.",
        ),
        ("[paper.acc.split-digits]\nhat = [0.5, -0.1]", "at most 1e.15, its standard deviation at least 0"),
        ("[method.hat]\nseed = 1", "method.hat cannot hold 'seed'; list it in seeds"),
        ("[method.hat]\nuse = ['sgd']", "unknown method of 'hat'"),
        ("[method.hat.grid]\nc = [1, 1.0]", "method.hat.grid holds a point twice"),
        ("= 3", "study 'name': "),
    ],
)
def test_a_mistake_is_one_line(text: str, says: str) -> None:
    start = "" if "benchmarks" in text else "benchmarks = ['split-digits']\nmethods = ['hat']\n"
    with pytest.raises(HatrackError, match=says):
        parse(start + text, "name")


def test_points_of_a_grid_that_look_alike_get_labels_of_their_own() -> None:
    start = "benchmarks = ['split-digits']\nmethods = ['ewc']\n[method.ewc.grid]\nlam = [1000001.0, 1000002.0]"
    assert [m.label for m in parse(start, "name").methods] == ["ewc lam=1000001.0", "ewc lam=1000002.0"]


def test_what_the_file_lists_cannot_be_set() -> None:
    with pytest.raises(HatrackError, match="--set cannot hold 'seed'; list it in seeds"):
        parse(WHOLE, "name").with_settings({"seed": 1})


def test_a_setting_of_the_command_says_which_sections_keep_their_own() -> None:
    study = parse(WHOLE, "name")
    assert study.with_settings({"lr": 0.1}).changes == ("lr = 0.1 except in [method.plain], [method.plain.on.short]",)
    assert study.with_settings({"c": 2.0}).changes == ("c = 2.0 except in [method.search.grid]",)
    assert study.narrowed(["hat"], None).with_settings({"c": 2.0}).changes == ("only hat", "c = 2.0")


def test_a_setting_of_the_command_that_reaches_no_run_is_refused() -> None:
    study = parse(WHOLE, "name").narrowed(["search"], None)
    with pytest.raises(HatrackError, match=r"--set c reaches no run: .* its own c in \[method.search.grid\]"):
        study.with_settings({"c": 2.0})


def test_both_names_of_a_setting_are_one_for_the_command() -> None:
    study = parse(WHOLE, "name")
    assert study.with_settings({"method.lr": 0.1}).changes == (
        "method.lr = 0.1 except in [method.plain], [method.plain.on.short]",
    )
    assert study.with_settings({"benchmark.tasks": 3}).changes == ("benchmark.tasks = 3 except in [benchmark.short]",)
    with pytest.raises(HatrackError, match=r"--set method.c reaches no run: .* in \[method.search.grid\]"):
        study.narrowed(["search"], None).with_settings({"method.c": 2.0})


@pytest.mark.parametrize(("inside", "given"), [("net.widths", "widths"), ("widths", "net.widths")])
def test_a_shared_setting_gives_way_to_the_command_under_either_name(inside: str, given: str) -> None:
    study = parse(f'benchmarks = ["split-digits"]\nmethods = ["hat"]\n[shared]\n"{inside}" = [10]', "name")
    assert study.with_settings({given: [60]}).shared == {given: [60]}


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"title = '\xff\xfe'")
    with pytest.raises(HatrackError, match="is not text in UTF-8"):
        read(tmp_path / "binary.toml")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(HatrackError, match=r"the study file 'nowhere.toml' cannot be read"):
        read(Path("nowhere.toml"))
