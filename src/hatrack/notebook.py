"""What a notebook shows of things: small tables, all of whose text is escaped; no style sheet, script or picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from hatrack.visible import visible

ACCURACY, GATES = "46, 125, 50", "21, 101, 192"  # hues of the cells' shades


def text(value: object) -> str:
    """Return the value as text that HTML cannot mistake for markup."""
    return escape(visible(str(value)))


def card(title: str, *parts: str) -> str:
    """Put a thing together: what it is, and what there is to see of it."""
    return f"<div><p><b>{text(title)}</b></p>{''.join(parts)}</div>"


def line(words: object) -> str:
    return f"<p>{text(words)}</p>"


def table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of texts whose first column names the rows."""
    return _table(heads, ([f"<td>{text(cell)}</td>" for cell in row] for row in rows))


def shares(heads: Sequence[object], rows: Iterable[Sequence[object]], hue: str) -> str:
    """Return a table of shares of 1 behind names, shaded by how large they are; of what is None, a dash."""
    return _table(heads, ([f"<td>{text(name)}</td>", *(_share(value, hue) for value in row)] for name, *row in rows))


def _table(heads: Sequence[object], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{text(cell)}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _share(value: object, hue: str) -> str:
    if not isinstance(value, float):
        return "<td>–</td>"
    if not 0 <= value <= 1:  # a score that is no share
        return f"<td>{value:.3g}</td>"
    return f'<td style="background:rgba({hue}, {0.6 * value:.2f})">{value:.3f}</td>'
