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
    acting = {c for c in set(text).difference(keep) if unicodedata.category(c) in _CATEGORIES or c in _DIRECTION}
    return "".join(c.encode("unicode_escape").decode() if c in acting else c for c in text)
