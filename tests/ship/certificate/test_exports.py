"""Exported files under a certificate: one byte of any of them is found, and an ONNX file must answer as it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

from hatrack import HatrackError, Learner
from hatrack.errors import Edited
from hatrack.ship.certificate.check_hatrack import Problem, compare
from hatrack.ship.stored import digest, packed

from .saves import copied, flip, taught
from .test_certify import checked, read, sealed

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")


def seal(folder: Path, **told: Any) -> None:
    """Write a card that names the files of a folder."""
    files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name != "card.json"}
    about = {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in files.items()}
    inputs = [{"name": "x", "shape": [1, 5, 5], "dtype": "float32", "low": -2.5, "high": 2.5}]
    (folder / "card.json").write_text(json.dumps({"schema": 1, "inputs": inputs, **told, "files": about}))


def export(learner: Learner, out: Path, fill: Callable[[Path, int], object] = lambda folder, t: None) -> Path:
    """Write exports by hand, a folder a task."""
    for t, task in enumerate(learner.tasks):
        folder, cut = out / f"task-{t}", learner.cut_out(t)
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_bytes(packed(cut))
        (folder / "README.md").write_text("how to use it")
        fill(folder, t)
        seal(folder, task=task.name, cut_out=digest(cut))
    return out


def onnx_file(folder: Path, t: int) -> None:
    """Write a small network: the sum of all inputs, times a row of figures."""
    onnx = pytest.importorskip("onnx")
    helper, f32 = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.random.RandomState(t).randn(25, 2).astype(np.float32)
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["answer"])]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", f32, ["batch", 1, 5, 5])],
        [helper.make_tensor_value_info("answer", f32, ["batch", 2])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx"
    )


@cache
def certified() -> tuple[Learner, Path]:
    folder = Path(mkdtemp())
    learner = taught("hat", 2)
    export(learner, folder / "exports")
    learner.certify(folder / "c.json", exports=folder / "exports")
    return learner, folder


def test_every_file_of_an_export_is_in_it() -> None:
    _, folder = certified()
    told = read(folder / "c.json")["tasks"][1]["exports"]
    files = {p.name: sha256(p.read_bytes()).hexdigest() for p in (folder / "exports" / "task-1").iterdir()}
    assert told == files
    assert checked(folder / "c.json", folder / "exports") == (0, "t0: unchanged\nt1: unchanged\n")


@pytest.mark.parametrize("name", ["weights.safetensors", "README.md", "card.json"])
def test_one_bit_of_any_file_is_found(name: str) -> None:
    _, folder = certified()
    other = copied(folder / "exports")
    path = other / "task-0" / name
    flip(path, path.stat().st_size // 2 if name != "card.json" else path.read_bytes().index(b"2.5"), 0)
    assert compare(folder / "c.json", other) == {"t0": [name], "t1": []}


def test_what_is_gone_and_what_is_there_twice() -> None:
    _, folder = certified()
    other = copied(folder / "exports")
    (other / "task-0" / "README.md").unlink()
    for path in (other / "task-1").iterdir():
        path.unlink()
    assert compare(folder / "c.json", other) == {"t0": ["README.md"], "t1": None}
    other = copied(folder / "exports")
    copied(other / "task-0", "zzz")
    with pytest.raises(Problem, match="two tasks of one name"):
        compare(folder / "c.json", other)


def test_folders_exchanged_are_found_by_what_is_in_them() -> None:
    _, folder = certified()
    other = copied(folder / "exports")
    for t in (0, 1):
        (other / f"task-{t}" / "weights.safetensors").write_bytes(
            (folder / "exports" / f"task-{1 - t}" / "weights.safetensors").read_bytes()
        )
    assert compare(folder / "c.json", other) == {"t0": ["weights.safetensors"], "t1": ["weights.safetensors"]}


def test_a_certificate_that_knows_of_no_exports_says_nothing_of_them(tmp_path: Path) -> None:
    learner, folder = certified()
    learner.certify(tmp_path / "c.json")
    with pytest.raises(Problem, match="nothing to compare") as told:
        compare(tmp_path / "c.json", folder / "exports")
    assert told.value.args[1] == 3


def test_an_export_of_another_state_is_not_certified(tmp_path: Path) -> None:
    learner, folder = certified()
    other = copied(folder / "exports")
    seal(other / "task-0", task="t0", cut_out="0" * 64)
    with pytest.raises(Edited, match="not an export of task 't0' as it is here"):
        learner.certify(tmp_path / "c.json", exports=other)
    other = copied(folder / "exports")
    flip(other / "task-1" / "weights.safetensors", 200, 0)
    with pytest.raises(Edited, match=r"is not the file that card\.json names"):
        learner.certify(tmp_path / "c.json", exports=other)
    (other / "task-1" / "card.json").write_text("[]")
    with pytest.raises(HatrackError, match="is no card of an export"):
        learner.certify(tmp_path / "c.json", exports=other)
    (tmp_path / "empty").mkdir()
    with pytest.raises(HatrackError, match="holds no export of a finished task"):
        learner.certify(tmp_path / "c.json", exports=tmp_path / "empty")
    copied(folder / "exports" / "task-0", "zzz")
    try:
        with pytest.raises(HatrackError, match="has two exports"):
            learner.certify(tmp_path / "c.json", exports=folder / "exports")
    finally:
        for path in (folder / "exports" / "zzz").iterdir():
            path.unlink()
        (folder / "exports" / "zzz").rmdir()
    assert not (tmp_path / "c.json").exists()


def test_an_onnx_file_is_asked_again(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    learner = taught("hat", 2)
    export(learner, tmp_path / "exports", onnx_file)
    learner.certify(tmp_path / "c.json", exports=tmp_path / "exports")
    page = read(tmp_path / "c.json")
    asked = page["tasks"][1]["asked"]["model.onnx"]
    weight = np.random.RandomState(1).randn(25, 2).astype(np.float32)
    x = -2.5 + np.random.RandomState(asked["seed"]).random_sample([4, 1, 5, 5]) * 5
    np.testing.assert_allclose(asked["answers"], x.reshape(4, 25) @ weight, rtol=1e-4, atol=1e-4)
    assert checked(tmp_path / "c.json", tmp_path / "exports")[0] == 0

    asked["answers"][0][0] += 0.1
    (tmp_path / "edited.json").write_bytes(sealed(page))
    assert compare(tmp_path / "edited.json", tmp_path / "exports") == {"t0": [], "t1": ["model.onnx"]}

    onnx_file(tmp_path / "exports" / "task-0", 7)
    assert compare(tmp_path / "c.json", tmp_path / "exports") == {"t0": ["model.onnx"], "t1": []}


def test_an_onnx_file_that_takes_no_drawn_inputs_has_its_digest_alone(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    learner = taught("hat", 1)
    export(learner, tmp_path / "exports", lambda folder, t: (folder / "model.onnx").write_bytes(b"no network"))
    learner.certify(tmp_path / "c.json", exports=tmp_path / "exports")
    assert read(tmp_path / "c.json")["tasks"][0]["asked"] == {}
    flip(tmp_path / "exports" / "task-0" / "model.onnx", 3, 1)
    assert compare(tmp_path / "c.json", tmp_path / "exports") == {"t0": ["model.onnx"]}
