"""Checkpoints written in the background are those of the moment they were asked for."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
import torch

import hatrack
from hatrack import Learner
from hatrack.methods.hat import HAT
from hatrack.nets import build
from hatrack.runs import writer as module
from hatrack.runs.writer import Writer


def learner() -> Learner:
    torch.manual_seed(0)
    made = Learner(build("mlp", (1, 8, 8), widths=(10,)), HAT(), epochs=1, device="cpu")
    made.learn(hatrack.tasks("split-digits", seed=0)[0])
    return made


def nothing() -> None:
    """Do nothing."""


class Pretend:
    """A learner that says it is on a GPU."""

    def __init__(self, real: Learner) -> None:
        self.__dict__ = real.__dict__ | {"device": torch.device("cuda")}
        self.finished = real.finished


@pytest.mark.parametrize("background", [False, True])
def test_what_is_written_is_a_copy_of_the_moment(background: bool, tmp_path: Path) -> None:
    real = learner()
    expected = {name: t.clone() for name, t in real.model.tensors().items()}
    with Writer(Pretend(real) if background else real, tmp_path, nothing) as writer:  # type: ignore[arg-type]
        writer.save()
        with torch.no_grad():
            for tensor in real.model.tensors().values():
                tensor.add_(1)
    loaded = hatrack.load(tmp_path, build("mlp", (1, 8, 8), widths=(10,)), device="cpu")
    for name, tensor in loaded.model.tensors().items():
        assert torch.equal(tensor, expected[name])


def test_what_goes_wrong_in_the_background_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "snapshot", lambda *_: fails)
    with pytest.raises(OSError, match="No space left"), Writer(Pretend(learner()), tmp_path, nothing) as writer:  # type: ignore[arg-type]
        writer.save()


def test_epochs_that_end_soon_after_a_checkpoint_are_left_out_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    saved: list[float] = []

    def slow() -> None:
        saved.append(now[0])
        now[0] += 0.1  # so long it takes to write

    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "snapshot", lambda *_: slow)
    real = learner()
    with Writer(Pretend(real), tmp_path, nothing) as writer:  # type: ignore[arg-type]
        for now[0] in (10.0, 10.4, 10.99, 11.01, 11.5):
            writer.save()
            writer.wait()
        writer.save(last=True)
    assert saved == [10.0, 11.01, 11.5]
    with Writer(real, tmp_path, nothing) as writer:
        for _ in range(2):
            writer.save()
    assert len(saved) == 5


def test_an_epoch_does_not_wait_for_a_checkpoint_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = Event(), Event()
    written: list[int] = []

    def slow() -> None:
        begun.set()
        go_on.wait(60)
        written.append(1)

    monkeypatch.setattr(module, "snapshot", lambda *_: slow)
    with Writer(Pretend(learner()), tmp_path, nothing) as writer:  # type: ignore[arg-type]
        writer.save()
        assert begun.wait(60)
        assert writer.busy
        writer.save()
        assert written == []
        go_on.set()
    assert written == [1]


@pytest.mark.parametrize("background", [False, True])
def test_something_else_may_have_to_be_on_disk_first(
    background: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(module, "snapshot", lambda *_: lambda: order.append("checkpoint"))
    real = learner()
    with Writer(Pretend(real) if background else real, tmp_path, lambda: order.append("lines")) as writer:  # type: ignore[arg-type]
        writer.save()
    assert order == ["lines", "checkpoint"]
