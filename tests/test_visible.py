"""What a terminal would act on is shown; all else stays as it is."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from hatrack.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("digits 0-1", "digits 0-1"),
        ("größe 日本語 שלום 🇩🇪 a\u200db \u00adx", "größe 日本語 שלום 🇩🇪 a\u200db \u00adx"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb\nc\td\x7f\0", "a\\rb\\nc\\td\\x7f\\x00"),
        ("exe\u202egpj", "exe\\u202egpj"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("a\udc80", "a\\udc80"),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_what_is_asked_for_is_kept() -> None:
    assert visible("a\nb\x1bc", keep="\n") == "a\nb\\x1bc"


def test_nothing_that_python_calls_a_control_or_a_direction_is_left() -> None:
    every = visible("".join(map(chr, range(sys.maxunicode + 1))))
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in every)
    marks = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert not any(unicodedata.bidirectional(c) in marks for c in every)
