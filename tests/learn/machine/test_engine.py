"""Engines do the same arithmetic; a cohort ends where each member would have ended alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.learn import step
from hatrack.learn.machine import compiled
from hatrack.learn.machine.engine import PAUSE, WARM, EngineWarning, resolve_engine
from hatrack.learn.machine.side_by_side import OwnStream, take_turns, together
from hatrack.methods import METHODS
from hatrack.methods.hat import HAT
from hatrack.methods.sgd import SGD
from hatrack.nets import model

CPU = torch.device("cpu")
STEPS = 9


def task(seed: int, steps: int = STEPS, shape: tuple[int, ...] = (6,)) -> Task:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(16 * steps - 5, *shape, generator=draw)
    y = (x.flatten(1) @ torch.randn(x[0].numel(), generator=draw) > 0).long()
    return Task(f"t{seed}", (x, y), (x[:20], y[:20]), (x[:20], y[:20]))


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(24, 8), nn.ReLU()
    )


def taught(
    method: str, engine: str, net: Callable[[], nn.Module] = mlp, shape: tuple[int, ...] = (6,), epochs: int = 2
) -> Learner:
    learner = Learner(net(), METHODS[method](), epochs=epochs, batch_size=16, device="cpu", engine=engine)
    for t in range(2):
        learner.learn(task(t, shape=shape))
    return learner


def everything(learner: Learner) -> dict[str, Tensor]:
    heads = {f"{t}/{n}": p for t, head in enumerate(learner.model.heads) for n, p in head.named_parameters()}
    own = {f"own/{t}/{n}": p for t, held in enumerate(learner.model.private) for n, p in held.items()}
    return {**learner.model.tensors(), **heads, **own, **learner.method.state()}


def assert_same(a: Learner, b: Learner) -> None:
    left, right = everything(a), everything(b)
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=0, atol=1e-6, msg=name)


@pytest.fixture
def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the traced step through torch's own kernels: the generated code takes a minute to build."""
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setattr(compiled, "_KNOWN", {})
    warnings.filterwarnings("error", category=EngineWarning)


@pytest.mark.parametrize("method", ["hat", "sgd", "ewc", "si", "a-gem", "der++", "packnet", "pmask"])
@pytest.mark.usefixtures("traced_only")
def test_a_traced_step_is_the_step(method: str) -> None:
    assert_same(taught(method, "compiled"), taught(method, "eager"))
    assert compiled._KNOWN, "nothing was compiled"


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.usefixtures("traced_only")
def test_every_method_can_be_traced(method: str) -> None:
    assert_same(taught(method, "compiled"), taught(method, "eager"))


@pytest.mark.usefixtures("traced_only")
def test_a_traced_step_follows_parameters_that_are_given_another_place() -> None:
    """An average swapped in between two epochs, say: what was traced or recorded reads and moves the old place."""
    learners = []
    for engine in ("compiled", "eager"):
        learner = Learner(mlp(), HAT(), epochs=3, batch_size=16, device="cpu", engine=engine)

        def move(_: object, learner: Learner = learner) -> None:
            for p in learner.model.net.parameters():
                p.data = p.data * 0.5

        for t in range(2):
            learner.learn(task(t), on_epoch=move)
        learners.append(learner)
        assert learner.verify().ok
    assert_same(*learners)


@pytest.mark.usefixtures("traced_only")
def test_running_statistics_and_dropout_are_part_of_a_traced_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "fast", nullcontext)  # what is traced draws as torch does, in memory's order
    monkeypatch.setattr(model, "best_layout", lambda *_: torch.contiguous_format)
    shape = (1, 4, 4)
    both = [taught("hat", engine, convolutions, shape) for engine in ("compiled", "eager")]
    assert_same(*both)
    assert float(both[0].model.private[1]["1.running_mean"].abs().max()) > 0


@pytest.mark.usefixtures("traced_only")
def test_the_same_code_serves_later_tasks() -> None:
    learner = taught("hat", "compiled")
    known = len(compiled._KNOWN)
    assert known == 2  # without a lock, and with one
    learner.learn(task(2))
    assert len(compiled._KNOWN) == known


@pytest.mark.slow
def test_generated_code_does_the_same() -> None:
    assert_same(taught("hat", "compiled"), taught("hat", "eager"))


