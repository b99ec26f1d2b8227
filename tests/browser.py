"""Looks at a page in a headless Chromium, and says what a person looking at it would complain of."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Page, Request, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

TOUCHING = """
() => {
  const boxes = (what) => [...document.querySelectorAll(what)].map((e) => [e, e.getBoundingClientRect()]);
  const above = boxes("p, figcaption, table");
  const near = (h, t) => t.left < h.right && h.left < t.right && Math.abs(h.top - t.bottom) < 8;
  return boxes("h2, h3").filter(([, h]) => above.some(([, t]) => near(h, t))).map(([e]) => e.textContent.trim());
}
"""


@dataclass(frozen=True)
class Look:
    """What was seen: complaints, the name of every plot, and all text."""

    complaints: list[str]
    plots: list[str]
    text: str


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a Chromium of this machine; skip the test where there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no Chromium on this machine (looked for {', '.join(_NAMES)})")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def look(browser: Browser, file: Path, width: int = 1200) -> Look:
    """Open a file at the given window width and gather what is wrong with it.

    Wrong are: an error in the console or a script, anything fetched that is not a file or inside the page,
    a page wider than its window, a heading that touches the text above it, and a plot without size or with nothing
    drawn in it.
    """
    complaints: list[str] = []

    def fetched(request: Request) -> None:
        if not request.url.startswith(("file:", "data:")):
            complaints.append(f"fetched {request.url}")

    page = browser.new_page(viewport={"width": width, "height": 900})
    try:
        page.on(
            "console",
            lambda said: complaints.append(f"console: {said.text}") if said.type == "error" else None,
        )
        page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
        page.on("request", fetched)
        page.goto(file.resolve().as_uri(), wait_until="load")
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if overflow > 0:
            complaints.append(f"{overflow} pixels wider than a window of {width}")
        complaints += [f"{heading!r} touches the text above it" for heading in page.evaluate(TOUCHING)]
        plots = [_plot(page, i, complaints) for i in range(page.locator("svg").count())]
        return Look(complaints, plots, page.locator("body").inner_text())
    finally:
        page.close()


def _plot(page: Page, index: int, complaints: list[str]) -> str:
    """Check one plot: it has a size, and colour beyond the grey of its axes and text."""
    plot = page.locator("svg").nth(index)
    name = plot.get_attribute("aria-label") or f"plot {index + 1}"
    box = plot.bounding_box()
    if box is None or min(box["width"], box["height"]) < 1:
        complaints.append(f"{name}: has no size")
        return name
    pixels = np.asarray(Image.open(io.BytesIO(plot.screenshot())).convert("RGB"), np.int64)
    if (pixels == pixels[0, 0]).all():
        complaints.append(f"{name}: is all one colour")
    elif _coloured(pixels) < 100:
        complaints.append(f"{name}: has axes but nothing drawn in them")
    return name


def _coloured(pixels: NDArray[np.int64]) -> int:
    """Count the pixels that are clearly not grey; axes, text and grid are near grey, data are not."""
    return int((pixels.max(axis=2) - pixels.min(axis=2) > 50).sum())
