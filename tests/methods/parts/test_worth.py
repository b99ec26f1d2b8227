"""What gates are worth, where it can be said beforehand; and the search for how many are closed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest
import torch
from torch import Tensor

from hatrack.methods.parts.worth import learned_worth, least, most
from hatrack.targets import Regression


@pytest.fixture
def inputs() -> Iterator[Tensor]:
    torch.manual_seed(0)
    return repeat(torch.randn(256, 6))


def test_of_a_linear_map_a_gate_is_worth_what_its_weight_is(inputs: Iterator[Tensor]) -> None:
    """E (f_a − f_1)² = Σ w²·(1 − a)² for inputs that are uncorrelated, so that small weights close first."""
    weight = torch.tensor([0.1, 3.0, 0.3, 1.0, 0.0, 2.0])
    target = Regression(mean=[0.0], std=[1.0])
    worth = learned_worth(lambda x, a: (x * a) @ weight[:, None], torch.zeros(6), target, inputs)
    assert worth.argsort().tolist() == weight.argsort().tolist()
    in_millimetres = learned_worth(lambda x, a: 1000 * (x * a) @ weight[:, None], torch.zeros(6), target, inputs)
    torch.testing.assert_close(in_millimetres, worth, rtol=1e-3, atol=1e-3)


def test_what_is_taken_is_never_given_up(inputs: Iterator[Tensor]) -> None:
    taken = torch.tensor([0.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    weight = torch.tensor([1.0, 2.0, 0.0, 3.0, 0.0, 4.0])
    worth = learned_worth(lambda x, a: (x * a) @ weight[:, None], taken, Regression(mean=[0.0], std=[1.0]), inputs)
    assert worth.isinf().tolist() == taken.bool().tolist()
    assert most(worth, 3).tolist() == [False, False, True, False, True, True]


def test_of_equal_gates_the_first_are_closed() -> None:
    assert most(torch.tensor([2.0, 1.0, 1.0, 1.0]), 2).tolist() == [True, False, False, True]


@pytest.mark.parametrize("answer", range(12))
def test_the_least_number_is_found(answer: int) -> None:
    asked: list[int] = []
    assert least(lambda n: bool(asked.append(n)) or n >= answer, 10) == min(answer, 10)
    assert len(asked) <= 4
