"""An exported task: what is in its folder, what its card says, and that nothing wrong can come to be there."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from tests.ship.test_cut_out import Branching, Pair, learned, of
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hatrack import HatrackError, HatrackWarning, Hats, Inputs, Learner, Task, atomic
from hatrack.methods import METHODS
from hatrack.ship.export import check, export, needed, place
from hatrack.ship.export.place import slugs
from hatrack.ship.export.timing import multiply_adds
from hatrack.ship.stored import digest, unpacked
from hatrack.targets import Classification, Dense, MultiLabel, Regression
from zoo import ZOO, Lively, tasks

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.CapacityWarning")
Flip = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time little: what is timed is not tested here; and let Python leave bytecode where it would."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr("hatrack.ship.export.timing.TURNS", {1: 2, 64: 2})


def pictures(inputs: Inputs | None = None) -> Task:
    numbers = torch.Generator().manual_seed(0)
    x = torch.randint(256, (32, 3, 4, 4), generator=numbers, dtype=torch.uint8)
    y = torch.arange(32) % 3
    target = Classification(names=("cat", "dog", "eel"))
    return Task("animals", (x, y), test=(x[:20], y[:20]), target=target, inputs=inputs)


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(24, 7), nn.Tanh())


def figures(task: str = "t") -> tuple[Learner, Task]:
    x = torch.rand(24, 5, generator=torch.Generator().manual_seed(0))
    made = Task(task, (x, torch.arange(24) % 2), test=(x, torch.arange(24) % 2))
    torch.manual_seed(0)
    return of(made, nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 6), nn.Tanh())), made


def run_onnx(path: Path, **given: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    answer: np.ndarray = session.run(["answer"], given)[0]
    return answer


# ---- what is written


def test_raw_bytes_go_in_and_the_card_says_what_is_there(tmp_path: Path) -> None:
    order = tuple(torch.randperm(48, generator=torch.Generator().manual_seed(1)).tolist())
    task = pictures(Inputs(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), permutation=order))
    learner = of(task, small())
    made = learner.export("animals", tmp_path, format="onnx,pt2,torch", int8=True)
    assert made.folder == tmp_path / "animals"
    card = json.loads((made.folder / "card.json").read_text())
    assert card == made.card
    assert (card["schema"], card["task"], card["classes"]) == (1, "animals", ["cat", "dog", "eel"])
    assert card["target"] == learner.tasks[0].target.described()
    (given,) = card["inputs"]
    assert given == {"name": "x", "shape": [3, 4, 4], "dtype": "uint8", "low": 0, "high": 255, "bytes": True}
    assert card["output"] == {"name": "answer", "shape": [3]}
    said = {"bytes": True, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25], "permutation": True}
    assert {key: card["preparation"][key] for key in said} == said
    assert card["cut_out"] == digest(learner.cut_out(0))
    there = {path.name: path.read_bytes() for path in made.folder.iterdir() if path.name != "card.json"}
    assert {n: (f["bytes"], f["sha256"]) for n, f in card["files"].items()} == {
        name: (len(data), sha256(data).hexdigest()) for name, data in there.items()
    }
    x = task.train.first(7)
    np.testing.assert_allclose(
        run_onnx(made.folder / "model.onnx", x=x.numpy()), learner.predict(x, 0).numpy(), rtol=1e-4, atol=1e-5
    )
    assert card["score"]["samples"] == 20
    right = (learner.predict(task.test.first(20), 0).argmax(1) == task.test.labels).double().mean()  # type: ignore[union-attr]
    assert [card["score"][name] for name in ("learner", "cut", "model.onnx", "model.pt2", "network.py")] == [right] * 5
    assert card["int8"] == {"what": "weights and activations", "calibration": "20 test samples"}


def test_sizes_are_those_that_are_counted_by_hand(tmp_path: Path) -> None:
    learner, _ = figures()
    sizes = learner.export(0, tmp_path).card["sizes"]
    a, b = (int(gates.sum()) for gates in learner.method.unit_gates(0).split([9, 6]))  # type: ignore[union-attr]
    assert sizes["full"]["parameters"] == 5 * 9 + 9 + 9 * 6 + 6 + 6 * 2 + 2
    assert sizes["full"]["multiply_adds"] == 5 * 9 + 9 * 6 + 6 * 2
    assert sizes["cut"]["parameters"] == sizes["onnx"]["parameters"] == 5 * a + a + a * b + b + b * 2 + 2
    assert sizes["cut"]["multiply_adds"] == sizes["onnx"]["multiply_adds"] == 5 * a + a * b + b * 2
    assert sizes["onnx"]["bytes"] == (tmp_path / "t" / "model.onnx").stat().st_size
    assert all(each > 0 for form in sizes.values() for each in form["milliseconds"].values())


def test_recurrent_layers_are_counted_too() -> None:
    """Four gates of four units that read five inputs and four states, at each of seven steps."""
    lstm = nn.LSTM(5, 4, batch_first=True, bias=False)
    assert multiply_adds(lstm, torch.randn(3, 7, 5)) == 7 * 4 * 4 * (5 + 4)


def test_onnx_by_numpy_in_double_precision(tmp_path: Path) -> None:
    """An oracle that shares nothing: the ONNX file's own weights, multiplied by hand in float64."""
    learner, task = figures()
    folder = learner.export(0, tmp_path).folder
    held = {
        t.name: numpy_helper.to_array(t).astype(np.float64) for t in onnx.load(folder / "model.onnx").graph.initializer
    }
    x = task.train.first(24).numpy()
    h = np.tanh(x @ held["net.0.weight"].T + held["net.0.bias"])
    h = np.tanh(h @ held["net.2.weight"].T + held["net.2.bias"])
    np.testing.assert_allclose(
        run_onnx(folder / "model.onnx", x=x), h @ held["head.weight"].T + held["head.bias"], rtol=1e-4, atol=1e-6
    )


