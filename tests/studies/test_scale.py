"""Smaller forms of a study: what stays of its file, and what is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.errors import HatrackError
from hatrack.studies.file import parse
from hatrack.studies.plan import Places, plan

TEXT = """
title = "A study"
notes = "All of it."
seeds = [0, 1, 2]
benchmarks = ["split-digits", "permuted"]
methods = ["hat", "plain", "ewc"]
measures = ["acc", "rho"]
[shared]
"net.widths" = [400, 400]
epochs = 100
[benchmark.permuted]
use = "permuted-digits"
tasks = 10
[method.hat]
c = 0.5
[method.plain]
use = "sgd"
[method.plain.on.permuted]
lr = 0.5
[method.plain.on.split-digits]
lr = 0.25
[method.ewc.grid]
lam = [1.0, 10.0]
[paper]
within = 0.01
[paper.acc.permuted]
hat = 0.9
plain = 0.5
[paper.acc.split-digits]
hat = 0.8
[paper.acc.average]
hat = 0.85
[scale.small]
notes = "Fewer and smaller."
seeds = [0]
methods = ["hat", "plain"]
benchmarks = ["permuted"]
[scale.small.shared]
widths = [20]
[scale.small.benchmark.permuted]
tasks = 3
[scale.small.method.plain]
epochs = 7
[scale.tiny]
methods = ["ewc"]
[scale.tiny.method.ewc.grid]
lam = [5.0]
"""


def test_what_is_replaced_and_what_stays() -> None:
    study = parse(TEXT, "whole", scale="small")
    assert (study.name, study.title, study.scale) == ("whole-small", "A study (scaled)", "small")
    assert study.notes == "Scaled: Fewer and smaller. At full size: All of it."
    assert study.seeds == [0]
    assert [m.text for m in study.measures] == ["acc", "rho"]
    runs = {run.method: run.spec for run in plan(study, Places(Path("own"), Path("shared")), "cpu").runs}
    assert {label: spec.epochs for label, spec in runs.items()} == {"hat": 100, "plain": 7}
    assert {spec.benchmark_options["tasks"] for spec in runs.values()} == {3}
    assert [spec.net_options["widths"] for spec in runs.values()] == [[20], [20]]
    assert runs["plain"].settings["lr"] == 0.5
    assert runs["hat"].settings["c"] == 0.5
    assert study.changes == (
        "scaled by [scale.small]: seeds 0; methods hat, plain; benchmarks permuted; widths = [20]; "
        "permuted: tasks = 3; plain: epochs = 7",
    )


def test_figures_of_what_is_left_and_none_has_a_band() -> None:
    study = parse(TEXT, "whole", scale="small")
    assert set(study.figures) == {("acc", "permuted", "hat"), ("acc", "permuted", "plain")}
    assert all(figure.band is None for figure in study.figures.values())


def test_the_whole_study_is_untouched() -> None:
    study = parse(TEXT, "whole")
    assert (study.name, study.scale, study.scales) == ("whole", "", ("small", "tiny"))
    assert study.figures["acc", "permuted", "hat"].band == pytest.approx((0.89, 0.91))


def test_a_grid_is_replaced() -> None:
    assert [m.label for m in parse(TEXT, "whole", scale="tiny").methods] == ["ewc lam=5"]


@pytest.mark.parametrize(
    ("text", "scale", "says"),
    [
        (TEXT, "smal", "unknown scale 'smal'; did you mean 'small'"),
        (TEXT.split("[scale.small]")[0], "small", r"the file has no smaller form; write one as \[scale.small\]"),
        (TEXT + "[scale.odd]\nepochs = 3", "odd", r"unknown key of \[scale.odd\] 'epochs'"),
        (TEXT.split("[scale.small]")[0] + "[scale]\nsmall = 1", "small", "scale must hold a table"),
    ],
)
def test_a_mistake_is_one_line(text: str, scale: str, says: str) -> None:
    with pytest.raises(HatrackError, match=says):
        parse(text, "whole", scale=scale)
