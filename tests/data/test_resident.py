"""Arrays are read where they lie, and shared where they must be copied."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from hatrack.data import resident as module
from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.resident import resident
from hatrack.data.samples import Split
from hatrack.targets import Classification

CPU, META = torch.device("cpu"), torch.device("meta")


def test_on_a_cpu_nothing_is_copied() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(6, 2)
    x.flags.writeable = False
    assert resident(x, CPU).data_ptr() == x.__array_interface__["data"][0]


def test_another_device_has_one_copy_while_anybody_needs_it() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(6, 2)
    first, second = resident(x, META), resident(x[:], META)  # "meta" stands for a device that is not the CPU
    assert first is second
    assert resident(x[:4], META) is not first
    held = len(module._HELD)
    del first, second
    gc.collect()
    assert len(module._HELD) < held


def test_a_feed_chooses_rows_of_a_shared_array() -> None:
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    y = torch.arange(10) % 2
    chosen = (torch.tensor([8, 1]), torch.tensor([3]))
    parts = [Part(t, Split(x, y, rows), Inputs(), Classification(2)) for t, rows in enumerate(chosen)]
    feed = Feed(parts, CPU)
    assert feed._x.data_ptr() == x.__array_interface__["data"][0]
    batch = next(feed.batches(3))
    assert batch.x.tolist() == x[[8, 1, 3]].tolist()
    assert batch.y.tolist() == [0, 1, 1]
    assert batch.source is not None
    assert batch.source.tolist() == [0, 0, 1]


@pytest.mark.parametrize("stride", [1, -1])
def test_parts_of_different_arrays_are_joined(stride: int) -> None:
    x, other = np.arange(8, dtype=np.float32).reshape(4, 2), -np.ones((3, 2), np.float32)
    y = torch.zeros(4, dtype=torch.long)
    feed = Feed(
        [
            Part(0, Split(x[::stride], y), Inputs(), Classification(1)),
            Part(1, Split(other, y[:3]), Inputs(), Classification(1)),
        ],
        CPU,
    )
    assert next(feed.batches(7)).x.tolist() == [*x[::stride].tolist(), *other.tolist()]