def test_the_same_bytes_again_and_nothing_of_this_machine(tmp_path: Path) -> None:
    learner, _ = figures()
    made = [learner.export(0, tmp_path / place, format="onnx,pt2,torch").folder for place in ("a", "b")]
    for name in ("model.onnx", "network.py", "weights.safetensors"):
        assert (made[0] / name).read_bytes() == (made[1] / name).read_bytes()
    for path in made[0].iterdir():
        for secret in (os.path.dirname(torch.__file__), str(Path(__file__).parents[3]), str(tmp_path)):
            assert secret.encode() not in path.read_bytes(), path.name


def test_several_inputs_keep_their_names(tmp_path: Path) -> None:
    numbers = torch.Generator().manual_seed(0)
    x = {"left": torch.rand(16, 4, generator=numbers), "right": torch.rand(16, 3, generator=numbers)}
    learner = of(Task("t", (x, torch.arange(16) % 2)), Pair(), features="features")
    made = learner.export(0, tmp_path, format="onnx,pt2,torch", samples=(x, torch.arange(16) % 2))
    assert [(each["name"], each["shape"]) for each in made.card["inputs"]] == [("left", [4]), ("right", [3])]
    given = {name: part[:3].numpy() for name, part in x.items()}
    expected = learner.predict({name: part[:3] for name, part in x.items()}, 0).numpy()
    np.testing.assert_allclose(run_onnx(made.folder / "model.onnx", **given), expected, rtol=1e-4, atol=1e-5)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(3, 8)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.tanh(self.a(left)) * torch.sigmoid(self.b(right))


