"""Where units are read, and where their gates go.

An operator that mixes units must see closed ones as zeros. There are three places for the gate, tried in this order:

1. the input of the innermost module around the operator that is called with the value alone: a hook does it;
2. the weight that multiplies the value, for a bare linear() or matmul(): a·(Wx) = (aW)x;
3. the parameters that wrote the value, where only scaling and rearranging lie between.

Where none can be had, the units are pinned: they stay on for every task, and a note says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from hatrack.masks.abstract_value import Value
from hatrack.masks.module_calls import Calls, ModuleCall
from hatrack.masks.recorder import Recorder, Uses
from hatrack.masks.union_find import ALWAYS_ON, compact
from hatrack.masks.unitmap import layer_of

MIXES = "mixes units in forward() itself"


class Placement:
    """Places gates while the walk goes on."""

    def __init__(
        self, recorder: Recorder, calls: Calls, values: Mapping[Node, Any], owners: Mapping[str, set[str]], root: str
    ) -> None:
        self._at_modules: dict[tuple[str, int], Tensor] = {}  # (module, number of its call) → units of its input
        self.readers: list[tuple[Tensor, str]] = []
        self._recorder = recorder
        self.calls = calls
        self._values = values
        self._owners = owners
        self._root = root

    def where(self, node: Node) -> str:
        """Name the innermost module around a node for people: the network goes by the name of its class."""
        return self.calls.module(node) or self._root

    def layer(self, node: Node, weight: Value) -> str:
        """Name the layer that a weight belongs to: its module, or the parameter where the network itself holds it."""
        here = self.calls.module(node)
        if not weight.held or (here and any(here in self._owners[held.name] for held in weight.held)):
            return self.where(node)
        first = weight.held[0].name
        return layer_of(first).partition(".parametrizations")[0] or first

    def gated_modules(self) -> dict[str, list[Tensor]]:
        """Return the modules with a gate on their input, in forward order: the units that each call reads."""
        names = dict.fromkeys(module for module, _ in self._at_modules)
        ungated = torch.full((1,), ALWAYS_ON)
        return {
            name: [self._at_modules.get((name, n), ungated) for n in range(self.calls.counts[name])] for name in names
        }

    def read(self, node: Node, *values: Value, zero: bool = False, why: str = MIXES) -> None:
        """Put down that a node mixes the units of `values`, and gate them; pin them where that fails.

        A gate on a module's input leaves zeros of a closed unit where it is read, or at least a constant (1 - 0 = 1).
        That is good enough for a mean. It is not for what a weight multiplies (`zero`), nor for one of two factors,
        whose units have been made one; zeros in either factor are.
        """
        if not self._notice(self.where(node), *values):
            return
        around = self.calls.around(node)
        zeros = [self._at_module(around, value.zeros) or self._at_writers(value) for value in values]
        if any(zeros):
            return
        if zero or not all(self._at_module(around, value.origins) for value in values):
            self._pin(node, *values, why=why)

    def read_by_weight(self, node: Node, x: Value, weight: Value, uses: Uses, read: Tensor) -> None:
        """Gate what a linear or convolution layer reads; `read` is the unit read by each entry of the weight."""
        if not self._notice(self.layer(node, weight), x):
            return
        if not self._at_module(self.calls.around(node)[:1], x.zeros) and not self._in_weight(weight, uses, read):
            self.read(node, x, zero=True)

    def read_in_weight(self, node: Node, x: Value, weight: Value, uses: Uses, read: Tensor) -> None:
        """Do the same where only the weight can be gated (inside a recurrent operator)."""
        if self._notice(self.layer(node, weight), x) and not self._in_weight(weight, uses, read):
            self._pin(node, x)

    def _in_weight(self, weight: Value, uses: Uses, read: Tensor) -> bool:
        pattern = self._recorder.pattern(weight.held[0], weight.shape, read) if len(weight.held) == 1 else None
        if pattern is None:
            return False
        uses[0].gates["input"] = pattern
        return True

    def _pin(self, node: Node, *values: Value, why: str = MIXES) -> None:
        ids = torch.cat([value.unit_ids().reshape(-1) for value in values])
        self._recorder.pin(ids, self.where(node), f"{why}, where no gate can be put")

    def _notice(self, reader: str, *values: Value) -> bool:
        live = torch.cat([self._recorder.unions.live(v.unit_ids()) for v in values])
        if len(live):
            self.readers.append((live, reader))
        return bool(len(live))

    def _at_module(self, around: list[ModuleCall], nodes: Collection[Node]) -> bool:
        """Gate the input of the innermost module that gets the value of one of `nodes`."""
        for call in around:
            if call.input is None or call.input not in nodes:
                continue
            ids = compact(self._recorder.unions.roots(compact(self._values[call.input].unit_ids())))
            if any(ids.shape[axis] > 1 for axis in call.batch_axes):
                continue  # samples and units share an axis, whose length changes from batch to batch
            self._at_modules[(call.module, call.number)] = ids
            return True
        return False

    def _at_writers(self, value: Value) -> bool:
        units = self._recorder.unions.live(value.unit_ids())
        for use in value.writers:
            assert use.written is not None
            mine = torch.isin(self._recorder.unions.roots(use.written), units)
            use.gates["output"] = torch.where(mine, use.written, use.gates.get("output", 0))
        return bool(value.writers)
