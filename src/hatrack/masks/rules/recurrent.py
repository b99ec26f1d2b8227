"""LSTM, GRU and plain recurrent layers.

A hidden unit i owns row i of every gate's block, in the weights from the input and from the hidden state alike; it
reads the input's units and, one step later, all hidden units. No module stands between the steps, so both reads are
gated in the weights.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from hatrack.masks import ops
from hatrack.masks.abstract_value import Value
from hatrack.masks.rules.rule import Call, rule
from hatrack.masks.union_find import ALWAYS_ON

CELLS = {f"{name}_cell": blocks for name, blocks in ops.RECURRENT.items()}


@rule(*ops.RECURRENT)
def layers(call: Call) -> Any:
    """Walk through stacked layers and their directions; parameters come in that order."""
    x, states, params = call.get("input"), call.get("hx"), call.get("params")
    biased, directions = call.get("has_biases"), 2 if call.get("bidirectional") else 1
    count = 4 if biased else 2
    if x is None or len(params) != count * directions * call["num_layers"]:  # packed sequences, projections
        return call.unknown()
    states = states if isinstance(states, list | tuple) else [states]
    read = call.unions.along(x.unit_ids(), -1).reshape(-1)
    value, hidden = x, []
    for layer in range(call["num_layers"]):
        units = []
        for direction in range(directions):
            number = layer * directions + direction
            units.append(
                _cell(call, value, read, params[number * count : (number + 1) * count], ops.RECURRENT[call.name])
            )
            for state in states:
                _start(call, state, number, units[-1])
        hidden += units
        read, value = torch.cat(units), Value(torch.Size([1]), torch.cat(units)[None], reached=True)
    output, *final = call.node.meta["val"]
    last = torch.stack(hidden)[:, None, :]
    return [
        call.units(read.expand(output.shape), shape=output.shape),
        *(call.units(last.expand(m.shape), shape=m.shape) for m in final),
    ]


@rule(*CELLS)
def cell(call: Call) -> Any:
    """One step: the new state's units are those of the old state."""
    x, states = call["input"], call["hx"]
    states = states if isinstance(states, list | tuple) else [states]
    read = call.unions.along(x.unit_ids(), -1).reshape(-1)
    params = [v for v in (call[k] for k in ("w_ih", "w_hh", "b_ih", "b_hh")) if v is not None]
    units = _cell(call, x, read, params, CELLS[call.name])
    for state in states:
        _carry(call, state, units)
    return call.results(lambda shape: call.units(units.expand(shape), shape=shape))


def _cell(call: Call, x: Value, read: Tensor, params: list[Value], blocks: int) -> Tensor:
    """Write the hidden units of one layer and direction."""
    from_input, from_hidden, *biases = params
    units = call.fresh(from_hidden.shape[1], from_hidden)
    rows = units.repeat(blocks)
    entering = call.recorder.use(from_input, (rows[:, None], read[None, :]))
    again = call.recorder.use(from_hidden, (rows[:, None], units[None, :]))
    for bias in biases:
        call.recorder.use(bias, (rows,))
    call.placement.read_by_weight(call.node, x, from_input, entering, read[None, :])
    hidden = Value(units.shape, units, reached=True)
    call.placement.read_in_weight(call.node, hidden, from_hidden, again, units[None, :])
    return units


def _start(call: Call, state: Value, number: int, units: Tensor) -> None:
    """Tie the state that a layer starts from to the units it becomes."""
    shape = state.shape[1:]
    part = state.rearranged(shape, itemgetter(number))
    _carry(call, part if state.ids is None else Value(shape, state.ids[number]), units)


def _carry(call: Call, state: Value, units: Tensor) -> None:
    if state.held:
        call.recorder.use_elementwise(state, units.expand(state.shape))
    elif state.ids is not None:
        before, after = torch.broadcast_tensors(call.now(state.ids), units)
        call.unions.merge(before[before != ALWAYS_ON], after[before != ALWAYS_ON])