@pytest.mark.parametrize("kind", ["tuple", "regression", "pixels", "labels", "dataset"])
def test_every_kind_of_task(kind: str, tmp_path: Path) -> None:
    numbers = torch.Generator().manual_seed(0)
    x: Any = torch.rand(16, 3, 4, 4, generator=numbers)
    y = torch.arange(16) % 2
    net: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(48, 9), nn.Tanh())
    target: Any = None
    if kind == "tuple":
        x, net = (torch.rand(16, 4, generator=numbers), torch.rand(16, 3, generator=numbers)), Two()
    elif kind == "regression":
        y, target = 300 + 20 * x[:, :2, 0, 0], Regression()
    elif kind == "pixels":
        y, target, net = (x[:, 0] > 0.5).long(), Dense(2), nn.Sequential(nn.Conv2d(3, 9, 3, padding=1), nn.Tanh())
    elif kind == "labels":
        y, target = (x[:, :2, 0, 0] > 0.5).long(), MultiLabel()
    part: Any = TensorDataset(x, y) if kind == "dataset" else (x, y)
    task = Task("t", part, part, part, target=target, **({"classes": 2} if kind == "dataset" else {}))
    learner = of(task, net)
    made = learner.export(0, tmp_path, format="onnx,torch")
    assert made.card["classes"] == (None if kind == "regression" else [0, 1])
    expected = learner.predict(x, 0)
    names = [each["name"] for each in made.card["inputs"]]
    parts = x if isinstance(x, tuple) else (x,)
    answer = run_onnx(made.folder / "model.onnx", **{n: p.numpy() for n, p in zip(names, parts, strict=True)})
    assert made.card["output"]["shape"] == list(expected.shape[1:])
    np.testing.assert_allclose(answer, expected.numpy(), rtol=1e-4, atol=1e-4)
    assert made.card["score"]["learner"] == pytest.approx(learner.evaluate(task, 0))


class Theirs(nn.Module):
    """A class that nobody else has, with a constant of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 9)

    def forward(self, input: Tensor) -> Tensor:
        return torch.tanh(self.a(input)) + torch.tensor([0.5, float("inf")])[0]


def test_python_needs_neither_hatrack_nor_the_class(tmp_path: Path) -> None:
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(0))
    task = Task("""a "\"\"quoted\"\"" \\ name""", (x, torch.arange(16) % 2))
    learner = of(task, Theirs(), METHODS["pmask"]())
    folder = learner.export(0, tmp_path, format="torch", samples=(x, torch.arange(16) % 2)).folder
    torch.save({"x": x, "y": learner.predict(x, 0)}, tmp_path / "known.pt")
    code = f"""
import sys
sys.modules["hatrack"] = sys.modules["tests"] = None
sys.path.insert(0, {str(folder)!r})
import torch
from network import load
known = torch.load({str(tmp_path / "known.pt")!r})
torch.testing.assert_close(load()(known["x"]), known["y"])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_python_reads_sparse_weights(tmp_path: Path) -> None:
    x = torch.rand(16, 60, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(60, 90), nn.Tanh(), nn.Linear(90, 80), nn.Tanh())
    learner = of(Task("t", (x, torch.arange(16) % 2)), net, METHODS["packnet"]())
    folder = learner.export(0, tmp_path, format="torch").folder
    data = (folder / "weights.safetensors").read_bytes()
    assert b"#bits" in data
    read = export.load_source(folder)(x)
    torch.testing.assert_close(read, learner.predict(x, 0))
    assert {name: t.shape for name, t in unpacked(data).items()} == {
        name: t.shape for name, t in learner.cut_out(0).state_dict().items()
    }


# ---- what it is held against


def test_without_samples_inputs_are_drawn_and_int8_has_weights_alone(tmp_path: Path) -> None:
    x = torch.rand(16, 5, generator=torch.Generator().manual_seed(0))
    learner = of(Task("t", (x, torch.arange(16) % 2)), nn.Sequential(nn.Linear(5, 9), nn.Tanh()))
    made = learner.export(0, tmp_path, int8=True)
    assert (made.card["score"]["samples"], made.card["score"]["of"]) == (64, "inputs drawn from the seed")
    assert made.card["score"]["learner"] is None
    assert made.card["int8"] == {"what": "weights", "calibration": None}
    assert "held against the learner on 64 inputs drawn from the seed" in str(made)
    assert max(map(len, str(made).splitlines()[:-1])) <= 80


def test_hats_have_it_too(tmp_path: Path) -> None:
    x = torch.rand(8, 4)
    hats = Hats(nn.Sequential(nn.Linear(4, 9), nn.ReLU()), Lively())
    hats.begin("t", Classification(2), steps=1, example=x)
    optimizer = hats.guard(torch.optim.SGD(hats.trainable(), lr=0.1))
    loss = nn.functional.cross_entropy(hats(x), torch.arange(8) % 2) + hats.penalty()
    loss.backward()
    optimizer.step()
    hats.end()
    folder = hats.export("t", tmp_path).folder
    hats.wear("t")
    answer = run_onnx(folder / "model.onnx", x=x.numpy())
    np.testing.assert_allclose(answer, hats(x).detach().numpy(), rtol=1e-4, atol=1e-6)


