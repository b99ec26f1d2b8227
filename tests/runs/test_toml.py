"""What the writer writes, the standard library's reader reads back the same."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatrack.runs.toml import dumps

words = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | words
inner = st.recursive(scalars, lambda value: st.lists(value) | st.dictionaries(words, value), max_leaves=8)
table = st.dictionaries(words, inner)


@given(st.dictionaries(words, scalars | st.lists(inner) | table))
def test_tomllib_reads_back_what_was_written(document: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(document)) == document


def test_text_by_hand() -> None:
    document = {"method": "hat", "seed": 0, "t": {"widths": (2000, 10), "hard": True, "lr": 1e-05}, "x": 0.5}
    expected = 'method = "hat"\nseed = 0\nx = 0.5\n\n[t]\nwidths = [2000, 10]\nhard = true\nlr = 1e-05\n'
    assert dumps(document) == expected


def test_infinities_and_nan() -> None:
    read = tomllib.loads(dumps({"a": math.inf, "b": -math.inf, "c": math.nan}))
    assert read["a"] == math.inf
    assert read["b"] == -math.inf
    assert math.isnan(read["c"])


def test_none_is_a_word() -> None:
    assert dumps({"data": None}) == 'data = "none"\n'


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        dumps({"a": {1}})
