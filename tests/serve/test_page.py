"""The page as a person uses it: a picture is chosen or drawn, and the answer is the network's."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Page

from .asking import serving
from .exports import COLOURS, DIGITS, MAPS, PHOTOS, TAGS, Made, write_all

pytestmark = pytest.mark.browser


@contextmanager
def opened(browser: Browser, port: int, **how: Any) -> Iterator[tuple[Page, list[str]]]:
    """Open the page; the list fills with what a person would complain of."""
    page = browser.new_page(**{"viewport": {"width": 1000, "height": 900}} | how)
    complaints: list[str] = []
    home = f"http://127.0.0.1:{port}"
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    allowed = (home, "data:", "blob:")
    page.on("request", lambda one: None if one.url.startswith(allowed) else complaints.append(one.url))
    try:
        page.goto(home)
        page.wait_for_selector("#task option", state="attached")
        yield page, complaints
    finally:
        page.close()


def file_of(x: NDArray[np.uint8]) -> dict[str, Any]:
    held = io.BytesIO()
    Image.fromarray(x[0] if len(x) == 1 else x.transpose(1, 2, 0)).save(held, "PNG")
    return {"name": "picture.png", "mimeType": "image/png", "buffer": held.getvalue()}


def until(page: Page, what: str) -> None:
    """Wait for something to be so; the page itself may not evaluate texts, which playwright's own waiting does."""
    end = time.monotonic() + 20
    while not page.evaluate(what):
        assert time.monotonic() < end, what
        page.wait_for_timeout(20)


def asked(page: Page, button: str = "#ask") -> dict[str, Any]:
    """Press a button; return what the server says."""
    with page.expect_response("**/predict") as replied:
        page.click(button)
    said: dict[str, Any] = json.loads(replied.value.body())
    return said


@pytest.mark.parametrize("made", [DIGITS, COLOURS, MAPS, PHOTOS], ids=lambda made: made.name)
def test_a_chosen_picture_reaches_the_task_pixel_by_pixel(browser: Browser, port: int, made: Made) -> None:
    x = np.random.default_rng(3).integers(0, 256, made.shape, np.uint8)
    wanted = made.answer(x[None] / (255.0 if made is not PHOTOS else 1))[0]
    with opened(browser, port) as (page, complaints):
        page.select_option("#task", made.name)
        page.set_input_files("#file", files=file_of(x))
        until(page, f"document.getElementById('seen').width === {made.shape[2]} && picture !== null")
        said = asked(page)
        if made is MAPS:
            assert said["answers"][0]["labels"] == wanted.argmax(0).tolist()
            page.wait_for_selector("#answer canvas.map")
        else:
            np.testing.assert_allclose(said["answers"][0]["logits"], wanted, rtol=1e-4, atol=1e-5)
            names = made.classes or ["0", "1", "2"]
            page.wait_for_selector("#answer strong")
            assert page.inner_text("#answer strong") == names[wanted.argmax()]
        assert complaints == []


def test_a_drawing_is_scaled_and_answered(browser: Browser, port: int) -> None:
    with opened(browser, port) as (page, complaints):
        page.select_option("#task", DIGITS.name)
        blank = asked(page)["answers"][0]["logits"]
        np.testing.assert_allclose(blank, DIGITS.answer(np.zeros((1, 1, 4, 4)))[0], rtol=1e-4)
        box = page.locator("#draw").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 30, box["y"] + 30)
        page.mouse.down()
        page.mouse.move(box["x"] + 250, box["y"] + 250, steps=10)
        page.mouse.up()
        drawn = asked(page)["answers"][0]["logits"]
        pixels = page.evaluate("[...seen.getImageData(0, 0, 4, 4).data]")
        x = np.array(pixels).reshape(4, 4, 4)[..., 0] / 255
        assert x.diagonal().min() > x[0, 3] == x[3, 0] == 0
        np.testing.assert_allclose(drawn, DIGITS.answer(x[None, None])[0], rtol=1e-4, atol=1e-5)
        page.check("#invert")
        np.testing.assert_allclose(
            asked(page)["answers"][0]["logits"], DIGITS.answer(1 - x[None, None])[0], rtol=1e-4, atol=1e-5
        )
        page.uncheck("#invert")
        page.click("#clear")
        assert asked(page)["answers"][0]["logits"] == blank
        assert complaints == []


def test_a_task_without_pictures_takes_numbers_and_shows_what_is_wrong(browser: Browser, port: int) -> None:
    with opened(browser, port) as (page, complaints):
        page.select_option("#task", TAGS.name)
        assert not page.locator("#draw").is_visible()
        x = TAGS.samples(1)
        page.fill("#json", json.dumps(x[0].tolist()))
        np.testing.assert_allclose(asked(page, "#ask-json")["answers"][0]["logits"], TAGS.answer(x)[0], rtol=1e-4)
        assert complaints == []
        page.fill("#json", "[1, 2]")
        asked(page, "#ask-json")
        page.wait_for_selector("#answer .error")
        assert "takes shape (6,)" in page.inner_text("#answer")
        page.fill("#json", "oh")
        page.click("#ask-json")
        until(page, "document.querySelector('#answer').textContent.includes('JSON')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read_in_the_dark(browser: Browser, port: int, scheme: str) -> None:
    with opened(browser, port, viewport={"width": 500, "height": 900}, color_scheme=scheme) as (page, complaints):
        for made in (DIGITS, TAGS):
            page.select_option("#task", made.name)
            asked(page, "#ask" if made is DIGITS else "#ask-json")
            page.wait_for_selector("#answer .row")
            assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        style = "getComputedStyle(document.querySelector({}))['{}']"
        ground = luminance(page.evaluate(style.format("'body'", "backgroundColor")))
        assert (ground > 0.5) == (scheme == "light")
        for what in ("body", ".note", "select", "button.main", "textarea", "#answer .row"):
            ink = luminance(page.evaluate(style.format(f"'{what}'", "color")))
            light, dark = max(ink, ground), min(ink, ground)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, what  # WCAG's AA
        assert complaints == []


def luminance(colour: str) -> float:
    """Return WCAG's relative luminance of a colour as the browser names it."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_names_are_text_and_never_markup(browser: Browser, tmp_path: Path) -> None:
    evil = "<img src=x onerror='document.title=1'>"
    folder = write_all(tmp_path, [Made(evil, classes=[evil, evil + "2", "c"])])
    with serving(folder) as port, opened(browser, port) as (page, complaints):
        asked(page)
        page.wait_for_selector("#answer .row")
        assert evil in page.inner_text("#answer")
        assert page.locator("img").count() == 0
        assert complaints == []
