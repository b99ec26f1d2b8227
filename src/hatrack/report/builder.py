"""Builds a page, fit for any report: frame and head, cards, sections, pictures, tables."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from hatrack.errors import HatrackError
from hatrack.report.picture import HALF, Picture


@dataclass(frozen=True)
class Card:
    """A figure of the headline row; `tone` is good, bad or nothing."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Section:
    """One part of a page; `body` is HTML."""

    anchor: str
    title: str
    body: str


@dataclass(frozen=True)
class Head:
    """The top of a page: what kind of report, of what, in which surroundings, how it went in words."""

    kind: str
    title: str
    where: Sequence[str]
    said: str
    notes: str = ""


def build(head: Head, cards: Iterable[Card], sections: Iterable[Section], foot: str) -> str:
    """Put a self-contained page together: the style is inside, and nothing is fetched."""
    css = files("hatrack.report").joinpath("style.css").read_text(encoding="utf-8")
    sections = list(sections)
    links = "".join(f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in sections)
    parts = "\n".join(f'<section id="{s.anchor}"><h2>{escape(s.title)}</h2>\n{s.body}\n</section>' for s in sections)
    where = " · ".join(part for part in head.where if part)
    top = (
        f'<header><p class="kind">{escape(head.kind)}</p><h1>{escape(head.title)}</h1>'
        f'<p class="where">{escape(where)}</p><p class="said">{escape(head.said)}</p>{how(head.notes)}</header>'
        f'<dl class="cards">{"".join(map(_card, cards))}</dl>'
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'  # without it, a browser asks a server for favicon.ico
        f"<title>{escape(head.title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        f"{top}\n<nav>{links}</nav>\n<main>\n{parts}\n</main>\n<footer>{escape(foot)}</footer>\n</body>\n</html>\n"
    )


def escape(value: object) -> str:
    """Return the value as text that HTML cannot mistake for markup."""
    return html.escape(str(value))


def _card(card: Card) -> str:
    note = f'<div class="note">{escape(card.note)}</div>' if card.note else ""
    return (
        f'<div class="{f"card {card.tone}".strip()}"><dt>{escape(card.label)}</dt>'
        f'<dd><div class="value">{escape(card.value)}</div>{note}</dd></div>'
    )


def pictures(draw: Iterable[Callable[[], Picture]]) -> str:
    """Set side by side what can be drawn, and say below why the rest cannot."""
    drawn = ""
    reasons: dict[str, None] = {}
    for one in draw:
        try:
            drawn += _figure(one())
        except HatrackError as error:
            reasons[str(error)] = None
    return (f'<div class="row">{drawn}</div>' if drawn else "") + (left_out(" ".join(reasons)) if reasons else "")


def _figure(picture: Picture) -> str:
    """Put a picture between its title and how to read it; two half-wide ones share a row."""
    about = f'<span class="about">{escape(picture.about)}</span>' if picture.about else ""
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>" if picture.caption else ""
    width = "half" if picture.width == HALF else "full"
    return f'<figure class="{width}"><h3>{escape(picture.title)}{about}</h3>{picture.svg}{caption}</figure>'


def left_out(why: str) -> str:
    """Stand in for a picture that there cannot be."""
    return f'<p class="left-out">{escape(why)}</p>'


def how(text: str) -> str:
    """Say how to read what stands beside it; nothing without a text."""
    return f'<p class="how">{escape(text)}</p>' if text else ""


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
