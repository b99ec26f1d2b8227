"""Norms over fewer units, against torch's own over all of them with zeros in the places of the others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hatrack.masks.narrow import narrowed

KEEP = torch.tensor([0, 1, 2, 5, 7])


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.LayerNorm(8), (4, 3, 8)),
        (nn.LayerNorm(8, eps=0.1, bias=False), (4, 8)),
        (nn.RMSNorm(8), (4, 3, 8)),
        (nn.RMSNorm(8, eps=0.1), (4, 8)),
        (nn.GroupNorm(4, 8), (4, 8, 3, 5)),
        (nn.GroupNorm(2, 8, eps=0.1), (4, 8, 3)),
        (nn.GroupNorm(1, 8), (4, 8)),
    ],
    ids=str,
)
def test_closed_units_count_as_zeros(norm: nn.Module, shape: tuple[int, ...]) -> None:
    numbers = torch.Generator().manual_seed(0)
    axis = 1 if isinstance(norm, nn.GroupNorm) else -1
    with torch.no_grad():
        for p in norm.double().parameters():
            p.copy_(torch.randn(8, generator=numbers))
    few = torch.randn(shape, generator=numbers, dtype=torch.float64).index_select(axis, KEEP)
    whole = torch.zeros(shape, dtype=torch.float64).index_copy(axis, KEEP, few)
    want = norm(whole).index_select(axis, KEEP)
    for name, p in list(norm.named_parameters()):
        setattr(norm, name, nn.Parameter(p.detach()[KEEP]))
    small = narrowed(norm, KEEP)
    assert small is not None
    torch.testing.assert_close(small(few), want)


def test_another_norm_is_none_of_these() -> None:
    class Own(nn.LayerNorm):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input

    assert narrowed(Own(8), KEEP) is None
