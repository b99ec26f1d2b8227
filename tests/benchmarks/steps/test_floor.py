"""The floor: what a step has to do is counted right, and the slower of its two parts counts."""

from __future__ import annotations

import pytest
import torch
from hatrack.bench.floor import Floor, Work, bytes_a_second, floor_milliseconds, operations_a_second, work_of
from hatrack.bench.sides import BATCH
from torch import nn

from hatrack.bench import floor
from hatrack.nets import build

CPU = torch.device("cpu")


def test_products_and_bytes_are_counted() -> None:
    work = work_of(build("mlp", (1, 4, 4), widths=(8, 6)), (1, 4, 4), CPU)
    products = 3 * (16 * 8 + 8 * 6) - 16 * 8  # forward, weights, inputs; nobody asks for the gradient of the pictures
    assert work == Work(2 * BATCH * products, 6 * 4 * (16 * 8 + 8 + 8 * 6 + 6))
    convolution = nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.Flatten())
    assert work_of(convolution, (3, 8, 8), CPU).operations == 2 * 2 * BATCH * (5 * 6 * 6) * (3 * 3 * 3)


def test_the_slower_of_the_two_counts() -> None:
    assert Floor(Work(8e9, 1e8), products=2e11, memory=2e10).milliseconds == pytest.approx(40)
    assert Floor(Work(8e9, 1e8), products=1e12, memory=1e10).milliseconds == pytest.approx(10)


def test_both_speeds_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "REPEATS", 1)
    assert bytes_a_second(CPU) > 0
    assert operations_a_second(CPU, "bf16") > 0
    assert 0 < floor_milliseconds(CPU, "float32") < 1000
