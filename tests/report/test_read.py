from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hatrack.errors import HatrackError
from hatrack.report.read import read

from .folder import edit_result, write_run


def test_everything_written_is_read(run_folder: Path) -> None:
    run = read(run_folder)
    written = json.loads((run_folder / "result.json").read_text())
    assert run.names == [f"digits {i}-{i + 1}" for i in (0, 2, 4, 6, 8)]
    assert run.accuracy.shape == (5, 5)
    assert run.accuracy[3, :4].tolist() == written["accuracy"][3]
    assert np.isnan(run.accuracy[3, 4])
    assert run.reuse is not None
    assert run.reuse[1, 4] == written["reuse"][1][4]
    assert np.isnan(run.reuse[4, 1])
    assert run.settings["settings"]["s_max"] == 400.0
    assert run.masks is not None
    stored = load_file(run_folder / "masks.safetensors")
    assert (run.masks["fc2"][3] == stored["3/fc2"]).all()
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    assert [e.valid_loss for e in run.epochs] == [x["valid_loss"] for x in lines if x["event"] == "epoch"]


def test_what_a_method_has_no_value_for_is_none(tmp_path: Path) -> None:
    run = read(write_run(tmp_path, method="sgd"))
    assert run.masks is None
    assert run.reuse is None
    assert run.result.capacity is None
    assert {e.capacity for e in run.epochs} == {None}


def test_an_accuracy_that_was_not_measured_is_nan(tmp_path: Path) -> None:
    write_run(tmp_path, tasks=2)
    edit_result(tmp_path, accuracy=[[None], [None, 0.5]])
    assert np.array_equal(read(tmp_path).accuracy, [[math.nan, math.nan], [math.nan, 0.5]], equal_nan=True)


def test_an_epoch_recorded_twice_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path, tasks=1)
    line = {"event": "epoch", "task": 0, "epoch": 2, "train_loss": 9.0}
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    epochs = read(tmp_path).epochs
    assert [e.epoch for e in epochs] == sorted({e.epoch for e in epochs})
    assert epochs[1].train_loss == 9.0


def test_sites_come_in_the_order_of_the_layers(tmp_path: Path) -> None:
    write_run(tmp_path, sites={"stem": 4, "block2": 4, "block10": 4, "block1": 4})
    assert list(read(tmp_path).masks or {}) == ["stem", "block2", "block10", "block1"]
    edit_result(tmp_path, capacity=None)
    assert list(read(tmp_path).masks or {}) == ["block1", "block2", "block10", "stem"]


def test_weights_are_shares_of_the_tasks_or_of_all(tmp_path: Path) -> None:
    write_run(tmp_path, tasks=2, method="pmask")
    save_file({"weights/all/a.weight": np.full((1, 2), 255, np.uint8)}, tmp_path / "masks.safetensors")
    alone = read(tmp_path).weights
    assert alone is not None
    assert alone["a.weight"].tolist() == [[[1.0, 1.0]]]
    tables: dict[str, np.ndarray] = {}
    for layer in ("b10", "b2"):
        tables |= {f"weights/{t}/{layer}.weight": np.full((1, 2), 51 * t, np.uint8) for t in (0, 1)}
    save_file(tables, tmp_path / "masks.safetensors")
    run = read(tmp_path)
    assert run.masks is None
    assert run.weights is not None
    assert {name: fields.tolist() for name, fields in run.weights.items()} == {
        "b2.weight": [[[0.0, 0.0]], [[0.2, 0.2]]],
        "b10.weight": [[[0.0, 0.0]], [[0.2, 0.2]]],
    }


def _drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _fill(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: folder.joinpath(name).write_text(text) and None


def _masks(**changes: np.ndarray | None) -> Callable[[Path], None]:
    """Replace or remove tensors of masks.safetensors; `t0_fc1` stands for the key 0/fc1."""

    def change(folder: Path) -> None:
        path = folder / "masks.safetensors"
        tensors = {**load_file(path), **{k[1:].replace("_", "/"): v for k, v in changes.items()}}
        save_file({key: value for key, value in tensors.items() if value is not None}, path)

    return change


@pytest.mark.parametrize(
    ("harm", "file", "says"),
    [
        (_drop("result.json"), "result.json", "hatrack resume"),
        (_fill("result.json", '{"schema": 1'), "result.json", "; remove it, and `hatrack resume "),
        (_fill("result.json", "{}"), "result.json", "schema: Field required"),
        (lambda f: edit_result(f, schema=2), "result.json", "schema: Input should be 1"),
        (lambda f: edit_result(f, tasks=[]), "result.json", "tasks: List should have at least 1 item"),
        (lambda f: edit_result(f, accuracy=[[0.9], [0.9]]), "result.json", "rows hold [1, 1]); remove it, and"),
        (lambda f: edit_result(f, accuracy=[[0.9], ["x", 1]]), "result.json", "accuracy.1.0"),
        (lambda f: edit_result(f, reuse=[[None, 0.2]]), "result.json", "expected 2 rows of 2"),
        (lambda f: edit_result(f, capacity=[]), "result.json", "capacity: expected 2 entries, got 0"),
        (_drop("spec.toml"), "spec.toml", "does not exist"),
        (_fill("spec.toml", "a = = 2"), "spec.toml", "is broken"),
        (_drop("metrics.jsonl"), "metrics.jsonl", "does not exist"),
        (_fill("metrics.jsonl", '{"event": "task"}\n{"eve'), "metrics.jsonl, line 2", "is broken"),
        (_fill("metrics.jsonl", '{"event": "epoch", "task": 0}'), "metrics.jsonl, line 1", "epoch: Field"),
        (_fill("metrics.jsonl", '{"event": "epoch", "task": 2, "epoch": 1}'), "line 1", "has 2 tasks"),
        (_fill("masks.safetensors", "torn"), "masks.safetensors", "cannot be read"),
        (_masks(tx_fc1=np.ones(96)), "masks.safetensors", "'x/fc1'"),
        (_masks(t0_fc1=np.ones((2, 2))), "masks.safetensors", "'0/fc1' (2, 2)"),
        (_masks(t0_fc1=np.ones(3)), "masks.safetensors", "site 'fc1'"),
        (_masks(t1_fc2=None), "masks.safetensors", "got {0: 64}"),
        (_masks(tweights_0_fc1=np.ones((2, 2), np.uint8)), "masks.safetensors", "2 tasks or one for all, got ['0']"),
        (_masks(tweights_all_fc1=np.ones((2, 2))), "masks.safetensors", "weights of 'fc1': expected tables of bytes"),
        (
            _masks(tweights_all_fc1=np.ones((2, 2), np.uint8), tweights_0_fc2=np.ones((2, 2), np.uint8)),
            "masks.safetensors",
            "expected tables of bytes, of one size, for each of 2 tasks or one for all",
        ),
        (_masks(tweights_all_fc1=np.ones(2, np.uint8)), "masks.safetensors", "weights of 'fc1'"),
    ],
)
def test_a_broken_folder_is_told_in_one_line(
    tmp_path: Path, harm: Callable[[Path], None], file: str, says: str
) -> None:
    write_run(tmp_path, tasks=2)
    harm(tmp_path)
    with pytest.raises(HatrackError) as told:
        read(tmp_path)
    message = str(told.value)
    assert message.startswith(str(tmp_path))
    assert file in message
    assert says in message
    assert "`hatrack r" in message
    assert "\n" not in message


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HatrackError, match=r"nowhere is not a run folder; .*hatrack run"):
        read(tmp_path / "nowhere")
