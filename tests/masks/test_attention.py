"""Attention over some of its units, against torch's own over all of them with zeros in the places of the others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hatrack.masks.attention import heads, narrowed_attention
from hatrack.masks.grouped import balanced
from hatrack.masks.trace import derive


class Self(nn.Module):
    def __init__(self, batch_first: bool, bias: bool = True) -> None:
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.attend = nn.MultiheadAttention(12, 3, batch_first=batch_first, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.attend(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_computes_as_the_whole_with_zeros(batch_first: bool, bias: bool) -> None:
    torch.manual_seed(0)
    net = Self(batch_first, bias).eval().requires_grad_(True)
    units = derive(net, torch.randn(1, 5, 6))
    (of_heads,) = heads(net, units).values()
    gone = torch.zeros(units.size, dtype=torch.bool)
    gone[of_heads.rows[0]] = gone[of_heads.columns[0]] = True  # a whole head
    gone[of_heads.rows[1:, 1]] = gone[of_heads.columns[1:, 2:]] = True
    gone[torch.tensor([3, 4])] = True  # of what it reads
    assert torch.equal(balanced([of_heads], gone), gone)
    layer = net.attend.double().requires_grad_(False)
    query, value = (~gone[part].flatten() for part in (of_heads.rows, of_heads.columns))
    with torch.no_grad():
        for part, stays in enumerate((query, query, value)):
            rows = slice(12 * part, 12 * part + 12)
            layer.in_proj_weight[rows] *= stays[:, None]
            if layer.in_proj_bias is not None:
                layer.in_proj_bias[rows] = torch.randn(12).double() * stays
    x = torch.randn(4, 5, 12).double()
    x[..., [3, 4]] = 0
    mask = torch.randn(*(2 * (5 if batch_first else 4,))).double()
    few = x[..., [0, 1, 2, *range(5, 12)]]
    want = [layer(x, x, x, need_weights=False, attn_mask=m)[0] for m in (None, mask)]
    layer.out_proj.weight = nn.Parameter(layer.out_proj.weight[:, value], requires_grad=False)
    small = narrowed_attention(layer, units.uses["attend.in_proj_weight"], of_heads, gone)
    for m, answer in zip((None, mask), want, strict=True):
        torch.testing.assert_close(small(few, few, few, need_weights=False, attn_mask=m)[0], answer)
    with pytest.raises(RuntimeError):
        small(few, few, few, key_padding_mask=torch.zeros(few.shape[:2], dtype=torch.bool))
