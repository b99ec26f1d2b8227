"""Scaled dot-product attention: queries and keys are read in their product, values pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from hatrack.masks.rules.keep import born
from hatrack.masks.rules.products import between
from hatrack.masks.rules.registry import Call, rule


@rule("scaled_dot_product_attention")
def attention(call: Call) -> Any:
    """softmax(q·kᵀ + mask)·v: the units along the features of a head are read; those of v stay apart."""
    q, k, v = (born(call, call[name]) for name in ("query", "key", "value"))
    mask = call["attn_mask"]
    if mask is not None:
        call.recorder.freeze(mask, why="it acts on attention scores, which belong to no unit")
        if mask.carries:
            call.reading.read(call.node, mask)
    queries, keys, values = q.unit_ids(), k.unit_ids(), v.unit_ids()
    if call["enable_gqa"]:  # each key and value head serves several query heads
        keys = keys.repeat_interleave(queries.shape[-3] // keys.shape[-3], dim=-3)
        values = values.repeat_interleave(queries.shape[-3] // values.shape[-3], dim=-3)
    scores = torch.Size([*call.shape[:-2], queries.shape[-2], keys.shape[-2]])
    left, right = replace(q, ids=queries), replace(k, ids=keys.transpose(-1, -2))
    if between(call, left, right, scores).carries:
        return call.unknown()
    passed = call.unions.along(values, *(axis for axis in range(values.ndim) if axis != values.ndim - 2))
    return call.units(passed.expand(call.shape))
