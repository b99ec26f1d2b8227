from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from hatrack.errors import HatrackError
from hatrack.report import picture as fig


@pytest.mark.parametrize(
    ("wanted", "gap", "placed"),
    [
        ([], 0.1, []),
        ([0.3], 0.1, [0.3]),
        ([0.2, 0.8], 0.1, [0.2, 0.8]),
        ([0.5, 0.5], 0.1, [0.55, 0.45]),
        ([0.5, 0.5, 0.5], 0.2, [0.7, 0.5, 0.3]),
        ([1.0, 1.0], 0.1, [1.0, 0.9]),
        ([0.0, 0.02], 0.1, [0.0, 0.1]),
        ([0.5, 0.5, 0.5], 0.9, [1.0, 0.5, 0.0]),
        ([0.10, 0.52, 0.48], 0.1, [0.10, 0.55, 0.45]),
    ],
)
def test_spread(wanted: list[float], gap: float, placed: list[float]) -> None:
    assert fig.spread(wanted, gap) == pytest.approx(placed)


def test_spread_keeps_order_distance_and_bounds() -> None:
    rng = np.random.default_rng(0)
    for count in range(2, 22):
        wanted = np.round(rng.random(count) ** 3, 1).tolist()
        placed = fig.spread(wanted, 0.04)
        low_to_high = sorted(range(count), key=lambda i: placed[i])
        assert all(placed[b] - placed[a] > 0.04 - 1e-9 for a, b in pairwise(low_to_high))
        assert all(wanted[b] >= wanted[a] for a, b in pairwise(low_to_high))
        assert min(placed) >= 0
        assert max(placed) <= 1 + 1e-9


def test_short() -> None:
    assert fig.short("digits 0-1") == "digits 0-1"
    assert fig.short("two\n lines\there") == "two lines here"
    assert fig.short("a very long name indeed", 12) == "a very long…"


@pytest.mark.parametrize(
    ("background", "ink"),
    [("#143552", "white"), ("#24587f", "white"), ("#b5d0df", fig.INK), ("#ffffff", fig.INK)],
)
def test_readable_on(background: str, ink: str) -> None:
    assert fig.readable_on(matplotlib.colors.to_rgb(background)) == ink


def test_blocks_repeats_cells_whole() -> None:
    grown = fig.blocks(np.array([[0.0, 0.2, 1.0]]), (4, 10))
    assert grown.shape == (4, 12)
    assert grown[2].tolist() == [0] * 4 + [51] * 4 + [255] * 4


def _picture(text: str) -> fig.Picture:
    return fig.Picture("A <plot>", "A plot", 3, 2, lambda figure: figure.add_subplot().set_title(text))


def _write(text: str) -> str:
    return _picture(text).svg


def test_text_is_escaped_text_and_never_mathematics() -> None:
    svg = _write("<b>$x^2$ & $y")
    assert "&lt;b&gt;$x^2$ &amp; $y" in svg
    assert 'aria-label="A &lt;plot&gt;"' in svg


def test_letters_that_matplotlib_cannot_draw_are_left_to_the_browser() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "数字" in _write("数字")


def test_svg_is_fit_for_a_page() -> None:
    svg = _write("x")
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")
    for unwanted in ("<?xml", "<!DOCTYPE", "<style", "<metadata", '<g id="', "Matplotlib"):
        assert unwanted not in svg


def test_the_users_configuration_changes_nothing_and_is_left_alone() -> None:
    plain = _write("x")
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 30, "text.usetex": False}):
        assert _write("x") == plain
        assert matplotlib.rcParams["font.size"] == 30


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0.0, 0.5, 1.0], ["0 %", "50 %", "100 %"]),
        ([0.015, 0.02, 0.025], ["1.5 %", "2.0 %", "2.5 %"]),
        ([0.9, 0.925, 0.95], ["90.0 %", "92.5 %", "95.0 %"]),
        ([0.99925, 0.9995], ["99.925 %", "99.950 %"]),
    ],
)
def test_percents_have_the_decimals_that_their_ticks_have(ticks: list[float], labels: list[str]) -> None:
    axes = Figure().add_subplot()
    axes.set_yticks(ticks)
    axes.yaxis.set_major_formatter(fig.Percent())
    assert axes.yaxis.get_major_formatter().format_ticks(ticks) == labels


@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<?xml"), ("b.PNG", b"\x89PNG"), ("c.pdf", b"%PDF")])
def test_a_picture_is_saved_as_its_name_ends(tmp_path: Path, name: str, begins: bytes) -> None:
    _picture("x").save(tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(begins)
    _picture("x").save(str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == first


def test_another_ending_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(HatrackError, match=r"one of svg, png, pdf, got the name .*x\.bmp"):
        _picture("x").save(tmp_path / "x.bmp")


def test_a_notebook_shows_the_picture() -> None:
    assert _picture("x")._repr_svg_() == _write("x")
