"""Histograms over decades against counting one by one."""

from __future__ import annotations

import math

import pytest
import torch

from hatrack.measure.histogram import log_histogram


def test_values_are_counted_by_their_logarithm() -> None:
    values = [0.0, 0.0, 1.0, 1.5, 1.8, 100.0, 3e-5]
    found = log_histogram(torch.tensor(values).view(7, 1))
    assert (found["start"], found["step"], found["zeros"]) == (-4.75, 0.25, 2)
    expected = [0] * len(found["counts"])
    for value in values:
        if value:
            expected[math.floor((math.log10(value) + 4.75) / 0.25)] += 1
    assert found["counts"] == expected
    assert expected[-1] == expected[0] == 1
    assert sum(expected) == 5


@pytest.mark.parametrize(("values", "zeros"), [([], 0), ([0.0], 1), ([math.nan, math.inf], 0)])
def test_without_a_value_there_are_no_counts(values: list[float], zeros: int) -> None:
    assert log_histogram(torch.tensor(values)) == {"start": 0.0, "step": 0.25, "counts": [], "zeros": zeros}
