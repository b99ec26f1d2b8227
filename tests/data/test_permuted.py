from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hatrack.data import tasks
from hatrack.errors import HatrackError

from .make import pixels, write_set

CPU = torch.device("cpu")


def test_every_task_shows_the_same_pictures_in_another_order_of_pixels(data: Path) -> None:
    write_set(data, "mnist", train=4, test=2)
    made = tasks("permuted-mnist", seed=1, data=data, tasks=3)
    assert [task.name for task in made] == [f"mnist permutation {n}" for n in (1, 2, 3)]
    plain = np.array([pixels(row, row % 10, (1, 28, 28)) for row in range(20)]).reshape(20, -1)
    orders = set()
    for task in made:
        assert task.classes == 10
        assert task.test is not None
        x, y = task.test.on(CPU)
        order = task.inputs.permutation
        assert order is not None
        assert sorted(order) == list(range(784))
        shown = task.inputs.on(CPU)(x).reshape(20, -1).numpy()
        np.testing.assert_allclose(shown, (plain[:, list(order)] / 255 - 0.1307) / 0.3081, rtol=1e-4, atol=1e-5)
        assert y.tolist() == list(range(10)) * 2
        orders.add(order)
    assert len(orders) == 3


def test_the_same_pictures_are_held_out_in_every_task() -> None:
    made = tasks("permuted-digits", seed=2)
    assert len(made) == 10
    held = []
    for task in made:
        assert task.valid is not None
        held.append(task.valid.on(CPU)[0])
    assert all(torch.equal(held[0], other) for other in held)
    assert len({task.about["rows"] for task in made}) == 10


def test_fewer_than_one_task_is_refused() -> None:
    with pytest.raises(HatrackError, match="tasks must be 1 or more, got 0"):
        tasks("permuted-digits", tasks=0)
