"""States of optimisers and schedulers as plain data: through JSON and back, in the form that a fresh one has."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from hatrack import HatrackError
from hatrack.learn.plain_state import encoded, filled, numbers_of, restore, tensors_of


def through(fresh: Any, state: Any) -> Any:
    return filled(fresh, json.loads(json.dumps(encoded(state, "Mine"))))


@pytest.mark.parametrize(
    ("fresh", "state"),
    [
        ({"lr": 0.0}, {"lr": 0.1 + 0.2, "best": float("inf")}),
        ({"betas": (0.0, 0.0)}, {"betas": (0.9, 0.999)}),
        ({"lambdas": [{"a": 1}, None]}, {"lambdas": [{"a": 2}, None]}),
        ({"phases": []}, {"phases": [1.5, "cos", True, None]}),
        ({"of": {1: (2, {3: "x"})}}, {"of": {1: (5, {3: "y"})}}),
    ],
)
def test_numbers_and_texts_come_back_as_they_were(fresh: Any, state: Any) -> None:
    assert through(fresh, state) == state


def test_a_counter_counts_as_before() -> None:
    found = through({"milestones": Counter([3, 3, 10])}, {"milestones": Counter([3, 3, 10])})
    assert found == {"milestones": Counter({3: 2, 10: 1})}
    assert isinstance(found["milestones"], Counter)


def test_tensors_come_back_in_their_type() -> None:
    for value in (torch.tensor(0.1), torch.tensor([1.5, 2.5], dtype=torch.float64), torch.tensor(3)):
        found = through({"x": torch.zeros_like(value)}, {"x": value})["x"]
        assert torch.equal(found, value)
        assert found.dtype == value.dtype


def test_code_is_left_to_the_fresh_object_and_all_else_is_refused() -> None:
    net = nn.Linear(1, 1)
    mine = {"f": max, "net": net, "optimizer": SGD(net.parameters())}
    assert json.dumps(encoded(mine, "Mine")) == '{"f": null, "net": null, "optimizer": null}'
    assert through(mine, mine) == mine
    with pytest.raises(HatrackError, match=r"^Mine keeps a Generator, which cannot be saved in the middle of a task"):
        encoded({"draw": torch.Generator()}, "Mine")
    optimizer = SGD(net.parameters())
    optimizer.state[net.weight]["draw"] = object()
    with pytest.raises(HatrackError, match=r"^SGD keeps what cannot be saved in the middle of a task"):
        numbers_of(optimizer)


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
def test_an_optimiser_goes_on_bit_for_bit(rate: Any) -> None:
    torch.manual_seed(0)
    nets = [nn.Linear(3, 2) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    one, other = (AdamW(net.parameters(), lr=rate) for net in nets)
    gradients = [[torch.randn_like(p) for p in nets[0].parameters()] for _ in range(6)]
    for step, each in enumerate(gradients):
        if step == 3:
            numbers = json.loads(json.dumps(numbers_of(one)))
            restore(other, numbers, tensors_of(one, "mine"), "mine")
            nets[1].load_state_dict(nets[0].state_dict())
        for optimizer, net in ((one, nets[0]), (other, nets[1])):
            if step >= 3 or optimizer is one:
                for p, gradient in zip(net.parameters(), each, strict=True):
                    p.grad = gradient.clone()
                optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True))
    assert type(other.param_groups[0]["lr"]) is type(one.param_groups[0]["lr"])
