"""The building blocks of a page, fit for any report: numbers in words, cards, figures, tables, the frame."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

DASH = "–"


@dataclass(frozen=True)
class Section:
    """One part of a page; `body` is HTML."""

    anchor: str
    title: str
    body: str


def document(title: str, head: str, sections: Sequence[Section], foot: str) -> str:
    """Put a self-contained page together: the style is inside, and nothing is fetched."""
    css = files("hatrack.report").joinpath("style.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in sections)
    parts = "\n".join(f'<section id="{s.anchor}"><h2>{escape(s.title)}</h2>\n{s.body}\n</section>' for s in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'  # without it, a browser asks a server for favicon.ico
        f"<title>{escape(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        f"{head}\n<nav>{links}</nav>\n<main>\n{parts}\n</main>\n{foot}\n</body>\n</html>\n"
    )


def escape(value: object) -> str:
    """Return the value as text that HTML cannot mistake for markup."""
    return html.escape(str(value))


def known(value: object) -> float | None:
    """Return the value if it is a finite number, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value) + 0.0  # −0 becomes 0
    return None


def percent(value: object, decimals: int = 1) -> str:
    """Write a share as per cent, without needless decimals where it is exact, and as a dash where unknown."""
    number = known(value)
    if number is None:
        return DASH
    text = f"{100 * number:.{decimals}f}" if number not in (0, 1) else f"{100 * number:.0f}"
    return f"{text} %".replace("-", "−")


def duration(seconds: object) -> str:
    """Write seconds as 14.2 s, 3 min 12 s or 2 h 05 min."""
    number = known(seconds)
    if number is None:
        return DASH
    if number < 120:
        return f"{number:.1f} s"
    minutes, rest = divmod(round(number), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def whole(value: int | None) -> str:
    """Write a whole number with its thousands set apart by a thin space."""
    return DASH if value is None else f"{value:,}".replace(",", "\u2009")


def counted(number: int, noun: str) -> str:
    """Write 1 task, 5 tasks."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass(frozen=True)
class Card:
    """A figure of the headline row; `tone` is good, bad or nothing."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


def card_row(cards: Iterable[Card]) -> str:
    """Build the headline row."""
    return '<dl class="cards">' + "".join(_card(card) for card in cards) + "</dl>"


def _card(card: Card) -> str:
    note = f'<div class="note">{escape(card.note)}</div>' if card.note else ""
    return (
        f'<div class="{f"card {card.tone}".strip()}"><dt>{escape(card.label)}</dt>'
        f'<dd><div class="value">{escape(card.value)}</div>{note}</dd></div>'
    )


def figure(title: str, svg: str, caption: str = "", *, about: str = "", half: bool = False) -> str:
    """Put a picture between its title and how to read it; two half-wide ones share a row."""
    heading = escape(title) + (f'<span class="about">{escape(about)}</span>' if about else "")
    width = "half" if half else "full"
    caption = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="{width}"><h3>{heading}</h3>{svg}{caption}</figure>'


def left_out(why: str) -> str:
    """Stand in for a picture that this run cannot have."""
    return f'<p class="left-out">{escape(why)}</p>'


def row(*parts: str) -> str:
    """Set figures side by side where they fit."""
    return f'<div class="row">{"".join(parts)}</div>'


def table(kind: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """Build a table whose first column names the row; the last `numbers` columns are aligned to the right."""
    first_number = len(heads) - numbers
    classes = [' class="number"' if i >= first_number else "" for i in range(len(heads))]
    head = "".join(f"<th{c}>{escape(h)}</th>" for h, c in zip(heads, classes, strict=True))
    body = ""
    for name, *cells in rows:
        values = "".join(f"<td{c}>{escape(cell)}</td>" for cell, c in zip(cells, classes[1:], strict=True))
        body += f"<tr><th>{escape(name)}</th>{values}</tr>"
    filled = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="{kind}">{filled}</table></div>'
