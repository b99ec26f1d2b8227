"""The network's forward pass as a graph of operators, from torch.export, and what its inputs are.

The graph is that of evaluation mode on two equal samples. Where the network writes into tensors in a way that other
names could see (`y[:, :k] = x`), the graph is first brought into a form without such writing.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from hatrack.errors import HatrackError
from hatrack.masks import ops
from hatrack.modes import evaluating, untouched
from hatrack.swap import Slots
from hatrack.tree import arguments, call, sample

REMEDY = "choose a method that needs no unit map (pmask, for example)"


@dataclass(frozen=True)
class Graph:
    """The operators in forward order, and what the placeholders stand for."""

    nodes: list[Node]
    outputs: list[Node]
    parameters: dict[Node, str]
    constants: dict[Node, Tensor]
    mutated: list[str]  # buffers that the forward pass itself changes
    owners: dict[str, set[str]]  # parameter → the modules that hold it, several for a tied one


def export(net: nn.Module, batch: Any) -> Graph:
    """Return the graph of `net` in evaluation mode."""
    with evaluating(net), torch.no_grad(), _quiet():
        copies = {name: t.detach().clone() for name, t in [*net.named_parameters(), *net.named_buffers()]}
        with Slots(net).holding(copies), untouched(net):  # forward() may write into its own weights
            _require_features(net, batch)
        try:
            try:
                program = _exported(net, batch, called=False)
            except Exception:  # what forward() makes at its first call cannot be traced, but it can be there already
                program = _exported(net, batch, called=True)
        except Exception as error:
            raise untraceable(net, error) from error
        _open_blocks(program.graph, program.graph_module)
        return _graph(net, program)


def _exported(net: nn.Module, batch: Any, called: bool) -> torch.export.ExportedProgram:
    with untouched(net):
        if called:
            call(net, batch)
        args, kwargs = arguments(batch)
        program = torch.export.export(net, args, kwargs, strict=False)
        hidden = any(_writes_unseen(node) for node in program.graph.nodes)
        return program.run_decompositions({}) if hidden else program


def _open_blocks(graph: torch.fx.Graph, owner: nn.Module) -> None:
    """Put what stands in a block that changes no unit (autocast off, gradients on or off) in the place of the block."""
    for node in list(graph.nodes):
        name = op_name(node) if node.op == "call_function" else ""
        if name == "wrap_with_set_grad_enabled":
            body, given = node.args[1], node.args[2:]
        elif name == "wrap_with_autocast" and not node.args[2]:
            body, given = node.args[4], node.args[5:]
        else:
            continue
        block: Any = owner.get_submodule(body.target)
        _open_blocks(block.graph, block)
        *inside, output = block.graph.nodes
        outer = dict(zip((n for n in inside if n.op == "placeholder"), given, strict=True))
        with graph.inserting_before(node):
            for inner in inside:
                if inner.op != "placeholder":
                    outer[inner] = graph.node_copy(inner, outer.__getitem__)
        for user in list(node.users):
            user.replace_all_uses_with(outer[output.args[0][user.args[1]]])
            graph.erase_node(user)
        graph.erase_node(node)
        if not body.users:
            graph.erase_node(body)


def untraceable(net: nn.Module, error: Exception) -> HatrackError:
    """Say in one line where and why a network cannot be traced."""
    branches = "data-dependent" in _first_line(error)
    reason = "a Python branch depends on the data" if branches else _first_line(error)
    way_out = "write its forward without Python branches on the data, or " if branches else ""
    return HatrackError(f"{_culprit(net, error)} cannot be traced by torch.export ({reason}); {way_out}{REMEDY}.")


def _require_features(net: nn.Module, batch: Any) -> None:
    """Raise where the network cannot take such a batch, or gives no tensor of features: tracing is not what fails."""
    try:
        features = call(net, batch)
    except Exception as error:
        raise HatrackError(
            f"{type(net).__name__} cannot take inputs of shape {sample(batch)}: "
            f"{_culprit(net, error)} fails ({_first_line(error)}); give inputs that the network is made for."
        ) from error
    if isinstance(features, Tensor) and features.ndim > 1:
        return
    several = isinstance(features, list | tuple) and all(isinstance(part, Tensor) for part in features)
    shapes = [part.shape for part in features] if several else [getattr(features, "shape", None)]
    returned = ", ".join(type(features).__name__ if shape is None else str(tuple(shape)) for shape in shapes)
    raise HatrackError(
        f"{type(net).__name__} must map a batch to one tensor of features (batch, features), it returns "
        f"{returned or 'nothing'}; say which part of it they are by Learner(net, features=…), or wrap it "
        f"in a module that returns the features alone."
    )


def _graph(net: nn.Module, program: torch.export.ExportedProgram) -> Graph:
    signature = program.graph_signature
    first_name = {id(p): name for name, p in net.named_parameters()}
    canonical = {alias: first_name[id(p)] for alias, p in net.named_parameters(remove_duplicate=False)}
    owners: dict[str, set[str]] = {name: set() for name in first_name.values()}
    for path, module in net.named_modules():
        for p in module.parameters(recurse=False):
            owners[first_name[id(p)]].add(path)
    parameters: dict[Node, str] = {}
    constants: dict[Node, Tensor] = {}
    for node in program.graph.nodes:
        if node.op == "get_attr":
            user = next(iter(node.users), None)
            block = "an autocast block" if user is None or "autocast" in op_name(user) else f"{op_name(user)}()"
            raise HatrackError(
                f"{path_of(node) or type(net).__name__} uses {block}, which the unit map cannot look into; take it out "
                f"of forward, or {REMEDY}."
            )
        if node.op != "placeholder":
            continue
        if node.name in signature.inputs_to_parameters:
            parameters[node] = canonical[signature.inputs_to_parameters[node.name]]
            continue
        name = signature.inputs_to_buffers.get(node.name) or signature.inputs_to_lifted_tensor_constants.get(node.name)
        fixed = name is not None and name not in signature.buffers_to_mutate.values()
        value = None if name is None or not fixed else program.state_dict.get(name, program.constants.get(name))
        if isinstance(value, Tensor):
            constants[node] = value.detach().cpu()
    _refuse_written_parameters(program, parameters)
    nodes = list(program.graph.nodes)
    returned = zip(signature.output_specs, nodes[-1].args[0], strict=True)
    outputs = [node for spec, node in returned if spec.kind is OutputKind.USER_OUTPUT]
    mutated = sorted(set(signature.buffers_to_mutate.values()))
    return Graph(nodes, outputs, parameters, constants, mutated, owners)


def _refuse_written_parameters(program: torch.export.ExportedProgram, parameters: dict[Node, str]) -> None:
    written = dict(program.graph_signature.parameters_to_mutate)
    for node in program.graph.nodes:
        target = _written(node)
        while target is not None and target.op == "call_function" and _may_alias(target):
            target = target.args[0] if isinstance(target.args[0], Node) else None
        if target in parameters:
            written[node.name] = parameters[target]
    for name in written.values():
        raise HatrackError(
            f"{name} is changed by the network's own forward pass (as by an nn.Embedding with max_norm), so no "
            f"lock could hold it; switch that off."
        )


# ---- writing in place


def _written(node: Node) -> Node | None:
    """Return the tensor that an operator writes into, if it does."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable or not node.args:
        return None
    return node.args[0] if isinstance(node.args[0], Node) else None


