"""A last batch of one sample is left out where batch norm cannot normalise it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor, nn

from hatrack import HAT, HatrackError, Learner, Task
from hatrack.data.feed import Batch
from hatrack.learn.machine.parallel import ProcessGroup


def samples(count: int, name: str = "a", shape: tuple[int, ...] = (6,)) -> Task:
    x, y = torch.randn(count, *shape, generator=torch.Generator().manual_seed(0)), torch.arange(count) % 2
    return Task(name, (x, y), (x, y), (x, y), classes=2)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU())


def steps(learner: Learner, task: Task) -> int:
    """Learn a task; return how many steps its last epoch took."""
    learner.learn(task)
    return int(learner.method.clock.step)


@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_one_sample_is_left_out_where_batch_norm_would_refuse_it(engine: str) -> None:
    learner = Learner(normed(), epochs=1, batch_size=4, device="cpu", engine=engine)
    assert steps(learner, samples(13)) == 3
    assert steps(learner, samples(14, "b")) == 4


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (nn.Sequential(nn.Linear(6, 4), nn.ReLU()), (6,)),
        (nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.ReLU()), (6,)),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()), (1, 4, 4)),
    ],
)
def test_one_sample_is_a_step_where_it_can_be(net: nn.Module, shape: tuple[int, ...]) -> None:
    assert steps(Learner(net, epochs=1, batch_size=4, device="cpu"), samples(13, shape=shape)) == 4


def test_frozen_statistics_take_one_sample() -> None:
    learner = Learner(normed(), HAT(norm="frozen"), epochs=1, batch_size=4, device="cpu")
    assert steps(learner, samples(13)) == 3
    assert steps(learner, samples(13, "b")) == 4


@pytest.mark.parametrize(("count", "size", "got"), [(8, 1, "a batch size of 1; raise"), (1, 4, "a task of 1 to train")])
def test_steps_of_one_sample_are_refused(count: int, size: int, got: str) -> None:
    learner = Learner(normed(), epochs=1, batch_size=size, device="cpu")
    with pytest.raises(HatrackError, match=f"batch norm of Sequential needs 2 samples a step or more, got {got}"):
        learner.learn(samples(count))


class Mute(ProcessGroup):
    """Of two processes, one that says and hears nothing."""

    def all_reduce(self, tensors: Sequence[Tensor]) -> None: ...

    def spread(self, loss: Callable[[Batch], Tensor], trained: Mapping[str, Tensor]) -> Callable[[Batch], Tensor]:
        return lambda batch: loss(self.shard(batch)[0])

    def broadcast(self, tensors: Sequence[Tensor], device: torch.device) -> None: ...


def test_every_process_gets_two_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(normed(), epochs=1, batch_size=6, device="cpu")
    monkeypatch.setattr("hatrack.learn.step.process_group", lambda: Mute(0, 2))
    assert steps(learner, samples(15)) == 2
    assert steps(learner, samples(16, "b")) == 3
    learner.batch_size = 3
    with pytest.raises(HatrackError, match=r"needs 4 samples a step or more \(2 processes\), got a batch size of 3"):
        learner.learn(samples(9, "c"))
