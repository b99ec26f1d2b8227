"""A text in JSON that bears its own digest, so that a byte of it that is changed later is noticed.

The last field of the outermost object is `"sha256": "…"`: the SHA-256 of the text with that value left empty. Where
texts follow one another, that of the one before comes first, so that none can be taken out.
"""

from __future__ import annotations

import re
from hashlib import sha256

BLANK = {"sha256": ""}  # to be the last field
_MARK = '"sha256": "'
_BORNE = re.compile(rb'"sha256": "([0-9a-f]{64})"\s*\}\s*$')


def sealed(text: str, before: str = "") -> str:
    """Fill in the digest of a text whose last field is BLANK."""
    head, mark, tail = text.rpartition(_MARK)
    return f"{head}{mark}{digest(text.encode(), before)}{tail}"


def digest(data: bytes, before: str = "") -> str:
    """Return the SHA-256 of `before` and `data`."""
    return sha256(before.encode() + data).hexdigest()


def borne(data: bytes) -> str | None:
    """Return the digest that a text bears, if it bears one."""
    found = _BORNE.search(data)
    return None if found is None else found[1].decode()


def intact(data: bytes, before: str = "") -> bool:
    """Return whether a text bears a digest, and the right one."""
    found = _BORNE.search(data)
    return found is not None and found[1].decode() == digest(data[: found.start(1)] + data[found.end(1) :], before)
