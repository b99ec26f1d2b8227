"""The report as a person sees it, in a real browser; and that the check complains when it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser
from safetensors.numpy import save_file

from browser import look
from hatrack.report import write

from .folder import edit_result, write_run

pytestmark = pytest.mark.browser

ALL = [
    "Accuracy matrix",
    "Accuracy of each task over the sequence",
    "Capacity used",
    "Weight reuse between tasks",
    "Room for tasks to come",
    "Unit masks of fc1",
    "Unit masks of fc2",
    "Training curves",
]


@pytest.mark.parametrize(
    ("run", "plots"),
    [
        ({"tasks": 1}, [ALL[0], ALL[2], *ALL[5:]]),
        ({"tasks": 5}, ALL),
        ({"tasks": 5, "method": "sgd", "forgets": True}, [ALL[0], ALL[1], ALL[7]]),
        ({"tasks": 20}, ALL),
        ({"tasks": 100, "sites": {"fc1": 2048, "fc2": 512}, "epochs": 3, "soft": True}, ALL),
    ],
    ids=["1 task", "5 tasks", "without masks", "20 tasks", "100 tasks"],
)
def test_report_shows_every_plot(browser: Browser, tmp_path: Path, run: dict[str, Any], plots: list[str]) -> None:
    seen = look(browser, write(write_run(tmp_path, **run)))
    assert seen.complaints == []
    assert seen.plots == plots


def test_report_shows_the_forgetting_ratio(browser: Browser, tmp_path: Path) -> None:
    folder = write_run(tmp_path, tasks=5)
    edit_result(folder, metrics={"acc": 0.9, "rho": -0.1, "rho_each": [0.0, -0.05, -0.1, -0.1, -0.1]})
    seen = look(browser, write(folder))
    assert seen.complaints == []
    assert len(seen.plots) == len(ALL) + 1


def test_report_shows_the_masks_on_weights(browser: Browser, tmp_path: Path) -> None:
    folder = write_run(tmp_path, tasks=26, method="pmask")
    used = np.random.default_rng(0).integers(0, 2, (26, 40, 60), np.uint8) * 255
    save_file({f"weights/{t}/fc1.weight": fields for t, fields in enumerate(used)}, folder / "masks.safetensors")
    spread = {"fc1": {"start": -9.0, "step": 0.25, "counts": [1, 5, 2], "zeros": 0}}
    edit_result(folder, histograms=[spread] * 26)
    seen = look(browser, write(folder))
    assert seen.complaints == []
    assert {"Weight masks of fc1.weight", "Significance, layer by layer"} <= set(seen.plots)


def test_report_fits_a_phone_and_its_text_is_text(browser: Browser, run_folder: Path) -> None:
    seen = look(browser, write(run_folder), width=400)
    assert seen.complaints == []
    assert "hat on split-digits" in seen.text
    assert "5 · digits 8-9" in seen.text


def test_report_prints_on_whole_pages(browser: Browser, run_folder: Path) -> None:
    page = browser.new_page()
    page.goto(write(run_folder).as_uri())
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    page.set_viewport_size({"width": 695, "height": 1000})  # A4 within the page's margins, at 96 dpi
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    tallest = page.evaluate("Math.max(...[...document.querySelectorAll('figure')].map(f => f.offsetHeight))")
    assert tallest < 1017  # the height of A4 within the margins: no picture is cut by a page's end
    page.close()


SQUARE = '<svg width="90" height="90"><rect width="60" height="60" fill="{}"/></svg>'


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (SQUARE.format("#e08a2e") + "<script>console.error('oh')</script>", "console: oh"),
        (SQUARE.format("#e08a2e") + "<script>throw new Error('no')</script>", "script: no"),
        ('<img src="http://127.0.0.1:9/x.png">', "fetched http://127.0.0.1:9/x.png"),
        (SQUARE.format("white"), "plot 1: is all one colour"),
        (SQUARE.format("#5d6b7a"), "plot 1: has axes but nothing drawn in them"),
        ('<svg width="0" height="90" aria-label="flat"></svg>', "flat: has no size"),
        ('<p style="margin:0">text</p><h3 style="margin:0">Head</h3>', "'Head' touches the text above it"),
        ('<div style="width:1300px">wide</div>', "108 pixels wider than a window of 1200"),
    ],
)
def test_look_complains(browser: Browser, tmp_path: Path, body: str, complaint: str) -> None:
    file = tmp_path / "page.html"
    file.write_text(f'<!DOCTYPE html><link rel="icon" href="data:,"><body>{body}')
    assert complaint in look(browser, file).complaints


def test_look_is_content_with_a_good_page(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(f'<!DOCTYPE html><link rel="icon" href="data:,"><body>{SQUARE.format("#e08a2e")}')
    assert look(browser, file).complaints == []
