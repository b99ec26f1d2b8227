"""Text of others made fit to be shown: what names, paths and errors hold is shown there, and never obeyed.

Names of tasks, classes, methods and folders come from files that somebody else may have written. A character that a
terminal acts on (escape codes, a return to the line's start, a change of the writing direction) becomes its escape.
"""

from __future__ import annotations

import unicodedata

_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}  # controls, halves of a pair, ends of lines and paragraphs
_DIRECTION = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str, keep: str = "") -> str:
    """Return the text with an escape for every such character but those in `keep`."""
    return "".join(c if c in keep or not _acts(c) else c.encode("unicode_escape").decode() for c in text)


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _CATEGORIES or character in _DIRECTION
