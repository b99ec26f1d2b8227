"""Settings of several levels: which holds, and that a setting's two names are one."""

from __future__ import annotations

from typing import Any

import pytest

from hatrack.studies.overrides import holds, merged


@pytest.mark.parametrize(
    ("levels", "left"),
    [
        ([{"lr": 1, "c": 2}, {"lr": 3}], {"lr": 3, "c": 2}),
        ([{"net.widths": [1]}, {"widths": [2]}], {"widths": [2]}),
        ([{"widths": [1]}, {"net.widths": [2]}], {"net.widths": [2]}),
        ([{"method.c": 1}, {"c": 2}, {"method.c": 3}], {"method.c": 3}),
        ([{"net.heads": 1}, {"method.heads": 2}], {"net.heads": 1, "method.heads": 2}),  # two settings of one name
        ([{"widths": [1], "net.widths": [2]}, {"c": 3}], {"widths": [1], "net.widths": [2], "c": 3}),  # given twice
        ([], {}),
    ],
)
def test_what_stands_later_wins_under_either_name(levels: list[dict[str, Any]], left: dict[str, Any]) -> None:
    assert merged(*levels) == left


def test_a_name_with_a_dot_of_no_part_is_itself() -> None:
    assert holds({"a.b": 1}, "a.b")
    assert not holds({"b": 1}, "a.b")
