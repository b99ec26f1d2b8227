"""CSV reads back as it was, and LaTeX compiles in the eyes of a strict reader."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from hatrack.studies.export import csv_text, latex, runs_csv, table_csv
from hatrack.studies.table import tables
from hatrack.studies.text import summary
from hatrack.visible import visible

from .made_up import TEXT, outcome


def test_the_table_reads_back(tmp_path: Path) -> None:
    made = tables(outcome(tmp_path))
    lines = list(csv.DictReader(io.StringIO(table_csv(made))))
    assert len(lines) == 4 * 3
    hat = next(line for line in lines if (line["method"], line["measure"]) == ("hat", "acc"))
    cell = made[0].rows[0].cells["acc"]
    assert float(hat["mean"]) == cell.mean
    assert float(hat["std"]) == cell.std
    assert (hat["paper_mean"], hat["paper_std"], hat["verdict"], hat["seeds"]) == ("0.97", "0.01", "within", "3")
    assert (float(hat["band_low"]), float(hat["band_high"])) == pytest.approx((0.95, 0.99))
    cab = next(line for line in lines if (line["method"], line["measure"]) == ("CAB", "acc"))
    assert (cab["mean"], cab["paper_mean"], cab["seeds"]) == ("", "0.93", "0")


def test_every_run_is_listed(tmp_path: Path) -> None:
    made = outcome(tmp_path, failed=(("ewc", 2),))
    lines = list(csv.DictReader(io.StringIO(runs_csv(made, tmp_path))))
    assert [(line["method"], line["seed"]) for line in lines] == [
        (m, str(s)) for m in ("hat", "ewc", "sgd") for s in range(3)
    ]
    assert lines[0]["folder"] == "runs/hat-0"
    assert (lines[5]["acc"], lines[5]["reason"]) == ("", "it was <unlucky>.")
    assert float(lines[0]["memory"]) == 3 * 2**20


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_is_a_formula(start: str) -> None:
    text = csv_text(["a", f"{start}h"], [[f"{start}1+1", -1.5], ["a-b", -2], [None, f"{start}"]])
    shown = visible(start)  # a bare return would begin a line of its own
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["a", f"'{shown}h"],
        [f"'{shown}1+1", "-1.5"],
        ["a-b", "-2"],
        ["", f"'{shown}"],
    ]


def test_labels_of_a_study_are_no_formulas_and_no_latex(tmp_path: Path) -> None:
    label = "=cmd|' /C calc'!A0"
    quoted = f'"{label}"'
    evil = TEXT.replace('"ewc"', quoted).replace("[paper]", f'[method.{quoted}]\nuse = "ewc"\n[paper]', 1)
    made = outcome(tmp_path, evil)
    for text in (table_csv(tables(made)), runs_csv(made, tmp_path)):
        cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
        assert f"'{label}" in cells
        assert not any(cell.startswith(("=", "+", "@")) for cell in cells)
    starred = latex(tables(outcome(tmp_path / "b", TEXT.replace("CAB", '"[*]"'))), "a\n\\input{x}\u2028\\x")
    assert starred.splitlines()[0] == "% a \\input{x} \\x"
    assert "\n{[}{*}{]} & " in starred  # behind \\ a bare [ would be its argument


def test_latex(tmp_path: Path) -> None:
    text = latex(tables(outcome(tmp_path)), "50 % & more")
    assert text.count(r"\begin{tabular}{lrrrr}") == text.count(r"\end{tabular}") == 1
    body = text.split("\\hline\n")
    heads = body[1].removesuffix("\\\\\n").split("&")
    assert [head.strip(" \\\n") for head in heads] == ["split-digits", "acc", "paper", "rho", "rho@2"]
    for line in body[2].strip().splitlines():
        assert line.count("&") == 4
        assert line.endswith(r"\\")
        assert line.count("$") % 2 == 0
        assert not re.search(r"[±−–]", line)
    assert r"sgd & $0." in body[2]
    assert "(above)" in body[2]


def test_the_terminal_table_is_aligned(tmp_path: Path) -> None:
    text = summary(outcome(tmp_path, failed=(("ewc", 2),)), tmp_path)
    head, *rows = text.split("\n\n")[1].splitlines()
    assert head.split()[:5] == ["split-digits", "seeds", "acc", "paper", "band"]
    assert [row.split()[0] for row in rows] == ["hat", "ewc", "sgd", "CAB"]
    ends = {row.index(verdict) + len(verdict) for row, verdict in ((rows[0], "within"), (rows[2], "above"))}
    assert ends == {head.index("band") + 4}
    assert "ewc-2: it was <unlucky>." in text
