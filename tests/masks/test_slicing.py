"""What stays of parameters when units go, by tables."""

from __future__ import annotations

import pytest
import torch

from hatrack.masks.slicing import Uncuttable, kept
from hatrack.masks.unitmap import OFF, ON, Use

ROWS, COLUMNS = torch.tensor([0, 1, 2])[:, None], torch.tensor([3, 4])[None]


def gone(*units: int, of: int = 5) -> torch.Tensor:
    marked = torch.zeros(of, dtype=torch.bool)
    marked[list(units)] = True
    return marked


def places(keep: list[torch.Tensor | None]) -> list[list[int] | None]:
    return [None if index is None else index.tolist() for index in keep]


def test_rows_and_columns_of_a_linear_layer() -> None:
    use = [Use((ROWS, COLUMNS))]
    assert places(kept(use, (3, 2), gone())) == [None, None]
    assert places(kept(use, (3, 2), gone(1))) == [[0, 2], None]
    assert places(kept(use, (3, 2), gone(0, 4))) == [[1, 2], [0]]
    with pytest.raises(Uncuttable, match="nothing would be left"):
        kept(use, (3, 2), gone(0, 1, 2))


def test_an_entry_goes_where_every_use_lets_it() -> None:
    tied = [Use((ROWS, torch.full((1, 2), ON))), Use((torch.tensor([4, 1, 2])[:, None],))]
    assert places(kept(tied, (3, 2), gone(0))) == [None, None]
    assert places(kept(tied, (3, 2), gone(0, 4))) == [[1, 2], None]


def test_what_no_unit_uses_stays_for_itself() -> None:
    never = [Use((torch.tensor([OFF, 1, 2])[:, None],))]
    assert places(kept(never, (3, 2), gone())) == [None, None]
    assert places(kept(never, (3, 2), gone(1))) == [[0, 2], None]
