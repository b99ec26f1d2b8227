"""What users do around a learner: modes of torch, conversions and pruning of the network, copies, processes."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.data import TensorDataset

import hatrack
from forked import in_a_child
from hatrack import HAT, HatrackError, Learner, Task
from hatrack.methods import METHODS
from hatrack.testing.case import held

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")


def net(seed: int = 0, inplace: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.ReLU(inplace), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.ReLU(),
        nn.Dropout(0.1), nn.Linear(20, 12), nn.ReLU(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:3]


# ---- modes of torch that a caller has switched on

MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["hat", "ewc", "cat"])
def test_a_mode_of_the_caller_has_no_say(method: str, mode: str, tasks: list[Task], tmp_path: Path) -> None:
    plain, inside = (Learner(net(inplace=True), METHODS[method](), epochs=2) for _ in range(2))
    other = net(1, inplace=True)
    made = [Task(t.name, t.train.on(torch.device("cpu")), t.valid, t.test, inputs=t.inputs) for t in tasks]
    for task in made[:2]:
        plain.learn(task)
    with MODES[mode]():
        again = [Task(t.name, t.train.on(torch.device("cpu")), t.valid, t.test, inputs=t.inputs) for t in tasks]
        for task in again[:2]:
            inside.learn(task)
            assert (torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled()) == (
                mode == "inference", mode == "autocast", mode == "autocast",
            )  # fmt: skip
        x = again[0].test.first(30)
        answers = [inside.predict(x.clone(), t) for t in range(2)]
        verdict = str(inside.verify())
        score = inside.evaluate(again[0], 0)
        inside.save(tmp_path / "inside")
        loaded = hatrack.load(tmp_path / "inside", other)
    assert verdict == str(plain.verify())
    assert score == plain.evaluate(made[0], 0)
    for t, answer in enumerate(answers):
        assert torch.equal(answer.clone(), plain.predict(x.clone(), t))
        assert torch.equal(loaded.predict(x.clone(), t), plain.predict(x.clone(), t))
    before = held(plain, tmp_path / "plain")
    assert held(inside, tmp_path / "inside") == before
    for learner in (plain, inside):
        learner.learn(made[2])
    assert held(inside, tmp_path / "inside") == held(plain, tmp_path / "plain")


def test_a_network_made_in_inference_mode_is_refused_and_a_learner_can_be(tasks: list[Task]) -> None:
    usual = net()
    with torch.inference_mode():
        learner = Learner(usual, HAT(), epochs=1)
        with pytest.raises(HatrackError, match=r"2\.weight was made in inference mode, .*; make the network outside"):
            Learner(net(), HAT())
    learner.learn(tasks[0])
    assert learner.verify().ok


# ---- the network is changed after it was handed over


class Half(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


CHANGES: dict[str, tuple[Callable[[nn.Module], object], Callable[[nn.Module], object] | None, str]] = {
    "double": (nn.Module.double, nn.Module.float, r"float64, and was float32 when the learner was made; convert"),
    "half": (nn.Module.half, None, r"float16, and was float32 when the learner was made; convert"),
    "bfloat16": (lambda n: n.to(torch.bfloat16), None, r"bfloat16, and was float32 when the learner was made"),
    "moved": (lambda n: n.to("meta"), None, r"on meta, and was on cpu when the learner was made"),
    "pruned": (
        lambda n: prune.l1_unstructured(n[2], "weight", amount=0.5), None, "was pruned, parametrized or replaced",
    ),
    "parametrized": (
        lambda n: parametrize.register_parametrization(n[6], "weight", Half()),
        lambda n: parametrize.remove_parametrizations(n[6], "weight", leave_parametrized=False),
        "was pruned, parametrized or replaced",
    ),
    "spectral norm": (lambda n: parametrizations.spectral_norm(n[6]), None, "was pruned, parametrized or replaced"),
    "replaced": (lambda n: setattr(n[6], "weight", nn.Parameter(torch.zeros(12, 20))), None, "or replaced"),
    "assigned": (
        lambda n: n.load_state_dict({k: v.clone() for k, v in n.state_dict().items()}, assign=True), None,
        "pruned, parametrized or replaced",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("method", ["hat", "pmask"])
def test_a_network_that_is_no_longer_the_one_handed_over_is_named(
    method: str, change: str, tasks: list[Task], tmp_path: Path
) -> None:
    made = net()
    learner = Learner(made, METHODS[method](), epochs=1)
    learner.learn(tasks[0])
    x = tasks[0].test.first(9)
    answer, before = learner.predict(x, 0), held(learner, tmp_path)
    do, undo, says = CHANGES[change]
    do(made)
    for call in (
        lambda: learner.predict(x, 0),
        lambda: learner.evaluate(tasks[0], 0),
        learner.verify,
        lambda: learner.learn(tasks[1]),
        lambda: learner.save(tmp_path),
        lambda: copy.deepcopy(learner),
    ):
        with pytest.raises(HatrackError, match=says) as told:
            call()
        assert "\n" not in str(told.value)
    assert json.loads((tmp_path / "learner.json").read_text()) == before
    if undo is not None:
        undo(made)
        assert torch.equal(learner.predict(x, 0), answer)
        assert learner.verify().ok
        assert held(learner, tmp_path)["files"]["tasks"] == before["files"]["tasks"]
        learner.learn(tasks[1])
        assert learner.verify().ok


def test_pruning_made_permanent_is_what_verify_finds(tasks: list[Task]) -> None:
    made = net()
    learner = Learner(made, HAT(), epochs=2)
    learner.learn(tasks[0])
    prune.l1_unstructured(made[2], "weight", amount=0.5)
    prune.remove(made[2], "weight")
    verdict = learner.verify()
    assert not verdict.ok
    assert "first layer that drifted: 2 " in str(verdict)


def test_what_is_no_change_raises_no_alarm(tasks: list[Task], tmp_path: Path) -> None:
    made = net()
    learner = Learner(made, HAT(), epochs=1)
    learner.learn(tasks[0])
    said = str(learner.verify())
    made.float().cpu().to("cpu").to(torch.float32).train().requires_grad_(True).zero_grad()
    made.load_state_dict(made.state_dict())
    made[3].register_buffer("running_mean", made[3].running_mean.double())  # as forward passes may do that cache
    made[3].register_buffer("running_mean", made[3].running_mean.float())
    assert str(learner.verify()) == said
    learner.save(tmp_path)
    learner.learn(tasks[1])
    assert learner.verify().ok


# ---- copies and processes


@pytest.mark.parametrize("method", METHODS)
def test_a_copy_learns_on_and_the_original_stays_as_it_is(method: str, tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS[method](), lambda p: torch.optim.Adam(p, lr=1e-3), epochs=1)
    learner.learn(tasks[0])
    made = copy.deepcopy(learner)
    before = held(learner, tmp_path / "original")
    assert held(made, tmp_path / "copy") == before
    made.learn(tasks[1])
    x = tasks[0].test.first(20)
    made.predict(x, 1)
    assert held(learner, tmp_path / "original") == before
    learner.learn(tasks[1])
    assert held(learner, tmp_path / "original") == held(made, tmp_path / "copy")
    mine = {t.data_ptr() for t in learner.model.tensors().values() if t.numel()}
    assert not mine & {t.data_ptr() for t in made.model.tensors().values()}


class CopiesItself(nn.Sequential):
    def __deepcopy__(self, memo: Any) -> nn.Module:
        return net()


def test_what_cannot_be_copied_is_refused_in_one_line(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=1)

    def stop(_: object) -> None:
        with pytest.raises(
            HatrackError, match=r"in the middle of a task \('digits 0-1'\) cannot be copied; .* save it"
        ):
            copy.deepcopy(learner)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[0], on_epoch=stop)
    for call in (pickle.dumps, copy.copy):
        with pytest.raises(HatrackError, match=r"cannot be pickled; save it \(learner\.save\) and load it"):
            call(learner)  # type: ignore[operator]
    own = Learner(CopiesItself(*net()), METHODS["sgd"](), epochs=1)
    with pytest.raises(HatrackError, match=r"CopiesItself copies itself in a way of its own; save it"):
        copy.deepcopy(own)
    odd = net()
    odd.cache = odd[2](torch.randn(2, 64))  # what a forward pass may leave behind: a part of a graph
    with pytest.raises(HatrackError, match=r"this learner cannot be copied \(.*\); save it"):
        copy.deepcopy(Learner(odd, METHODS["sgd"](), epochs=1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_answers_rightly_or_is_refused(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=30, batch_size=8)
    learner.learn(tasks[0])
    x = tasks[0].test.first(9)
    said = learner.predict(x, 0)
    assert in_a_child(lambda: torch.equal(learner.predict(x, 0), said)) is True
    begun = Event()
    thread = Thread(target=learner.learn, args=(tasks[1], lambda epoch: begun.set()))
    thread.start()
    begun.wait()
    found = [in_a_child(lambda: torch.equal(learner.predict(x, 0), said)) for _ in range(8)]
    thread.join()
    assert False not in found
    assert None in found  # where it was forked in the middle of a step
    assert learner.verify().ok


def test_workers_that_fork_feed_a_task_while_it_is_asked(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=3, workers=2)
    learner.learn(tasks[0])
    x = tasks[0].test.first(9)
    said, wrong, stop = learner.predict(x, 0), 0, Event()

    def ask() -> None:
        nonlocal wrong
        while not stop.is_set():
            wrong += not torch.equal(learner.predict(x, 0), said)

    thread = Thread(target=ask)
    thread.start()
    train = TensorDataset(*tasks[1].train.on(torch.device("cpu")))
    held_out = TensorDataset(*tasks[1].valid.on(torch.device("cpu")))
    learner.learn(Task("loaded", train, held_out, classes=2, inputs=tasks[1].inputs))
    stop.set()
    thread.join()
    assert wrong == 0
    assert learner.verify().ok