def _writes_unseen(node: Node) -> bool:
    """Whether another name for the written tensor is in use afterwards, which would then hold more than it says."""
    target = _written(node)
    if target is None:
        return False
    if target.op != "call_function" or _may_alias(target):
        return True
    others = [user for user in target.users if user is not node]
    return any(user > node or _may_alias(user) for user in others)


def _may_alias(node: Node) -> bool:
    return op_name(node) in ops.MAY_ALIAS


# ---- names and places


def op_name(node: Node) -> str:
    """Return ATen's name of the operator, without overload and without the underscore of in-place forms."""
    if node.target is operator.getitem:
        return "getitem"
    packet = getattr(node.target, "overloadpacket", node.target)
    name = str(getattr(packet, "__name__", packet))
    return name[:-1] if name.endswith("_") and not name.startswith("__") else name


def module_stack(node: Node) -> list[tuple[str, str]]:
    """Return (call, module path) of all module calls around a node, outermost first; a call is unique."""
    stack = node.meta.get("nn_module_stack") or {}
    return [(call, str(path).split("@")[0]) for call, (path, _) in stack.items()]


def path_of(node: Node) -> str:
    """Return the path of the innermost module around a node, '' for the network itself."""
    stack = module_stack(node)
    return stack[-1][1] if stack else ""


def _culprit(net: nn.Module, error: BaseException) -> str:
    """Return the innermost of the network's modules that the error came through."""
    paths = {id(module): path for path, module in net.named_modules()}
    found = ""
    trace: Any = error.__traceback__
    while trace is not None:
        found = paths.get(id(trace.tb_frame.f_locals.get("self")), found)
        trace = trace.tb_next
    return f"layer {found!r} of {type(net).__name__}" if found else type(net).__name__


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to ourselves what torch.export says while it works: if it fails, our error says so in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with redirect_stderr(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
