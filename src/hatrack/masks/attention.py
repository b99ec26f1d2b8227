"""Attention over some of its units: heads keep equal numbers of queries, and of values; the scale is the whole head's.

    softmax(q·k / √(units that a head had))·v

Queries and keys whose units are closed add nothing to the product, so that they can go; values go with the columns of
the output layer that read them. A head goes as a whole. torch.fx writes it down.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from hatrack.masks.grouped import Grouped
from hatrack.masks.narrow import written
from hatrack.masks.slicing import Uncuttable, kept, taken
from hatrack.masks.unitmap import UnitMap, Use


def heads(net: nn.Module, units: UnitMap) -> dict[str, Grouped]:
    """Return, by module, the units of queries (rows) and values (columns) head by head."""
    found = {}
    for path, layer in net.named_modules():
        name = f"{path}.in_proj_weight"
        if isinstance(layer, nn.MultiheadAttention) and name in units.uses and layer.in_proj_weight is not None:
            rows = [use.units[0].cpu() for use in units.uses[name]]
            if all(row.shape == (3 * layer.embed_dim, 1) for row in rows):
                query, _, value = reduce(torch.maximum, rows).view(3, layer.num_heads, layer.head_dim)
                found[path] = Grouped(name, query, value)
    return found


def narrowed_attention(layer: nn.MultiheadAttention, uses: list[Use], of_heads: Grouped, gone: Tensor) -> nn.Module:
    """Return the layer, whose output layer is cut already, without the units in `gone`."""
    usual = type(layer).forward is nn.MultiheadAttention.forward and not layer.add_zero_attn and layer.bias_k is None
    if not usual or layer._forward_hooks or layer._forward_pre_hooks:
        raise Uncuttable("attention of this kind needs its full width")
    width = layer.embed_dim
    made: list[tuple[Tensor, Tensor | None]] = []
    for part in range(3):
        rows = slice(part * width, (part + 1) * width)
        own = [Use(tuple(t[rows] if t.shape[0] > 1 else t for t in use.units)) for use in uses]
        keep = kept(own, (width, width), gone)
        bias = None if layer.in_proj_bias is None else taken(layer.in_proj_bias[rows], [keep[0]])
        made.append((taken(layer.in_proj_weight[rows], keep), bias))
    new = written(_Attention(layer, made, int(of_heads.alive(gone).sum())))
    new.batch_first = False  # type: ignore[assignment] # so that torch's encoder layer calls it
    return new


class _Attention(nn.Module):
    query_weight: Tensor
    key_weight: Tensor
    value_weight: Tensor
    query_bias: Tensor | None
    key_bias: Tensor | None
    value_bias: Tensor | None

    def __init__(self, layer: nn.MultiheadAttention, made: list[tuple[Tensor, Tensor | None]], heads: int) -> None:
        super().__init__()
        for name, (weight, bias) in zip(("query", "key", "value"), made, strict=True):
            self.register_parameter(f"{name}_weight", nn.Parameter(weight, requires_grad=False))
            self.register_parameter(f"{name}_bias", None if bias is None else nn.Parameter(bias, requires_grad=False))
        self.out_proj, self.heads, self.batch_first = layer.out_proj, heads, layer.batch_first
        self.scale = layer.head_dim**-0.5

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        # A mask of padding, which is not known here, fails where no bias can be like it.
        q = self._split(linear(query, self.query_weight, key_padding_mask), self.query_bias)
        k = self._split(linear(key, self.key_weight), self.key_bias)
        v = self._split(linear(value, self.value_weight), self.value_bias)
        y = scaled_dot_product_attention(q, k, v, attn_mask, scale=self.scale).transpose(1, 2).flatten(2)
        out: Tensor = self.out_proj(y)
        return out if self.batch_first else out.transpose(0, 1), None

    def _split(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x = x if bias is None else x + bias
        x = x if self.batch_first else x.transpose(0, 1)
        split: Tensor = x.unflatten(-1, (self.heads, -1))
        return split.transpose(1, 2)
