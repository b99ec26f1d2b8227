from __future__ import annotations

import pytest
import torch

from hatrack.measure import blocked, capacity, reuse, share


def test_capacity_counts_weights_whose_smaller_gate_is_above_one_half() -> None:
    use = {
        "conv1.weight": torch.tensor([[0.0, 0.5], [0.51, 1.0]]),
        "fc.weight": torch.tensor([[1.0, 1.0, 0.2, 0.0]]),
    }
    found = capacity(use)
    assert found["layers"] == {"conv1": 0.5, "fc": 0.5}
    assert found["total"] == 0.5


def test_weight_and_bias_of_a_layer_count_together() -> None:
    marks = {
        "block.0.weight": torch.tensor([True, True, False]),
        "block.0.bias": torch.tensor([True]),
        "scale": torch.tensor([False, False, False, False]),
    }
    found = share(marks)
    assert found["layers"] == {"block.0": 0.75, "scale": 0.0}
    assert found["total"] == pytest.approx(3 / 8)


def test_only_an_entry_that_passes_nothing_is_fully_blocked() -> None:
    found = blocked({"fc.weight": torch.tensor([0.0, 1e-7, 0.5, 1.0]), "fc.bias": torch.tensor([0.0])})
    assert found == {"total": 0.4, "layers": {"fc": 0.4}}


def test_nothing_to_count_is_zero() -> None:
    assert share({}) == {"total": 0.0, "layers": {}}


def test_reuse_between_each_pair_of_tasks() -> None:
    def used(*marks: int) -> dict[str, torch.Tensor]:
        return {"a": torch.tensor(marks[:2]).bool(), "b": torch.tensor(marks[2:]).bool()}

    table = reuse([used(1, 1, 1, 0), used(1, 0, 1, 1), used(0, 0, 0, 0), used(0, 1, 0, 1)])
    assert table == [
        [None, pytest.approx(2 / 3), 0.0, pytest.approx(1 / 3)],
        [None, None, 0.0, pytest.approx(1 / 3)],
        [None, None, None, None],
        [None, None, None, None],
    ]