def flip_onnx(path: Path) -> None:
    model = onnx.load(path / "model.onnx")
    weight = next(t for t in model.graph.initializer if t.name == "head.weight")
    array = numpy_helper.to_array(weight).copy()
    array.flat[0] += 0.05
    weight.CopyFrom(numpy_helper.from_array(array, "head.weight"))
    onnx.save(model, path / "model.onnx")


def flip_weights(path: Path) -> None:
    file = path / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-2] ^= 0x40  # in the exponent of the last number
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("format", "loader", "flip"),
    [("onnx", "load_onnx", flip_onnx), ("torch", "load_source", flip_weights)],
    ids=["onnx", "torch"],
)
def test_one_weight_that_is_off_is_found(
    format: str, loader: str, flip: Flip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, _ = figures()
    real = getattr(export, loader)

    def spoilt(path: Path) -> Any:
        flip(path if path.is_dir() else path.parent)
        return real(path)

    learner.export(0, tmp_path / "good", format=format)
    monkeypatch.setattr(export, loader, spoilt)
    with pytest.raises(HatrackError, match=r"answers otherwise than the learner \(apart by .* nothing was exported"):
        learner.export(0, tmp_path / "bad" / "deep", format=format)
    assert [path.name for path in tmp_path.iterdir()] == ["good"]
    before = {path: path.read_bytes() for path in (tmp_path / "good" / "t").iterdir()}
    with pytest.raises(HatrackError, match="answers otherwise"):
        learner.export(0, tmp_path / "good", format=format)
    assert {path: path.read_bytes() for path in (tmp_path / "good" / "t").iterdir()} == before


def test_another_choice_is_found_however_near() -> None:
    """Within 1e-4 of the largest logit, and yet another class; not where the learner itself is undecided."""
    reference = torch.tensor([[1.0, 0.99995, 0.0], [0.0, 1.0, 0.0]])
    other = torch.tensor([[0.99996, 0.99999, 0.0], [0.0, 1.0, 0.0]])
    with pytest.raises(HatrackError, match="chooses another answer than the learner for 1 of 2"):
        check._compare(other, reference, 1, 1.0, "file")
    even = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    assert check._compare(even + torch.tensor([0.0, 1e-6, 0.0]), even, 1, 1.0, "file") < 1e-5
    with pytest.raises(HatrackError, match="answers otherwise"):
        check._compare(torch.full_like(even, float("nan")), even, 1, 1.0, "file")


def test_a_length_that_is_written_in_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, _ = figures()
    real = export.load_onnx

    def stuck(path: Path) -> Any:
        ask = real(path)
        return lambda x: ask(x) if len(x) > 1 else ask(torch.cat([x, x]))

    monkeypatch.setattr(export, "load_onnx", stuck)
    with pytest.raises(HatrackError, match=r"in another shape than the learner: \(2, 2\), not \(1, 2\)"):
        learner.export(0, tmp_path)


def test_int8_that_loses_much_is_said_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, task = figures()
    real, score = export.load_onnx, learner.evaluate(task, 0)
    signs = {"model.onnx": 1, "model.int8.onnx": -1 if score > 0.5 else 1}
    monkeypatch.setattr(export, "load_onnx", lambda path: lambda x: signs[path.name] * real(path)(x))
    monkeypatch.setattr(export, "LOSS", -1.0)
    with pytest.warns(HatrackWarning, match=rf"task 't': int8 costs .* of its accuracy \({score:.4f} → "):
        learner.export(0, tmp_path, int8=True)
    assert (tmp_path / "t" / "model.int8.onnx").exists()


@pytest.mark.parametrize(("after", "rises", "warned"), [(0.88, True, True), (0.895, True, False), (0.92, False, True)])
def test_what_int8_may_lose(after: float, rises: bool, warned: bool, recwarn: pytest.WarningsRecorder) -> None:
    score = {"name": "score", "learner": 0.9, "model.int8.onnx": after}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        export._warn_of_loss({"task": "t", "score": score}, rises)
    said = f"task 't': int8 costs 0.0200 of its score (0.9000 → {after:.4f})."
    assert [str(warning.message) for warning in recwarn] == [said] * warned


# ---- where it is written


def test_names_of_folders() -> None:
    given = ["digits 0-1", "a/b", "a-b", "A-B", "..", ".hidden", "Größe", "x" * 300, "\n"]
    made = ["digits-0-1", "a-b", "a-b-2", "A-B-3", "--", "-hidden", "Gr--e", "x" * 100, "-"]
    assert slugs(given) == made


def test_an_older_export_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    learner, _ = figures()
    learner.export(0, tmp_path, format="pt2,torch")
    assert {p.name for p in learner.export(0, tmp_path).folder.iterdir()} == {"README.md", "card.json", "model.onnx"}
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
    (tmp_path / "u" / "t").mkdir(parents=True)
    learner.export(0, tmp_path / "u", format="torch")  # an empty folder is nobody's
    (tmp_path / "v" / "t").mkdir(parents=True)
    (tmp_path / "v" / "t" / "mine.txt").write_text("mine")
    with pytest.raises(HatrackError, match="holds something else; choose another folder"):
        learner.export(0, tmp_path / "v")
    assert (tmp_path / "v" / "t" / "mine.txt").read_text() == "mine"
    other, _ = figures("t ")
    (tmp_path / "t").rename(tmp_path / "t-")
    with pytest.raises(HatrackError, match="holds an export of task 't'; choose another folder"):
        other.export(0, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        learner.export(0, tmp_path / "file" / "deep")


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, _ = figures()
    real = atomic.write

    def full(path: Path, content: bytes | str) -> None:
        if path.name == place.CARD:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, content)

    monkeypatch.setattr(atomic, "write", full)
    with pytest.raises(OSError, match="No space left"):
        learner.export(0, tmp_path / "out", format="pt2")
    assert list(tmp_path.iterdir()) == []


# ---- refusals


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, task = figures()
    with pytest.raises(HatrackError, match="unknown task 'another'"):
        learner.export("another", tmp_path)
    with pytest.raises(HatrackError, match=r"unknown format 'tflite'\. Accepted: onnx, pt2, torch"):
        learner.export(0, tmp_path, format="tflite")
    with pytest.raises(HatrackError, match="int8 is made of the ONNX file, got format='pt2'; add onnx to it"):
        learner.export(0, tmp_path, format="pt2", int8=True)
    with pytest.raises(HatrackError, match="task 't' has no test part"):
        learner.export(0, tmp_path, samples=Task("t", task.train, classes=2))

    def missing(name: str) -> Any:
        raise ImportError(name=name)

    monkeypatch.setattr(needed, "import_module", missing)
    with pytest.raises(HatrackError, match=r"not installed \(onnx\): pip install 'hatrack\[export\]'"):
        learner.export(0, tmp_path)
    learner.export(0, tmp_path, format="pt2")


class Long(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 9)
        self.held = [torch.randn(5000)]

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.a(x) * self.held[0].sum())


def test_what_cannot_be_written_down_is_named(tmp_path: Path) -> None:
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(0))
    task = Task("t", (x, torch.arange(16) % 2))
    learner = of(task, Branching(), METHODS["pmask"]())
    with pytest.raises(HatrackError, match=r"'t' cannot be exported: torch.export cannot write down Branching \("):
        learner.export(0, tmp_path, format="pt2")
    learner = of(task, Long(), METHODS["pmask"]())
    with pytest.raises(HatrackError, match="forward\\(\\) makes a constant of 5,000 numbers"):
        learner.export(0, tmp_path, format="torch")
    assert list(tmp_path.iterdir()) == []
    learner.export(0, tmp_path, format="pt2")


def test_leaves_the_learner_as_it_is(tmp_path: Path) -> None:
    learner, (task,) = learned("weight-norm")
    before = {name: t.clone() for name, t in learner.model.tensors().items()}
    learner.export(0, tmp_path, format="pt2", samples=task)
    assert all(torch.equal(t, before[name]) for name, t in learner.model.tensors().items())
    assert learner.verify().ok
    learner.learn(tasks(ZOO["weight-norm"], count=2)[1], progress=False)
    assert learner.verify().ok
