from __future__ import annotations

import math

import pytest

from hatrack.report import parts


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.98765, "98.8 %"),
        (1.0, "100 %"),
        (0.9999, "100.0 %"),
        (0.0, "0 %"),
        (-0.0, "0 %"),
        (0.00001, "0.0 %"),
        (-0.25, "−25.0 %"),
        (None, "–"),
        (math.nan, "–"),
        ("high", "–"),
    ],
)
def test_percent(value: object, said: str) -> None:
    assert parts.percent(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (14.23, "14.2 s"),
        (119.9, "119.9 s"),
        (192, "3 min 12 s"),
        (7199.4, "119 min 59 s"),
        (7500, "2 h 05 min"),
        (None, "–"),
    ],
)
def test_duration(seconds: float | None, said: str) -> None:
    assert parts.duration(seconds) == said


def test_whole_and_counted() -> None:
    assert parts.whole(7_100_000) == "7\u2009100\u2009000"
    assert parts.whole(None) == "–"
    assert parts.counted(1, "task") == "1 task"
    assert parts.counted(0, "task") == "0 tasks"


def test_table_aligns_its_last_columns_as_numbers() -> None:
    html = parts.table("kind", ["Name", "Why", "Value"], [("<a>", "b & c", "0.5")], numbers=1)
    assert '<th>Name</th><th>Why</th><th class="number">Value</th>' in html
    assert '<tr><th>&lt;a&gt;</th><td>b &amp; c</td><td class="number">0.5</td></tr>' in html


def test_card_without_note() -> None:
    html = parts.card_row([parts.Card("Label", "<v>", tone="good")])
    assert '<div class="card good"><dt>Label</dt><dd><div class="value">&lt;v&gt;</div></dd></div>' in html


def test_document_links_to_every_section() -> None:
    html = parts.document("T & U", "head", [parts.Section("one", "First", "<p>body</p>")], "foot")
    assert "<title>T &amp; U</title>" in html
    assert '<a href="#one">First</a>' in html
    assert '<section id="one"><h2>First</h2>\n<p>body</p>' in html
