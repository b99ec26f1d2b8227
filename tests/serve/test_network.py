"""A network is tried before it is served: whether samples may share a batch, and whether its card tells the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from hatrack.errors import HatrackError
from hatrack.serve.exported import Exported, read_all
from hatrack.serve.network import BATCH, Network

from .asking import once, serving
from .exports import ALL, COLOURS, DIGITS, TAGS, Made, onnx_bytes, write


def read(folder: Path, card: dict[str, Any], model: bytes) -> Exported:
    write(folder, card, model)
    return read_all(folder)[card["task"]]


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_samples_of_an_ordinary_network_may_share_a_batch(tmp_path: Path, made: Made) -> None:
    network = Network(read(tmp_path, made.card(), made.model()))
    assert network.together == BATCH
    x = made.samples(BATCH)
    np.testing.assert_allclose(network.run({"x": x}), made.answer(x), rtol=1e-4, atol=1e-5)


def dynamic(made: Made) -> bytes:
    """Return int8 arithmetic whose scale is that of all inputs in the batch, as dynamic quantisation makes it."""
    held = {
        "first": np.round(made.first * 20).astype(np.int8),
        "second": made.second,
        "bias": made.bias,
        "by": np.float32(1 / 20),
    }
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("DynamicQuantizeLinear", ["flat"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "first", "zero"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Mul", ["f", "scale"], ["g"]),
        helper.make_node("Mul", ["g", "by"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "second", "bias"], ["answer"]),
    ]
    return onnx_bytes(nodes, {"x": ("float32", ("n", *made.shape))}, ("n", made.outputs), held)


def fixed(made: Made) -> bytes:
    """Return a network that was exported for one sample."""
    held = {"first": made.first[:, : made.outputs]}
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "first"], ["answer"])]
    return onnx_bytes(nodes, {"x": ("float32", (1, *made.shape))}, (1, made.outputs), held)


def centred(made: Made) -> bytes:
    """Return a network that takes the mean of its batch away, as batch norm does when it was left in training."""
    held = {"first": made.first[:, : made.outputs]}
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["flat", "mean"], ["centred"]),
        helper.make_node("MatMul", ["centred", "first"], ["answer"]),
    ]
    return onnx_bytes(nodes, {"x": ("float32", ("n", *made.shape))}, ("n", made.outputs), held)


@pytest.mark.parametrize("model", [dynamic, fixed, centred])
@pytest.mark.parametrize("made", [DIGITS, TAGS], ids=lambda made: made.name)
def test_where_a_batch_changes_answers_every_sample_is_computed_alone(
    tmp_path: Path, made: Made, model: Callable[[Made], bytes]
) -> None:
    network = Network(read(tmp_path, made.card(), model(made)))
    assert network.together == 1
    x = made.samples(3)
    x[1] *= 0.01
    alone = [network.run({"x": row[None]})[0] for row in x]
    with serving(tmp_path) as port:
        said = once(port, {"task": made.name, "inputs": x.tolist()})[1]
    np.testing.assert_array_equal(np.array([one["logits"] for one in said["answers"]], np.float32), alone)


def test_int8_is_served_where_it_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, TAGS.card(), TAGS.model())
    with pytest.raises(HatrackError, match=r"tags has no model\.int8\.onnx; export the task with .*--int8"):
        read_all(tmp_path, int8=True)
    write(tmp_path, TAGS.card(), dynamic(TAGS), "model.int8.onnx")
    x = TAGS.samples(1)
    answers = []
    for int8 in (False, True):
        with serving(tmp_path, int8=int8) as port:
            answers.append(once(port, {"task": "tags", "inputs": x.tolist()})[1]["answers"][0]["logits"])
    np.testing.assert_allclose(answers[0], TAGS.answer(x)[0], rtol=1e-4)
    assert answers[0] != answers[1]


def without(made: Made, **fields: Any) -> dict[str, Any]:
    card = made.card()
    card["inputs"][0] |= {key: value for key, value in fields.items() if key in card["inputs"][0]}
    card["output"] |= {key: value for key, value in fields.items() if key == "answer"}
    return card


@pytest.mark.parametrize(
    ("card", "model", "said"),
    [
        (DIGITS.card(), b"no network at all", "cannot be loaded"),
        (DIGITS.card(), DIGITS.model()[:-50], "cannot be loaded"),
        (without(DIGITS, name="pixels"), DIGITS.model(), "its card says {'pixels': 'tensor"),
        (without(DIGITS, dtype="float64"), DIGITS.model(), r"its card says {'x': 'tensor\(double\)'}"),
        (without(DIGITS, shape=[1, 5, 5]), DIGITS.model(), "cannot be run"),
        (DIGITS.card() | {"output": {"name": "answer", "shape": [2]}, "classes": None}, DIGITS.model(), "card says"),
        (DIGITS.card() | {"output": {"name": "other", "shape": [3]}}, DIGITS.model(), "cannot be run"),
        (DIGITS.card(), COLOURS.model(), "cannot be run"),
    ],
)
def test_a_network_that_is_not_what_its_card_says_is_refused(
    tmp_path: Path, card: dict[str, Any], model: bytes, said: str
) -> None:
    with pytest.raises(HatrackError, match=said) as caught:
        Network(read(tmp_path, card, model))
    assert "\n" not in str(caught.value)
