"""A network as a Python file that needs torch and safetensors alone: one operator of torch's a line.

No class of anybody's is in it, hatrack's and the user's neither: what their forward() does is written out by
torch.export. The weights are those of the cut-out, packed (ship/stored.py), beside it in weights.safetensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from hatrack import __version__, atomic
from hatrack.errors import HatrackError
from hatrack.ship.stored import packed
from hatrack.tree import leaves

WEIGHTS, CODE = "weights.safetensors", "network.py"
NUMBERS = 4096  # that a constant in the code may have

TEMPLATE = '''"""{title}

Written by hatrack {version}. Needs torch and safetensors: network = load(); answer = network({inputs}).
{about}
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from torch import device

inf, nan = float("inf"), float("nan")

TENSORS = {{  # by what it is called below: its name in {weights}
{tensors}}}


class Network(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        for name, stored in TENSORS.items():
            self.register_buffer(name, tensors[stored])
{constants}
    @torch.no_grad()
{forward}

def load(folder=Path(__file__).parent):
    """Return the network with its weights."""
    return Network(read(Path(folder) / "{weights}")).eval()


def read(path):
    """Return tensors by name; of those that are mostly 0, the file holds which are not, as bits, and these."""
    with safe_open(path, "pt") as file:
        held = {{name: file.get_tensor(name) for name in file.keys()}}
        packed = json.loads((file.metadata() or {{}}).get("packed", "{{}}"))
    for name, about in packed.items():
        if "same" in about:
            continue
        stored = held.pop(name + "#values") if "sparse" in about else held[name]
        if "dtype" in about:
            stored = stored.reshape(-1).view(getattr(torch, about["dtype"])).reshape(stored.shape[:-1])
        if "sparse" in about:
            places = torch.tensor([7, 6, 5, 4, 3, 2, 1, 0], dtype=torch.uint8)
            bits = (held.pop(name + "#bits")[:, None] >> places) & 1
            whole = torch.zeros(torch.Size(about["sparse"]).numel(), dtype=stored.dtype)
            whole[bits.flatten()[: len(whole)].bool()] = stored
            stored = whole.reshape(about["sparse"])
        held[name] = stored
    return {{**held, **{{name: held[about["same"]] for name, about in packed.items() if "same" in about}}}}
'''


def write_source(program: ExportedProgram, cut: nn.Module, folder: Path, names: Sequence[str], task: str) -> None:
    """Write network.py and the weights that it loads."""
    tensors, constants = _held(program)
    body = _forward(program, names, {**tensors, **dict.fromkeys(constants, "")})
    literals = [_literal(name, tensor, task) for name, tensor in constants.items()]
    text = TEMPLATE.format(
        title=_plain(f"Task {task!r}: raw inputs → answers."),
        version=__version__,
        inputs=", ".join(names),
        about="A batch of any length; dtypes and shapes: card.json.",
        weights=WEIGHTS,
        tensors="".join(f"    {name!r}: {stored!r},\n" for name, stored in tensors.items()),
        constants="".join(f"        self.register_buffer({line})\n" for line in literals),
        forward=body,
    )
    atomic.write(folder / CODE, text)
    atomic.write(folder / WEIGHTS, packed(cut))


def _held(program: ExportedProgram) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return which tensors of the state dict the graph reads, by their names there, and its constants."""
    tensors: dict[str, str] = {}
    constants: dict[str, Tensor] = {}
    for given in program.graph_signature.input_specs:
        name, target = given.arg.name, given.target
        if given.kind == InputKind.USER_INPUT or target is None:
            continue
        if target in program.state_dict:
            tensors[name] = target
        else:
            constants[name] = program.constants[target]
    return tensors, constants


def _forward(program: ExportedProgram, names: Sequence[str], held: Mapping[str, str]) -> str:
    """Return the source of forward(): user's inputs under their names, all other tensors attributes."""
    graph, known = fx.Graph(), dict[fx.Node, Any]()
    wanted = iter(names)
    for node in program.graph.nodes:
        if node.op == "placeholder":
            known[node] = graph.get_attr(node.name) if node.name in held else graph.placeholder(next(wanted))
        elif node.op == "output":
            (answer,) = node.args[0]
            graph.output(known[answer])
        else:
            known[node] = graph.node_copy(node, known.__getitem__)
    _, *lines = (line for line in graph.python_code("self").src.splitlines() if line.strip())
    lines = [re.sub(r";  [\w =]+ = None(\s+#.*)?$", "", line) for line in lines]  # no need to let go of tensors
    lines = [line for line in lines if line.strip() not in {f"{name} = self.{name}" for name in held}]
    every = re.compile(rf"\b({'|'.join(map(re.escape, held))})\b")
    lines = [f"def forward({', '.join(['self', *names])}):", *(every.sub(_attribute, line) for line in lines)]
    return "".join(f"    {line}\n" for line in lines)


def _attribute(found: re.Match[str]) -> str:
    return f"self.{found[0]}"


def _literal(name: str, tensor: Tensor, task: str) -> str:
    if tensor.numel() > NUMBERS:
        raise HatrackError(
            f"task {task!r} cannot be exported as Python: its forward() makes a constant of {tensor.numel():,} "
            f"numbers; register it as a buffer, or choose the format onnx or pt2."
        )
    return f"{name!r}, torch.tensor({tensor.tolist()!r}, dtype={tensor.dtype}).reshape({tuple(tensor.shape)})"


def _plain(text: str) -> str:
    """Return text that can stand within a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")


def load_source(folder: Path) -> Callable[[Any], Tensor]:
    """Return what network.py in a folder computes as a function of raw inputs."""
    path = folder / CODE
    known: dict[str, Any] = {"__file__": str(path), "__name__": path.stem}
    exec(compile(path.read_text(encoding="utf-8"), CODE, "exec"), known)  # imported, it would leave bytecode beside it
    network = known["load"]()

    def ask(x: Any) -> Tensor:
        answer: Tensor = network(*leaves(x))
        return answer

    return ask
