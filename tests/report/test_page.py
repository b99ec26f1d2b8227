from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from hatrack.errors import HatrackError
from hatrack.report import write

from .folder import edit_result, write_run


class _Outline(HTMLParser):
    """Checks that tags close in order, and gathers ids, addresses and the text of each card."""

    VOID = frozenset({"meta", "link", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.cards: dict[str, list[str]] = {}
        self.svgs = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.svgs += tag == "svg"
        self.ids += [named["id"] or ""] if "id" in named else []
        self.addresses += [named[key] or "" for key in ("src", "href", "xlink:href") if key in named]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "dt" in self.open:
            self.cards[data] = []
        elif "dd" in self.open:
            next(reversed(self.cards.values())).append(data)


def _outline(folder: Path) -> tuple[str, _Outline]:
    html = write(folder).read_text(encoding="utf-8")
    outline = _Outline()
    outline.feed(html)
    outline.close()
    assert outline.open == []
    return html, outline


def test_cards_say_the_headline(run_folder: Path) -> None:
    _, outline = _outline(run_folder)
    acc = json.loads((run_folder / "result.json").read_text())["metrics"]["acc"]
    values = {label: texts[0] for label, texts in outline.cards.items()}
    capacity = values.pop("Capacity used")
    assert re.fullmatch(r"\d\d\.\d %", capacity)
    assert values == {
        "Method": "hat",
        "Benchmark": "split-digits",
        "Average accuracy": f"{100 * acc:.1f} %",
        "Forgetting": "0 %",
        "Parameters": "13\u2009250",
        "Time": "14.2 s",
        "Guarantee": "Promised",
    }


def test_page_is_self_contained_and_its_ids_are_its_own(run_folder: Path) -> None:
    html, outline = _outline(run_folder)
    assert outline.svgs == 8
    assert len(outline.ids) == len(set(outline.ids))
    assert all(address.startswith(("#", "data:")) for address in outline.addresses)
    assert {a[1:] for a in outline.addresses if a.startswith("#")} <= set(outline.ids)
    assert set(re.findall(r"url\((.)", html)) <= {"#"}
    assert set(re.findall(r"url\(#(.*?)\)", html)) <= set(outline.ids)
    for unwanted in ("<script", "@import", "<iframe"):
        assert unwanted not in html


COMPARED = {"ok": True, "within": 0.0, "logits": 640, "entries": 1478, "bytes": 5912}
COUNTED = "640 logits and 1\u2009478 entries (5\u2009912 bytes)"


@pytest.mark.parametrize(
    ("run", "value", "note"),
    [
        ({}, "Promised", "no accuracy moved; hatrack verify compares every bit"),
        (
            {"verified": COMPARED},
            "Exact",
            "640 logits and 1\u2009478 entries (5\u2009912 bytes) compared, not one bit differs",
        ),
        (
            {"verified": COMPARED | {"ok": False}},
            "Not kept",
            f"of {COUNTED} not all are what they were: see hatrack verify",
        ),
        (
            {"verified": COMPARED | {"within": 1e-4}},
            "Kept",
            f"{COUNTED} compared, logits within 0.0001: another machine's",
        ),
        ({"verified": COMPARED, "forgets": True}, "Not kept", "old tasks are locked, yet 4 tasks moved"),
        ({"verified": COMPARED, "method": "sgd"}, "None", "sgd makes no promise; no accuracy moved"),
        ({"forgets": True}, "Not kept", "old tasks are locked, yet 4 tasks moved"),
        ({"soft": True}, "Approximate", "gates between 0 and 1; no accuracy moved"),
        ({"method": "sgd", "forgets": True, "tasks": 2}, "None", "sgd makes no promise; 1 task moved"),
        ({"method": "sgd-frozen"}, "Promised", "no accuracy moved; hatrack verify compares every bit"),
    ],
)
def test_guarantee_claims_no_more_than_the_files_show(
    tmp_path: Path, run: dict[str, object], value: str, note: str
) -> None:
    verified = run.get("verified")
    folder = write_run(tmp_path, **{key: given for key, given in run.items() if key != "verified"})  # type: ignore[arg-type]
    if verified is not None:
        edit_result(folder, verified=verified)
    _, outline = _outline(folder)
    assert outline.cards["Guarantee"] == [value, note]


def test_epochs_that_diverged_are_told(run_folder: Path) -> None:
    assert "iverged" not in _outline(run_folder)[0]
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    second = [line for line in epochs if line["task"] == 1]
    for line in second[:3]:
        line["valid_loss"] = None
    (run_folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    html, _ = _outline(run_folder)
    assert f"Training diverged in 3 of {len(epochs)} epochs: see Training." in html
    assert f"Diverged: digits 2-3 (3 of {len(second)} epochs)." in html


def test_what_is_missing_is_left_out_with_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path, method="random")
    (tmp_path / "metrics.jsonl").write_text('{"event": "task", "task": 0}\n')
    edit_result(tmp_path, metrics={"acc": None, "bwt": None}, parameters=None, seconds=None, device=None)
    html, outline = _outline(tmp_path)
    for reason in (
        "random sets no weights aside for a task, so it has no capacity to show.",
        "random does not say which weights a task uses, so it has no reuse to show.",
        "random has no unit masks, so there is no picture of them.",
        "random recorded no epoch, so there are no training curves.",
        "no test accuracy was measured",
    ):
        assert reason in html
    assert outline.svgs == 2
    dashes = [label for label, texts in outline.cards.items() if texts[0] == "–"]
    assert dashes == [
        "Average accuracy",
        "Forgetting",
        "Capacity used",
        "Parameters",
        "Time",
    ]


def test_a_run_that_measured_nothing_still_has_a_report(tmp_path: Path) -> None:
    write_run(tmp_path, tasks=2)
    edit_result(tmp_path, accuracy=[[None], [None, None]])
    html, _ = _outline(tmp_path)
    assert "No task of this run has test samples, so no accuracy was measured." in html


def test_one_task_has_no_sequence_and_no_reuse(tmp_path: Path) -> None:
    html, outline = _outline(write_run(tmp_path, tasks=1))
    assert "One task was learned, so there is no sequence to draw yet." in html
    assert "Reuse is counted between two tasks" in html
    assert outline.svgs == 5


def test_every_name_is_escaped(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>&amp;'
    write_run(tmp_path, names=[evil, "b\n<i>"], tasks=2, sites={"<site>": 8})
    spec = {"method": "<hat>", "benchmark": evil, "net": evil, "seed": 0}
    edit_result(tmp_path, spec=spec, device=evil, metrics={"acc": 0.5, "<m>": evil})
    with (tmp_path / "spec.toml").open("a") as file:
        file.write(f'"<key>" = {json.dumps([evil])}\n["<group>".inner]\nx = 1\n')
    html, outline = _outline(tmp_path)
    for raw in ("<script", "<i>", "<site>", "<hat>", "<m>", "<key>", "<group>"):
        assert raw not in html.replace("<i style", "")
    assert outline.cards["Benchmark"][0] == evil


def test_settings_show_every_table_that_holds_something(tmp_path: Path) -> None:
    write_run(tmp_path, tasks=1)
    (tmp_path / "spec.toml").write_text(
        'method = "hat"\nhard = true\n[settings]\nwidths = [96, 64]\n[settings.deep]\nlr = 0.05\n[benchmark_options]\n'
    )
    html, _ = _outline(tmp_path)
    rows = re.findall(r"<tr[^>]*><th[^>]*>(.*?)</th>(?:<td>(.*?)</td>)?</tr>", html.split('id="settings"')[1])
    assert rows == [
        ("method", "hat"),
        ("hard", "true"),
        ("settings", ""),
        ("widths", "[96, 64]"),
        ("settings.deep", ""),
        ("lr", "0.05"),
    ]


def test_measures_known_and_new_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path)
    edit_result(tmp_path, metrics={"acc": 0.98765, "bwt": -0.5, "rho": None, "steps": 12, "interval": [0.1, 0.2]})
    html, _ = _outline(tmp_path)
    values = re.findall(r'<tr><th>(\w+)</th><td>[^<]*</td><td class="number">([^<]*)</td></tr>', html)
    assert values[:5] == [
        ("acc", "0.9877"),
        ("bwt", "−0.5000"),
        ("rho", "–"),
        ("steps", "12"),
        ("interval", "[0.1, 0.2]"),
    ]
    others = dict(values[5:])  # that the run stored elsewhere, or not at all
    assert list(others) == [
        "forgetting",
        "acc_weighted",
        "bwt_weighted",
        "capacity",
        "seconds",
        "minutes",
        "parameters",
    ]
    assert (others["forgetting"], others["seconds"], others["parameters"]) == ("0.0000", "14.2 s", "13,250")


def test_a_measure_names_the_runs_that_it_waits_for(tmp_path: Path) -> None:
    write_run(tmp_path)
    edit_result(tmp_path, metrics={"rho": None, "rho_each": None, "missing": {"rho": ["joint"], "ncl": ["ncl"]}})
    html, _ = _outline(tmp_path)
    values = dict(re.findall(r'<tr><th>(\w+)</th><td>[^<]*</td><td class="number">([^<]*)</td></tr>', html))
    assert (values["rho"], values["ncl"]) == ("needs runs of joint", "needs runs of sgd")
    assert "rho_each" not in values
    assert "needs runs of joint and random: hatrack report RUN --against RUN." in html


def test_the_same_files_give_the_same_bytes_everywhere(run_folder: Path, tmp_path: Path) -> None:
    here = write(run_folder).read_bytes()
    assert write(run_folder).read_bytes() == here
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 7\nsvg.fonttype: path\n")
    program = "import sys, pathlib, hatrack.report; hatrack.report.write(pathlib.Path(sys.argv[1]))"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "123",
        "SOURCE_DATE_EPOCH": "5",
        "MATPLOTLIBRC": str(tmp_path),
    }
    subprocess.run([sys.executable, "-c", program, str(run_folder)], check=True, env=environment)
    assert (run_folder / "report.html").read_bytes() == here


def test_an_unfinished_run_keeps_its_folder_as_it_was(run_folder: Path) -> None:
    (run_folder / "result.json").unlink()
    before = sorted(run_folder.iterdir())
    with pytest.raises(HatrackError, match="hatrack resume"):
        write(run_folder)
    assert sorted(run_folder.iterdir()) == before


def test_a_new_report_replaces_the_old_and_leaves_nothing_else(run_folder: Path) -> None:
    before = {path.name for path in run_folder.iterdir()}
    (run_folder / "report.html").write_text("old")
    assert write(run_folder) == run_folder / "report.html"
    assert (run_folder / "report.html").read_text() != "old"
    assert {path.name for path in run_folder.iterdir()} == before | {"report.html"}


def test_significance_is_shown_where_it_was_recorded(run_folder: Path) -> None:
    assert "ignificance" not in _outline(run_folder)[0]
    spread = {"start": -9.0, "step": 0.25, "counts": [1, 5, 2], "zeros": 0}
    edit_result(run_folder, histograms=[{"fc1": spread, "fc2": spread}] * 5)
    assert 'aria-label="Significance, layer by layer"' in _outline(run_folder)[0]
    edit_result(run_folder, histograms=[None])
    with pytest.raises(HatrackError, match="histograms: expected 5 entries, got 1"):
        write(run_folder)


def test_a_run_with_masks_on_weights_shows_these(tmp_path: Path) -> None:
    write_run(tmp_path, tasks=2, method="pmask")
    fields = {f"weights/{t}/fc1.weight": np.eye(4, dtype=np.uint8) * 255 for t in (0, 1)}
    save_file(fields, tmp_path / "masks.safetensors")
    html, _ = _outline(tmp_path)
    assert "<h2>Weight masks</h2>" in html
    assert 'aria-label="Weight masks of fc1.weight"' in html
    assert "no unit masks" not in html
    assert "metrics.jsonl and masks.safetensors in the run" in html


def test_of_many_parameters_the_first_and_the_last_are_shown(tmp_path: Path) -> None:
    write_run(tmp_path, tasks=1, method="pmask")
    fields = {f"weights/0/fc{i}.weight": np.eye(2, dtype=np.uint8) for i in range(11)}
    save_file(fields, tmp_path / "masks.safetensors")
    html, _ = _outline(tmp_path)
    assert "The first and the last 4 parameters; hatrack.plot.weights draws the other 3." in html
    shown = [int(place) for place in re.findall(r'aria-label="Weight masks of fc(\d+).weight"', html)]
    assert shown == [0, 1, 2, 3, 7, 8, 9, 10]
