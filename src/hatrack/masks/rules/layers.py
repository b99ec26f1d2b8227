"""Convolution and embedding: layers that read units and write new ones."""

from __future__ import annotations

from typing import Any

import torch

from hatrack.masks import ops
from hatrack.masks.rules.elementwise import as_units
from hatrack.masks.rules.rule import Call, rule


@rule(*ops.CONVOLUTIONS)
def convolution(call: Call) -> Any:
    """Read the channels of each group, write filters. Weight (out, in/groups, …), transposed (in, out/groups, …)."""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    x = as_units(call, x)
    if weight.ids is not None or (bias is not None and bias.ids is not None):
        return call.unknown()
    space = (1,) * ops.CONVOLUTIONS[call.name]
    ids = x.unit_ids()
    channel = ids.ndim - len(space) - 1
    read = call.unions.along(ids, channel).reshape(-1)
    written = call.fresh(call.shape[channel], weight)
    into = written if "transpose" not in call.name else read
    other = read if into is written else written
    per_group = len(other) // call["groups"]
    group = torch.arange(len(into)) // (len(into) // call["groups"])
    across = other[group[:, None] * per_group + torch.arange(per_group)].view(len(into), per_group, *space)
    down = into.view(-1, 1, *space)
    out, in_ = (down, across) if into is written else (across, down)
    by = [call.recorder.use(weight, (out, in_), out)]
    if bias is not None:
        by.append(call.recorder.use(bias, (written,), written))
    call.placement.read_by_weight(call.node, x, weight, by[0], in_)
    return call.written(written.view(-1, *space).expand(call.shape), *by)


@rule("embedding")
def embedding(call: Call) -> Any:
    """Look rows up: every column of the table writes a unit."""
    weight, rows = call["weight"], call["indices"]
    if not weight.held or rows.carries:
        return call.unknown()
    if rows.known is not None:  # the same rows for every sample: positions, distances
        return weight.rearranged(call.shape, lambda pos: pos[rows.known])
    written = call.fresh(call.shape[-1], weight)
    uses = call.recorder.use(weight, (written[None, :],), written[None, :])
    return call.written(written.expand(call.shape), uses)
