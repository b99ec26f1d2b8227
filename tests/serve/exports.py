"""Folders as `hatrack export` writes them, with networks made by hand; and numpy's word for what they answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

TYPES = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int64": TensorProto.INT64}


@dataclass
class Made:
    """One task: how its card looks, and its answers to a batch in float64."""

    name: str
    kind: str = "classification"
    shape: tuple[int, ...] = (1, 4, 4)
    outputs: int = 3
    classes: list[str] | None = None
    low: float = 0.0
    high: float = 1.0
    dtype: str = "float32"
    seed: int = 0
    target: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        self.first = random.normal(size=(int(np.prod(self.shape)), 16)).astype(np.float32)
        if self.dtype == "uint8":
            self.first /= 255
        self.second = random.normal(size=(16, self.outputs)).astype(np.float32)
        self.bias = random.normal(size=self.outputs).astype(np.float32)

    def answer(self, x: NDArray[Any]) -> NDArray[np.float64]:
        if self.kind == "dense":  # 1 × 1: the same at every position
            return np.einsum("nchw,ck->nkhw", x.astype(np.float64), self.second[: self.shape[0]].astype(np.float64))
        hidden = np.maximum(x.reshape(len(x), -1).astype(np.float64) @ self.first, 0)
        return hidden @ self.second + self.bias

    def model(self) -> bytes:
        held = {"first": self.first, "second": self.second, "bias": self.bias}
        out: tuple[Any, ...] = ("n", self.outputs)
        if self.kind == "dense":
            held = {"second": self.second[: self.shape[0]].T[:, :, None, None]}
            out = ("n", self.outputs, *self.shape[1:])
            nodes = [helper.make_node("Conv", ["x", "second"], ["answer"])]
        else:
            nodes = [
                helper.make_node("Cast", ["x"], ["floats"], to=TensorProto.FLOAT),
                helper.make_node("Flatten", ["floats"], ["flat"]),
                helper.make_node("MatMul", ["flat", "first"], ["h"]),
                helper.make_node("Relu", ["h"], ["r"]),
                helper.make_node("Gemm", ["r", "second", "bias"], ["answer"]),
            ]
        return onnx_bytes(nodes, {"x": (self.dtype, ("n", *self.shape))}, out, held)

    def card(self) -> dict[str, Any]:
        output = [self.outputs, *(self.shape[1:] if self.kind == "dense" else ())]
        given = {"low": self.low, "high": self.high, "bytes": self.dtype == "uint8"}
        return {
            "schema": 1,
            "hatrack": "0.2",
            "task": self.name,
            "target": {"name": self.kind, **self.target},
            "classes": self.classes,
            "inputs": [{"name": "x", "shape": list(self.shape), "dtype": self.dtype, **given}],
            "output": {"name": "answer", "shape": output},
            "score": {"accuracy": 0.9},
        }

    def samples(self, count: int, seed: int = 1) -> NDArray[Any]:
        """Draw samples within the range, exact in JSON."""
        drawn = np.random.default_rng(seed).random((count, *self.shape))
        return (self.low + drawn * (self.high - self.low)).astype(self.dtype)


def onnx_bytes(
    nodes: list[Any],
    inputs: dict[str, tuple[str, tuple[Any, ...]]],
    out: tuple[Any, ...],
    held: dict[str, NDArray[Any]],
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, TYPES[dtype], shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info("answer", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def write(folder: Path, card: dict[str, Any], model: bytes, file: str = "model.onnx") -> Path:
    """Write one task's folder; a card that is there already gets another file."""
    place = folder / "".join(letter if letter.isalnum() else "-" for letter in card["task"])
    place.mkdir(parents=True, exist_ok=True)
    (place / file).write_bytes(model)
    known = json.loads((place / "card.json").read_text())["files"] if (place / "card.json").exists() else {}
    known[file] = {"bytes": len(model), "sha256": hashlib.sha256(model).hexdigest()}
    (place / "card.json").write_text(json.dumps(card | {"files": known}))
    return place


DIGITS = Made("digits 0-1", classes=["zero", "one", "two"])
COLOURS = Made("colours", shape=(3, 4, 5), outputs=2, classes=["warm", "cold"], seed=1)
TAGS = Made("tags", "multilabel", (6,), 4, low=-2.0, high=2.0, seed=2)
PRICES = Made("prices", "regression", (6,), 2, low=-2.0, high=2.0, seed=3)
MAPS = Made("maps", "dense", (3, 4, 5), 3, ["sky", "sea", "land"], seed=4, target={"axis": 1})
PLAIN = Made("plain", shape=(1, 4, 4), outputs=12, seed=5)
PHOTOS = Made("photos", low=0, high=255, dtype="uint8", seed=6)
ALL = [DIGITS, COLOURS, TAGS, PRICES, MAPS, PLAIN, PHOTOS]


def write_all(folder: Path, made: list[Made] = ALL) -> Path:
    for one in made:
        write(folder, one.card(), one.model())
    return folder
