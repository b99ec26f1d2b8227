"""Union-find against sets that are joined one pair at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hatrack.masks.union_find import UnionFind, compact, constant_along

PAIRS = st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6), max_size=4)


@given(PAIRS)
def test_merging_joins_sets(rounds: list[list[tuple[int, int]]]) -> None:
    unions = UnionFind()
    unions.fresh("a", 5)
    unions.fresh("b", 7)
    sets = [{i} for i in range(13)]
    for pairs in rounds:
        a, b = (torch.tensor([p[side] for p in pairs], dtype=torch.long) for side in (0, 1))
        unions.merge(a, b)
        for x, y in pairs:
            joined = sets[x] | sets[y]
            for member in joined:
                sets[member] = joined
    assert unions.roots(torch.arange(13)).tolist() == [min(s) for s in sets]


def test_pinned_units_are_always_on() -> None:
    unions = UnionFind()
    units = unions.fresh("a", 4)
    unions.merge(units[1:2], units[3:4])
    unions.pin(units[3:])
    assert unions.live(units).tolist() == units[[0, 2]].tolist()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes_that_only_repeat_are_seen_and_shortened(axis: int) -> None:
    ids = torch.arange(24).view(2, 3, 4).narrow(axis, 0, 1).expand(2, 3, 4)
    for layout in (ids, ids.contiguous()):
        assert [constant_along(layout, a) for a in range(3)] == [a == axis for a in range(3)]
        assert compact(layout).shape[axis] == 1
        assert torch.equal(compact(layout).expand(2, 3, 4), ids)


def test_along_keeps_an_axis_and_merges_the_others() -> None:
    unions = UnionFind()
    ids = unions.fresh("a", 6).view(2, 3)
    assert unions.along(ids, 1).flatten().tolist() == [1, 2, 3]
    assert unions.roots(ids).tolist() == [[1, 2, 3], [1, 2, 3]]
