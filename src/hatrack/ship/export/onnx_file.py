"""ONNX through torch's exporter, and onnxruntime to run what was written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from hatrack import atomic
from hatrack.errors import HatrackError
from hatrack.ship.export.needed import needed, quiet
from hatrack.ship.export.traced import layer, refused
from hatrack.tree import leaves

BATCH, ANSWER = "batch", "answer"
MOST = 2**31 - 1  # bytes that the format can hold in one file


def write_onnx(program: ExportedProgram, path: Path, names: Sequence[str], task: str) -> None:
    """Write a traced network; its inputs are called `names`, its output `answer`, their first axis `batch`."""
    needed("onnx", "onnxscript")
    try:
        with quiet():
            made = torch.onnx.export(program, input_names=list(names), output_names=[ANSWER], verbose=False)
            assert made is not None
            model = made.model_proto
    except Exception as error:  # what there is no ONNX for fails in any way
        found = re.search(r"%(\w+) :.*?target=torch\.ops\.\w+\.(\w+)", str(error))
        said = f"no ONNX for {found[2]}" if found else str(error)
        raise refused(task, "torch.onnx", said, layer(program, *found.groups()) if found else "it") from error
    _anonymous(model)
    if model.ByteSize() > MOST:
        raise HatrackError(f"task {task!r} is too large for one ONNX file (2 GiB); choose --format pt2 or torch.")
    atomic.write(path, model.SerializeToString())


def _anonymous(model: Any) -> None:
    """Take out what tells of the machine and the source, and give the free axis its name.

    Shapes in between go too: runtimes infer them, and some tools fall over those of weights.
    """
    graph = model.graph
    del graph.value_info[:]
    del graph.metadata_props[:]
    free = {value.type.tensor_type.shape.dim[0].dim_param for value in graph.input}
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in free:
                dim.dim_param = BATCH
    for node in (*graph.node, *(node for function in model.functions for node in function.node)):
        del node.metadata_props[:]
        node.doc_string = ""


def session(path: Path) -> Any:
    """Open an ONNX file, to be run by one thread of the CPU."""
    (runtime,) = needed("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def load_onnx(path: Path) -> Callable[[Any], Tensor]:
    """Return what an ONNX file computes as a function of raw inputs."""
    opened = session(path)
    names = [value.name for value in opened.get_inputs()]

    def ask(x: Any) -> Tensor:
        given = {name: part.numpy() for name, part in zip(names, leaves(x), strict=True)}
        return torch.from_numpy(opened.run([ANSWER], given)[0])

    return ask
