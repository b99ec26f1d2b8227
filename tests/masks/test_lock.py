"""The lock: scaled gradients against numpy, locked entries bit for bit under optimisers that would move them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hatrack.masks.lock import Lock


def test_gradients_are_scaled_by_what_may_pass() -> None:
    p = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    amount = torch.rand(4, 3, dtype=torch.float64)
    p.grad = torch.randn(4, 3, dtype=torch.float64)
    expected = p.grad.numpy() * (1 - amount.numpy())
    Lock({"p": p}, {"p": amount}).on_gradients()
    np.testing.assert_allclose(p.grad.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_locked_entries_keep_their_bits_whatever_happens_to_the_tensor(dtype: torch.dtype) -> None:
    p = nn.Parameter(torch.randn(50).to(dtype))
    p.data[:3] = torch.tensor([-0.0, 0.0, 1e-30])
    before = p.detach().clone()
    locked = torch.rand(50) < 0.5
    locked[:3] = True
    lock = Lock({"p": p}, {"p": locked.float()})
    p.data.copy_(torch.full((50,), torch.nan))
    lock.after_step()
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[p.element_size()]
    assert torch.equal(p.detach().view(words)[locked], before.view(words)[locked])
    assert torch.isnan(p.detach()[~locked]).all()


def test_an_entry_that_is_only_partly_locked_is_not_restored() -> None:
    p = nn.Parameter(torch.zeros(2))
    lock = Lock({"p": p}, {"p": torch.tensor([0.999, 1.0])})
    p.data.fill_(5.0)
    lock.after_step()
    assert p.tolist() == [5.0, 0.0]


def test_parameters_without_gradient_are_left_alone() -> None:
    p = nn.Parameter(torch.ones(2))
    Lock({"p": p}, {"p": torch.ones(2)}).on_gradients()
    assert p.grad is None
