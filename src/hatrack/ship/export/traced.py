"""A cut-out as one flat graph of torch's operators, whatever classes it is made of: what all formats are made from.

The first axis of every input is free, all others are as the task's were. What tells of the machine that traced it (the
files of the source, the inputs) is taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx, nn
from torch.export import Dim, ExportedProgram, export

from hatrack.errors import HatrackError
from hatrack.ship.export.needed import quiet
from hatrack.tree import leaves

TOLD = ("stack_trace", "custom")


def traced(cut: nn.Module, x: Any, task: str) -> ExportedProgram:
    """Return a task's cut-out as it takes a batch of inputs such as `x`, of any length."""
    given = tuple(leaves(x))
    free = tuple({0: Dim.DYNAMIC} for _ in given)
    with quiet(), torch.no_grad():
        try:  # which follows len(x) and modules under several names
            program = export(cut, given, dynamic_shapes=free, strict=True)
        except Exception:  # what cannot be traced fails in any way
            try:  # which takes more of Python
                program = export(cut, given, dynamic_shapes=free, strict=False)
            except Exception as error:
                raise refused(task, "torch.export", str(error), _within(error, cut)) from error
    program._example_inputs = None
    for node in program.graph.nodes:
        for key in TOLD:
            node.meta.pop(key, None)
    return program


def refused(task: str, tool: str, said: str, where: str) -> HatrackError:
    """Say that a tool cannot write the network down: where in it, and the first line of why."""
    first = next((line for line in said.splitlines() if line.strip()), tool)
    return HatrackError(f"task {task!r} cannot be exported: {tool} cannot write down {where} ({first.strip():.200}).")


def layer(program: ExportedProgram, name: str, operator: str) -> str:
    """Name the layer in which an operator is called: at the node of that name, else where it is first."""
    calls = [node for node in program.graph.nodes if node.op == "call_function" and operator in str(node.target)]
    named = [node for node in calls if node.name == name]
    return _named((named or calls)[0]) if calls else f"the operator {operator}"


def _named(node: fx.Node) -> str:
    stack: Iterable[tuple[str, Any]] = node.meta.get("nn_module_stack", {}).values()
    path, kind = next(iter(reversed([*stack])), ("", ""))
    name = kind if isinstance(kind, str) else kind.__name__
    short = path.split(".", 2)[-1] if path.startswith("L[") else path
    return f"{short or 'the network'} ({name.rpartition('.')[2]})"


def _within(error: BaseException, cut: nn.Module) -> str:
    """Name the class whose forward() torch.export has stumbled in, as far as its words tell."""
    kinds = {type(module).__name__ for module in cut.modules()}
    found = [name for name in re.findall(r"\b\w+\b", str(error)) if name in kinds and name != type(cut).__name__]
    net = type(cut.get_submodule("net")).__name__
    return found[-1] if found else net
