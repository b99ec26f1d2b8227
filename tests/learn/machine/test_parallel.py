"""Two processes learn what one does; torchrun starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import hatrack
from hatrack.data.feed import Batch
from hatrack.errors import HatrackError
from hatrack.learn.machine.parallel import ProcessGroup, join
from hatrack.nets import build
from hatrack.processes import local_rank, several, speaks
from hatrack.runs.folder import create

PROGRAM = """
import os, sys
import torch
from safetensors.torch import save_file
import hatrack
from hatrack.learn.machine.parallel import join, leave
from hatrack.methods import METHODS
from hatrack.nets import build
from hatrack.processes import several

method, out = sys.argv[1:]
rank = os.environ.get("RANK", "0") if several() else "alone"
if several():
    assert join(cuda=False) == "cpu"
torch.set_num_threads(1)
torch.manual_seed(0)
net = build("mlp", (1, 8, 8), widths=(24, 24), dropout=0.0, input_dropout=0.0)
more = {}
if method == "hat":  # gates beside the user's optimiser, rates and momentum that change with every step
    more = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), "scheduler": "onecycle"}
learner = hatrack.Learner(net, METHODS[method](), epochs=3, batch_size=30, seed=0, device="cpu", **more)
if method == "spg" and rank == "1":  # as if its device rounded differently
    end = learner.method.end_task
    def drifting(feed):
        end(feed)
        for tensor in (*learner.method.importance.values(), *learner.model.net.parameters()):
            tensor.data.add_(1e-7)
    learner.method.end_task = drifting
for task in hatrack.tasks("split-digits", seed=0)[:2]:
    learner.learn(task)
assert learner.verify().ok or not learner.method.promises()
state = {f"method/{k}": v.contiguous() for k, v in learner.method.state().items()}
save_file({**learner.model.net.state_dict(), **state, "head": learner.model.heads[1].weight.detach()}, f"{out}/{rank}")
leave()
if several():
    os._exit(0)  # as the command line does it
"""


def launch(words: list[str], folder: Path, processes: int) -> subprocess.CompletedProcess[str]:
    """Start `words` under torchrun, in processes that use no GPU."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [*start, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )


@pytest.mark.parametrize("method", ["hat", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spg", "a-gem"))])
def test_two_processes_learn_what_one_does(method: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = launch([str(program), method, str(tmp_path)], tmp_path, 2)
    assert done.returncode == 0, done.stderr
    alone = [sys.executable, str(program), method, str(tmp_path)]
    subprocess.run(alone, check=True, cwd=tmp_path, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    first, second, single = (load_file(tmp_path / name) for name in ("0", "1", "alone"))
    assert first.keys() == second.keys() == single.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name  # masks and weights alike, bit for bit
        torch.testing.assert_close(tensor, single[name], rtol=0, atol=1e-5, msg=name)


def test_a_run_is_carried_out_by_two_processes(tmp_path: Path) -> None:
    words = ["-m", "hatrack.cli", "run", "--epochs", "2", "--out", "run", "--set", "widths=[20]"]
    done = launch(words, tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Test accuracy after") == 1  # one process speaks
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(result["accuracy"]) == 5
    assert result["metrics"]["forgetting"] == 0
    again = launch(["-m", "hatrack.cli", "resume", "run"], tmp_path, 2)
    assert again.returncode == 0, again.stderr
    assert "already finished" in again.stdout


def test_a_method_that_cannot_be_split_says_so(tmp_path: Path) -> None:
    done = launch(["-m", "hatrack.cli", "run", "--method", "ucl", "--out", "run"], tmp_path, 2)
    assert done.returncode != 0
    assert "hatrack: ucl cannot be spread over several processes" in done.stderr
    assert not (tmp_path / "run").exists()


ALONE = """
import sys
import hatrack
from hatrack.nets import build

learner = hatrack.Learner(build("mlp", (1, 8, 8), widths=(8,)), epochs=1, device="cpu")
try:
    learner.learn(hatrack.tasks("split-digits", seed=0)[0])
finally:
    learner.save("saved")
"""


def test_a_script_that_does_not_join_the_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ALONE)
    done = launch(["program.py"], tmp_path, 2)
    assert done.returncode != 0
    assert "of 2 (RANK and WORLD_SIZE, which torchrun sets), but it has not joined the others" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


@pytest.fixture
def several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost"}
    for name, value in where.items():
        monkeypatch.setenv(name, value)


def learner() -> hatrack.Learner:
    return hatrack.Learner(build("mlp", (1, 8, 8), widths=(8,)), epochs=1, device="cpu")


@pytest.mark.usefixtures("several_processes")
def test_learning_saving_and_runs_are_refused_without_a_group(tmp_path: Path) -> None:
    for act in (
        lambda: learner().learn(hatrack.tasks("split-digits", seed=0)[0]),
        lambda: learner().save(tmp_path / "saved"),
        lambda: create("", tmp_path / "run", ""),
    ):
        with pytest.raises(HatrackError, match=r"^this is process 1 of 2 .*unset WORLD_SIZE\.$"):
            act()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("several_processes")
def test_what_was_saved_is_read_without_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as alone:
        alone.delenv("WORLD_SIZE")
        made = learner()
        made.learn(hatrack.tasks("split-digits", seed=0)[0])
        made.save(tmp_path / "saved")
    assert hatrack.load(tmp_path / "saved", build("mlp", (1, 8, 8), widths=(8,)), device="cpu").verify().ok


@pytest.mark.usefixtures("several_processes")
def test_processes_that_cannot_meet_say_so() -> None:
    with pytest.raises(HatrackError, match=r"cannot join the others .*MASTER_PORT"):
        join(cuda=False)


@pytest.mark.usefixtures("several_processes")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORLD_SIZE", "1"),
        ("WORLD_SIZE", None),
        ("WORLD_SIZE", "many"),
        ("WORLD_SIZE", ""),
        ("RANK", None),
        ("RANK", "x"),
        ("RANK", "2"),
        ("RANK", "-1"),
        ("MASTER_ADDR", None),
    ],
)
def test_what_is_left_in_the_environment_stops_nobody(
    name: str, value: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert several()
    assert (speaks(), local_rank()) == (False, 1)
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    assert not several()
    assert speaks()
    learner().save(tmp_path / "saved")
    assert (tmp_path / "saved" / "learner.json").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_of_joined_processes_the_first_one_writes(rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner()
    monkeypatch.setattr("hatrack.learn.machine.parallel.process_group", lambda: ProcessGroup(rank, 2))
    made.save(tmp_path / "saved")
    assert (tmp_path / "saved").exists() == (rank == 0)


@pytest.mark.parametrize(("count", "size"), [(7, 2), (6, 3), (1, 2)])
def test_shares_cover_a_batch_once(count: int, size: int) -> None:
    batch = Batch(torch.arange(count)[:, None].float(), torch.arange(count))
    shares = [ProcessGroup(rank, size).shard(batch) for rank in range(size)]
    seen = np.concatenate([share.y.numpy() for share, weight in shares if weight])
    assert sorted(seen.tolist()) == list(range(count))
    assert sum(weight for _, weight in shares) == pytest.approx(1)
    assert all(len(share.y) for share, _ in shares)
    mean = sum(weight * float(share.x.mean()) for share, weight in shares)
    assert mean == pytest.approx(float(batch.x.mean()))