def test_a_step_that_breaks_off_while_it_is_traced_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")

    class Asks(nn.Module):
        """Counts batches, draws random numbers, and only then asks for a number."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.3))
            self.second = nn.Linear(12, 12)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            return self.second(hidden if float(hidden.detach().sum()) > 0 else -hidden)

    def made() -> nn.Module:
        torch.manual_seed(0)
        return Asks()

    with pytest.warns(EngineWarning, match="cannot be compiled"):
        beside = taught("sgd", "compiled", made)
    assert_same(taught("sgd", "eager", made), beside)


def test_a_step_that_cannot_be_traced_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    plain = HAT.loss

    def asks(self: HAT, batch: hatrack.data.feed.Batch) -> Tensor:
        loss = plain(self, batch)
        assert float(loss.detach()) < 1e9  # a host round trip
        return loss

    monkeypatch.setattr(HAT, "loss", asks)
    with pytest.warns(EngineWarning, match="'compiled' cannot be used for hat: its step cannot be compiled .* 'eager'"):
        learner = taught("hat", "compiled")
    monkeypatch.undo()
    assert_same(learner, taught("hat", "eager"))


def lbfgs(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(parameters, lr=0.01, max_iter=2)


def test_what_no_engine_can_do_says_so() -> None:
    learner = Learner(mlp(), SGD(), lbfgs, epochs=1, batch_size=16, device="cpu", engine="compiled")
    with pytest.warns(EngineWarning, match="LBFGS evaluates the loss"):
        learner.learn(task(0))
    data = TensorDataset(torch.randn(32, 6), torch.arange(32) % 2)
    learner = Learner(mlp(), SGD(), epochs=1, batch_size=16, device="cpu", engine="compiled")
    with pytest.warns(EngineWarning, match="come from a Dataset"):
        learner.learn(Task("set", data, data, classes=2))


def test_engines_by_name() -> None:
    assert resolve_engine("auto", CPU) == "eager"
    assert resolve_engine("auto", torch.device("cuda")) == "graph"
    with pytest.raises(HatrackError, match="'graph' needs a CUDA device"):
        resolve_engine("graph", CPU)
    with pytest.raises(HatrackError, match="did you mean 'compiled'"):
        resolve_engine("compild", CPU)


@pytest.mark.parametrize("method", ["hat", "ucl"])
def test_a_cohort_ends_where_each_would_alone(method: str) -> None:
    def new(seed: int) -> Learner:
        net = nn.Sequential(mlp(), nn.Dropout(0.3))
        return Learner(net, METHODS[method](), epochs=2, batch_size=2, seed=seed, device="cpu")

    steps = 2 * PAUSE // 8 + WARM  # so many that turns change within an epoch
    tasks = [task(t, steps) for t in range(2)]
    alone = [new(seed) for seed in range(3)]
    for learner in alone:
        for one in tasks:
            learner.learn(one)
    beside = [new(seed) for seed in range(3)]
    turns: list[int] = []

    def member(i: int) -> object:
        for one in tasks:
            for _ in beside[i].learning(one):
                turns.append(i)
                yield

    before = torch.get_rng_state()
    assert together([member(i) for i in range(3)], CPU) == [None] * 3  # type: ignore[misc]
    assert torch.equal(torch.get_rng_state(), before)
    assert turns[:6] == [0, 1, 2, 0, 1, 2]
    for a, b in zip(alone, beside, strict=True):
        assert_same(a, b)


def test_only_so_many_have_their_turns_at_once() -> None:
    turns: list[int] = []

    def member(i: int) -> Iterator[None]:
        for _ in range(2):
            turns.append(i)
            yield

    ends = list(take_turns(((OwnStream(CPU), member(i)) for i in range(4)), at_once=2))
    assert turns == [0, 1, 0, 1, 2, 3, 2, 3]
    assert ends == [(i, None) for i in range(4)]


def test_a_turn_is_due_when_the_device_has_done_the_last_one() -> None:
    turns: list[str] = []

    class Slow(OwnStream):
        """A stream whose device is at work for three looks after every turn."""

        looks = 0

        @property
        def busy(self) -> bool:
            self.looks += 1
            return self.looks % 4 != 0

    def member(name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            turns.append(name)
            yield

    members = [(Slow(CPU), member("slow", 3)), (OwnStream(CPU), member("quick", 9))]
    assert sorted(take_turns(members)) == [(0, None), (1, None)]
    assert turns[:8] == ["quick"] * 3 + ["slow"] + ["quick"] * 4
    assert turns.count("slow") == 3


def test_a_member_that_fails_does_not_stop_the_others() -> None:
    def fails() -> object:
        yield
        raise HatrackError("no")

    done: list[int] = []

    def works() -> object:
        for i in range(3):
            done.append(i)
            yield

    outcome = together([fails(), works()], CPU)  # type: ignore[list-item]
    assert str(outcome[0]) == "no"
    assert outcome[1] is None
    assert done == [0, 1, 2]
