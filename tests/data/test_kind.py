"""What inputs are like is seen in the training part, drawn from the seed alone, and held against what is predicted."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from hatrack.data.kind import CHUNK, SOME, Kind, described, of, restored, seen
from hatrack.data.samples import Split

UINT8 = of([torch.tensor([[[0, 7], [200, 3]]], dtype=torch.uint8)])
FLOATS = of([torch.tensor([[[[0.0, 0.5], [0.25, 0.9]]]])])
IDS = of([torch.tensor([[0, 5, 3], [2, 9, 3]])])


def test_one_range_for_pictures_and_one_an_entry_for_tables_and_tokens() -> None:
    assert (UINT8.shape, UINT8.dtype, UINT8.range) == ((2, 2), torch.uint8, (0, 200))
    assert UINT8.low.shape == FLOATS.high.shape == ()
    assert (IDS.low.tolist(), IDS.high.tolist()) == ([0, 5, 3], [2, 9, 3])
    table = of([torch.tensor([[1.0, -5.0], [2.0, 5.0]]), torch.tensor([[3.0, 0.0]])])
    assert (table.low.tolist(), table.high.tolist()) == ([1, -5], [3, 5])


def test_all_of_an_array_is_seen_and_only_the_chosen_rows() -> None:
    x = np.zeros((CHUNK + 10, 1, 2, 2), np.float32)
    x[CHUNK + 5] = 3
    x[7] = -2
    y = torch.zeros(len(x), dtype=torch.long)
    assert seen(Split(x, y)).range == (-2, 3)
    assert seen(Split(torch.from_numpy(x), y)).range == (-2, 3)
    assert seen(Split(x, y, torch.arange(8, len(x)))).range == (0, 3)


class Endless(Dataset[Any]):
    """A Dataset that counts what is read of it."""

    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        self.read += 1
        return torch.full((1, 2, 2), float("nan") if row == 3 else float(row)), 0


def test_of_a_dataset_the_first_few_are_seen_and_what_is_not_finite_is_passed_over() -> None:
    data = Endless()
    assert seen(Split(data, None)).range == (0, SOME - 1)
    assert data.read == SOME


DTYPES = [
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("shape", [(), (4,), (3, 4), (2, 3, 4)])
def test_what_is_drawn_is_of_the_kind_and_reaches_all_of_it(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(50, *shape, generator=generator) * 5).to(dtype)
    kind = of([x])
    drawn = kind.draw(400, np.random.RandomState(0))
    assert (drawn.dtype, tuple(drawn.shape)) == (dtype, (400, *shape))
    now, then = (torch.view_as_real(t) if t.is_complex() else t.to(torch.float64) for t in (drawn, x))
    assert then.min() <= now.min() < then.min() + 0.5
    assert then.max() - 0.5 < now.max() <= then.max()
    again = restored(described(kind), {"low": kind.low, "high": kind.high}).draw(400, np.random.RandomState(0))
    assert torch.equal(again, drawn)


def test_what_is_drawn_is_the_same_for_good() -> None:
    """Bit for bit, under any version: Python's Mersenne twister, seeded alike, gives the same numbers."""
    python = random.Random(1 + (2 << 32))
    evenly = [[python.random() for _ in range(3)] for _ in range(4)]
    expected = [
        [int(low + u * (high - low + 1)) for u, low, high in zip(row, (0, 5, 3), (2, 9, 3), strict=True)]
        for row in evenly
    ]
    assert IDS.draw(4, np.random.RandomState([1, 2])).tolist() == expected
    most = float(np.float32(0.9))
    drawn = FLOATS.draw(3, np.random.RandomState([1, 2])).flatten().numpy()
    np.testing.assert_array_equal(drawn, np.float32([u * most for row in evenly for u in row]))


@pytest.mark.parametrize(
    ("kind", "x", "says"),
    [
        (UINT8, torch.full((1, 2, 2), 255, dtype=torch.uint8), None),
        (UINT8, torch.zeros(1, 2, 2), None),
        (UINT8, torch.tensor([[-0.05, 1.08]]), None),
        (UINT8, torch.zeros(1, 2, 2, dtype=torch.long), None),
        (UINT8, torch.zeros(0, 2, 2), None),
        (UINT8, torch.tensor([[float("nan")]]), None),
        (UINT8, torch.tensor([[0.0, 255.0]]), "got float32 from 0 to 255, and the task was trained on uint8 from 0 to"),
        (UINT8, torch.tensor([[-0.42, 2.8]]), "give uint8, or floats from 0 to 1"),
        (UINT8, torch.tensor([[0, 255]]), "got int64 from 0 to 255"),
        (UINT8, torch.tensor([[0, 1]]), "got int64 from 0 to 1"),
        (FLOATS, torch.tensor([[0.0, 9.0]]), None),
        (FLOATS, torch.tensor([[0.0, 255.0]]), "got float32 from 0 to 255, and the task was trained on float32 from 0"),
        (FLOATS, torch.tensor([[float("inf")]]), "got float32 from inf to inf"),
        (FLOATS, torch.tensor([[0, 200]], dtype=torch.uint8), None),
        (FLOATS, torch.tensor([[0, 1]]), "got int64, and the task was trained on float32 from 0 to 0.9; give float32"),
        (of([torch.randn(9, 3) * 50]), torch.tensor([[0, 200]], dtype=torch.uint8), "got uint8, and the task"),
        (of([torch.zeros(9, 3)]), torch.tensor([[1e9]]), None),
        (IDS, torch.tensor([[10_000]]), None),
        (IDS, torch.tensor([[1]], dtype=torch.int32), None),
        (IDS, torch.tensor([[1.0]]), "got float32, and the task was trained on int64 from 0 to 9; give int64"),
        (IDS, torch.tensor([[1]], dtype=torch.uint8), "got uint8, and the task was trained on int64"),
        (of([torch.tensor([[True]])]), torch.tensor([[1.0]]), None),
    ],
)
def test_what_cannot_mean_the_same_is_objected_to(kind: Kind, x: Tensor, says: str | None) -> None:
    found = kind.objection(x)
    assert found is None if says is None else found is not None and says in found
