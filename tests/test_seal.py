"""A sealed text bears the digest of its other bytes, and of what came before."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from hatrack import seal

TEXTS = [
    json.dumps({"a": [1, "é"], **seal.BLANK}, indent=i, ensure_ascii=False) + end
    for i in (None, 1)
    for end in ("", "\n")
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("before", ["", "0" * 64])
def test_the_digest_is_that_of_the_text_with_none(text: str, before: str) -> None:
    sealed = seal.sealed(text, before)
    expected = sha256((before + text).encode()).hexdigest()
    assert json.loads(sealed) == {"a": [1, "é"], "sha256": expected}
    assert seal.borne(sealed.encode()) == expected
    assert seal.intact(sealed.encode(), before)
    assert not seal.intact(sealed.encode(), before + "1")


@pytest.mark.parametrize("text", TEXTS)
def test_any_bit_that_is_flipped_is_noticed(text: str) -> None:
    data = seal.sealed(text).encode()
    for place in range(len(data)):
        for bit in range(8):
            flipped = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
            assert not seal.intact(flipped), (place, bit)


def test_a_digest_inside_is_none_of_the_text_s_own() -> None:
    text = json.dumps({"files": {"sha256": "0" * 64}, "name": "x"})
    assert seal.borne(text.encode()) is None
    assert not seal.intact(text.encode())
