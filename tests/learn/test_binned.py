"""What is kept of the masks on single weights, against plain loops and what the methods themselves say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hatrack
from hatrack.learn.binned import binned
from hatrack.methods import METHODS
from hatrack.nets import build


@pytest.mark.parametrize("shape", [(3, 5), (130, 4), (7, 3, 11, 5), (128, 257)])
def test_fields_are_means_of_neighbours(shape: tuple[int, ...]) -> None:
    amount = torch.from_numpy(np.random.default_rng(0).random(shape))
    table = amount.reshape(shape[0], -1)
    down, across = (-(-size // 128) for size in table.shape)
    expected = [
        [round(255 * float(table[i : i + down, j : j + across].mean())) for j in range(0, table.shape[1], across)]
        for i in range(0, table.shape[0], down)
    ]
    assert binned(amount).tolist() == expected
    assert max(binned(amount).shape) <= 128


def learned(method: str) -> hatrack.Learner:
    learner = hatrack.Learner(build("mlp", (4,), widths=(6, 5)), METHODS[method](), epochs=1, device="cpu")
    for name in ("first", "second"):
        learner.learn(hatrack.Task(name, (torch.randn(20, 4), torch.arange(20) % 2)), progress=False)
    return learner


@pytest.mark.parametrize("method", ["pmask", "packnet", "supsup", "wsn"])
def test_small_masks_are_kept_entry_by_entry(method: str) -> None:
    learner = learned(method)
    fields = learner.weight_masks()
    assert fields is not None
    assert set(fields) == {f"weights/{task}/{layer}.weight" for task in (0, 1) for layer in ("fc1", "fc2")}
    for task in (0, 1):
        use = learner.method.use(task)
        assert use is not None
        for layer in ("fc1.weight", "fc2.weight"):
            assert torch.equal(fields[f"weights/{task}/{layer}"], (255 * use[layer]).byte())
            assert 0 < use[layer].mean() <= 1


def test_what_is_known_of_all_tasks_together_is_kept_as_such() -> None:
    learner = learned("fisher-mask")
    fields = learner.weight_masks()
    assert fields is not None
    frozen = learner.method.occupied()
    assert frozen is not None
    assert torch.equal(fields["weights/all/fc2.weight"], (255 * frozen["fc2.weight"]).byte())
    assert set(fields) == {"weights/all/fc1.weight", "weights/all/fc2.weight"}


@pytest.mark.parametrize("method", ["hat", "sgd", "ewc"])
def test_gates_say_it_and_without_masks_there_is_nothing(method: str) -> None:
    assert learned(method).weight_masks() is None
