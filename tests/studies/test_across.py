"""Methods × benchmarks with the average, and the paper's order, against results worked out by hand."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from hatrack.runs.spec import resolve
from hatrack.studies.across import across, page_section
from hatrack.studies.execute import Outcome
from hatrack.studies.export import latex, runs_csv, table_csv
from hatrack.studies.file import parse
from hatrack.studies.findings import Finding
from hatrack.studies.order import order
from hatrack.studies.plan import Planned
from hatrack.studies.table import tables
from hatrack.studies.text import summary

TEXT = """
title = "Two benchmarks"
seeds = [0, 1]
benchmarks = ["split-digits", "permuted-digits"]
methods = ["hat", "ewc", "sgd"]
measures = ["acc", "bwt"]
[paper]
within = 0.02
[paper.acc.split-digits]
hat = [0.9, 0.01]
ewc = 0.8
PNN = 0.7
[paper.acc.permuted-digits]
hat = 0.6
ewc = 0.7
sgd = 0.5
[paper.acc.average]
hat = 0.75
[paper.bwt]
within = "order"
[paper.bwt.split-digits]
hat = -0.1
ewc = -0.2
sgd = 0.0
[scale.small]
seeds = [0]
"""
ACC = {
    ("split-digits", "hat"): (0.9, 0.92),
    ("split-digits", "ewc"): (0.95, 0.97),
    ("permuted-digits", "hat"): (0.5, 0.6),
    ("permuted-digits", "ewc"): (0.4, 0.4),
    ("permuted-digits", "sgd"): (0.3, 0.3),
}
BWT = {"hat": -0.3, "ewc": 0.1, "sgd": 0.0}


def made(scale: str = "") -> Outcome:
    """Return what the study would find; sgd has no finished run on split-digits."""
    study = parse(TEXT, "made-up", scale=scale)
    findings = []
    for benchmark in study.benchmarks:
        for method in study.methods:
            for seed in study.seeds:
                spec = resolve({"method": method.name, "benchmark": benchmark.name, "seed": seed, "device": "cpu"})
                run = Planned(benchmark.label, method.label, spec, Path("runs") / f"{method.label}-{seed}", ())
                found = ACC.get((benchmark.label, method.label))
                metrics = None if found is None else {"acc": found[seed], "bwt": BWT[method.label]}
                result = {"accuracy": [[1.0]], "metrics": metrics, "device": "cpu", "seconds": 1.0}
                findings.append(Finding(run, None if metrics is None else result))
    return Outcome(study, findings, {})


def test_a_table_a_measure_with_the_average() -> None:
    outcome = made()
    acc, _ = across(outcome, tables(outcome))
    assert acc.lines() == [
        ["acc", "split-digits", "permuted-digits", "average"],
        ["hat", "0.9100 ± 0.0141", "0.5500 ± 0.0707", "0.7300"],
        ["hat, paper", "0.9 ± 0.01", "0.6", "0.75"],
        ["ewc", "0.9600 ± 0.0141", "0.4000 ± 0.0000", "0.6800"],
        ["ewc, paper", "0.8", "0.7", "–"],
        ["sgd", "–", "0.3000 ± 0.0000", "–"],  # no average of what is not there
        ["sgd, paper", "–", "0.5", "–"],
        ["PNN, paper", "0.7", "–", "–"],
    ]
    assert acc.lines(deviations=False)[1:3] == [
        ["hat", "0.9100", "0.5500", "0.7300"],
        ["hat, paper", "0.9", "0.6", "0.75"],
    ]


def test_one_benchmark_has_none() -> None:
    outcome = made()
    assert across(outcome, tables(outcome)[:1]) == []


def test_it_stands_on_terminal_page_csv_and_latex() -> None:
    outcome = made()
    one, over = tables(outcome), across(outcome, tables(outcome))
    assert "acc         split-digits  permuted-digits  average\nhat               0.9100" in summary(
        outcome, Path("out")
    )
    assert "<th>hat, paper</th>" in page_section(outcome)
    assert "average</th>" in page_section(outcome)
    lines = list(csv.DictReader(io.StringIO(table_csv(one, over))))
    [line] = [x for x in lines if (x["benchmark"], x["method"], x["measure"]) == ("average", "hat", "acc")]
    assert (float(line["mean"]), line["paper_mean"], line["verdict"]) == (pytest.approx(0.73), "0.75", "")
    assert [x["method"] for x in lines if x["benchmark"] == "average" and x["measure"] == "acc"] == ["hat", "ewc"]
    text = latex(one, "title", over)
    assert text.count(r"\begin{tabular}") == 4
    assert r"hat & $0.910 \pm 0.014$ & $0.550 \pm 0.071$ (below) & $0.730$ \\" in text
    assert r"hat, paper & $0.9 \pm 0.01$ & $0.6$ & $0.75$ \\" in text


def test_order_and_sign_where_there_is_no_band() -> None:
    """bwt on split-digits: hat < ewc where the paper has hat > ewc; of two signs, hat's alone is the paper's."""
    outcome = made()
    assert str(order(tables(outcome))) == (
        "0 of 1 pair of methods in the paper’s order, 1 of 2 figures with the paper’s sign."
    )


def test_a_smaller_form_is_held_against_order_and_sign_alone() -> None:
    """acc: split-digits ewc > hat (the paper: hat); permuted-digits hat > ewc > sgd (the paper: ewc > hat > sgd)."""
    outcome = made("small")
    one = tables(outcome)
    assert not any(cell.verdict for table in one for row in table.rows for cell in row.cells.values())
    assert not any(table.paper(measure) for table in one for measure in table.measures)
    assert str(order(one)) == "2 of 5 pairs of methods in the paper’s order, 1 of 2 figures with the paper’s sign."
    said = summary(outcome, Path("out"))
    assert "Two benchmarks (scaled) (changed: scaled by [scale.small]: seeds 0)" in said
    assert "2 of 5 pairs" in said
    assert " band" not in said
    assert "  average (scaled)" in said
    for text in (said, table_csv(one), latex(one, "title"), page_section(outcome)):
        assert "split-digits (scaled)" in text
    assert "split-digits (scaled)," in runs_csv(outcome, Path("."))
