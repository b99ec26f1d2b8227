"""Locked entries of the network keep their bits whoever writes while a task is learned, or the learner says no."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.learn import fit
from hatrack.learn.proof.verification import same_bits
from hatrack.learn.step import Stepper
from hatrack.methods import METHODS
from zoo import Lively, alive

from .writers import OPTIMISERS, WRITERS, EveryThird, MuonAndAdamW, Scaled, ScheduleFree

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
KINDS: dict[str, Callable[..., Optimizer]] = {
    "SGD": functools.partial(SGD, lr=0.05, momentum=0.9),
    "Adam": functools.partial(Adam, lr=0.01),
    "AdamW": functools.partial(AdamW, lr=0.01, weight_decay=0.0),
    "RMSprop": functools.partial(RMSprop, lr=0.01),
}


def task(number: int) -> Task:
    draw = torch.Generator().manual_seed(number)
    x, y = torch.randn(40, 5, generator=draw), torch.arange(40) % 2
    return Task(f"task {number}", (x, y), (x[:8], y[:8]), (x[8:16], y[8:16]))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())


def taught(optimizer: Any = None, net: nn.Module | None = None, method: Any = None) -> Learner:
    """Return a learner behind its first task, learned with plain SGD; the next ones have `optimizer`."""
    learner = Learner(net or network(), method or Lively(c=0.1, lr=0.1), epochs=3, batch_size=8, device="cpu")
    learner.learn(task(0))
    learner._optimizer = optimizer
    return learner


class Relied:
    """What the first task relies on, as it was when it ended."""

    def __init__(self, learner: Learner) -> None:
        use = learner.method.use(0)
        assert use is not None
        self.learner, self.use = learner, {name: amount > 0 for name, amount in use.items()}
        self.before = {n: p.detach().clone() for n, p in learner.model.net.named_parameters()}

    def same(self) -> bool:
        now = dict(self.learner.model.net.named_parameters())
        return all(bool(same_bits(now[n].detach(), self.before[n])[used].all()) for n, used in self.use.items())

    def check(self) -> None:
        """The first task is what it was, and the others have learned something."""
        now = dict(self.learner.model.net.named_parameters())
        assert self.same()
        assert any(bool((now[n] != self.before[n])[~used].any()) for n, used in self.use.items())
        assert alive(self.learner)
        verdict = self.learner.verify()
        assert verdict.ok, str(verdict)


@pytest.fixture
def after_steps(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], bool]]:
    """Return a list of checks that must hold after every step."""
    checks: list[Callable[[], bool]] = []
    settle = Stepper.settle

    def watched(self: Stepper, loss: Tensor) -> None:
        settle(self, loss)
        assert all(check() for check in checks)

    monkeypatch.setattr(Stepper, "settle", watched)
    return checks


@pytest.fixture
def no_trace() -> Iterator[None]:
    """Take global hooks away again."""
    yield
    for name, hooks in vars(nn.modules.module).items():
        if name.startswith("_global_") and isinstance(hooks, dict):
            hooks.clear()


# ---- optimisers


@pytest.mark.parametrize("name", OPTIMISERS)
def test_under_any_optimiser(name: str, after_steps: list[Callable[[], bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    learner = taught(OPTIMISERS[name])
    relied = Relied(learner)
    after_steps.append(relied.same)
    validate, validated = fit.validate, []

    def watched(*given: Any) -> Any:
        validated.append(relied.same())
        return validate(*given)

    monkeypatch.setattr(fit, "validate", watched)
    learner.learn(task(1), on_epoch=lambda _: None if relied.same() else pytest.fail("between two epochs"))
    learner.learn(task(2))
    assert validated == [True] * 6
    if name == "lost parameters":  # then the network learns nothing, but forgets nothing either
        assert relied.same()
        assert learner.verify().ok
    else:
        relied.check()


@pytest.mark.parametrize("kind", ["AdamWScheduleFree", "SGDScheduleFree", "RAdamScheduleFree"])
def test_under_the_schedule_free_optimisers_of_their_authors(kind: str) -> None:
    package = pytest.importorskip("schedulefree")
    learner = taught(lambda p: getattr(package, kind)(p, lr=0.05, weight_decay=0.1))
    relied = Relied(learner)
    learner.learn(task(1), on_epoch=lambda _: None if relied.same() else pytest.fail("between two epochs"))
    relied.check()


def test_a_schedule_free_optimiser_would_move_locked_entries_when_it_switches() -> None:
    """The check above can fail: what is locked after a step is not what it was in the other mode."""
    p = nn.Parameter(torch.ones(2))
    optimizer = ScheduleFree([p])
    optimizer.train()
    for _ in range(2):
        p.grad = torch.zeros(2)
        optimizer.step()
        p.data.fill_(1.0)
    optimizer.eval()
    assert bool((p != 1).all())


def test_a_schedule_free_optimiser_answers_with_its_average() -> None:
    made: list[ScheduleFree] = []

    def factory(parameters: Any) -> Optimizer:
        made.append(ScheduleFree(parameters))
        return made[-1]

    learner = Learner(network(), METHODS["sgd"](), factory, epochs=2, batch_size=8, device="cpu")
    learner.learn(
        task(0), on_epoch=lambda _: None if not made[0].param_groups[0]["training"] else pytest.fail("in training")
    )
    weight = next(learner.model.net.parameters()).detach().clone()
    made[0].eval()
    assert torch.equal(next(learner.model.net.parameters()), weight)
    made[0].train()
    assert not torch.equal(next(learner.model.net.parameters()), weight)


def test_accumulation_and_scaling_are_what_they_say() -> None:
    made: list[Any] = []

    def factory(kind: Any, **options: Any) -> Callable[[Any], Optimizer]:
        def make(parameters: Any) -> Optimizer:
            made.append(kind(parameters, **options))
            return made[-1]  # type: ignore[no-any-return]

        return make

    for kind in (EveryThird, Scaled):
        taught(factory(kind, lr=0.05)).learn(task(1))
    assert made[0].calls == 15
    assert 0 < made[1].skipped < 15


@pytest.mark.parametrize("factory", [MuonAndAdamW, ScheduleFree], ids=["muon and adamw", "schedule-free"])
def test_a_run_taken_up_again_ends_where_it_would_have(factory: Any, tmp_path: Path) -> None:
    def learner() -> Learner:
        return Learner(network(), Lively(c=0.1, lr=0.1), factory, epochs=3, batch_size=8, device="cpu")

    whole = learner()
    for number in range(2):
        whole.learn(task(number))
    first = learner()
    first.learn(task(0))
    with pytest.raises(KeyboardInterrupt):
        first.learn(task(1), on_epoch=lambda _: (first.save(tmp_path), (_ for _ in ()).throw(KeyboardInterrupt))[1])
    again = hatrack.load(tmp_path, network(), Lively(c=0.1, lr=0.1), factory, device="cpu")
    again.learn(task(1))
    for mine, theirs in zip(again.model.net.parameters(), whole.model.net.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert again.verify().ok


def test_a_rate_that_falls_and_a_fresh_start_reach_both_parts() -> None:
    p, q = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3))
    optimizer = MuonAndAdamW([p, q])
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    p.grad, q.grad = torch.ones(3, 3), torch.ones(3)
    optimizer.step()
    assert torch.equal(p, torch.ones(3, 3))
    assert torch.equal(q, torch.ones(3))
    assert set(optimizer.state) == {p, q}
    optimizer.state.clear()
    assert not any(part.state for part in optimizer.parts)


# ---- hooks and patches


@pytest.mark.usefixtures("no_trace")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing when gradients are computed with respect to")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writer", WRITERS)
def test_whatever_hook_writes(writer: str, kind: str, after_steps: list[Callable[[], bool]]) -> None:
    """Also where it runs in evaluation: the first task's own answers are then asked for only without it."""
    net = network()
    learner = taught(KINDS[kind], net)
    relied = Relied(learner)
    after_steps.append(relied.same)
    on, writes = [True], []

    def write() -> None:
        if on[0]:
            writes.append(1)
            for p in net.parameters():
                p.data.mul_(0.99)  # not in sight of autograd

    WRITERS[writer](net, write)

    def between(epoch: Any) -> None:
        assert relied.same()
        on[0] = epoch.epoch < 3

    learner.learn(task(1), on_epoch=between)
    assert writes
    relied.check()


def mine(step: Any, self: Any, *args: Any) -> None:
    step(self, *args)
    for group in self.param_groups:
        for p in group["params"]:
            p.data.mul_(0.99)


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_patched_class(
    kind: str, wraps: bool, after_steps: list[Callable[[], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = taught(KINDS[kind])
    relied = Relied(learner)
    after_steps.append(relied.same)
    own = getattr(torch.optim, kind).step

    def patched(self: Any, *args: Any) -> None:
        mine(own, self, *args)

    monkeypatch.setattr(getattr(torch.optim, kind), "step", functools.wraps(own)(patched) if wraps else patched)
    learner.learn(task(1))
    relied.check()


# ---- what nobody sees coming


class Constrained(nn.Module):
    """Writes to its weights in training, and not through what its modules hold by then."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()
        self.kept = [list(self.body.parameters())]

    @torch.no_grad()
    def constrain(self) -> None:
        for p in self.kept[0]:
            p.data.mul_(0.99)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.constrain()
        return self.body(x)  # type: ignore[no-any-return]


def test_a_network_that_writes_to_itself() -> None:
    learner = taught(KINDS["SGD"], Constrained())
    relied = Relied(learner)
    learner.learn(task(1), on_epoch=lambda _: None if relied.same() else pytest.fail("between two epochs"))
    relied.check()


@pytest.mark.parametrize("way", ["in place", "in and out", "left in"])
def test_averages_put_in_place_between_epochs(way: str, tmp_path: Path) -> None:
    learner = taught(KINDS["SGD"])
    relied = Relied(learner)
    net = learner.model.net
    average = torch.optim.swa_utils.AveragedModel(net)

    @torch.no_grad()
    def swap(_: Any) -> None:
        average.update_parameters(net)
        for a in average.parameters():
            a.mul_(0.9)
        for p, a in zip(net.parameters(), average.module.parameters(), strict=True):
            if way == "in place":
                p.data.copy_(a)
            elif way == "left in":
                p.data = a.detach().clone()
            else:
                p.data, a.data = a.data, p.data
        assert not relied.same()
        learner.save(tmp_path)
        if way == "in and out":
            for p, a in zip(net.parameters(), average.module.parameters(), strict=True):
                p.data, a.data = a.data, p.data

    learner.learn(task(1), on_epoch=swap)
    relied.check()
    loaded = hatrack.load(tmp_path, network(), Lively(c=0.1, lr=0.1), KINDS["SGD"], device="cpu")
    loaded.learn(task(1))
    assert Relied(loaded).before.keys() == relied.before.keys()
    assert loaded.verify().ok


def replaced(net: Any) -> None:
    net[2].weight = nn.Parameter(net[2].weight.detach() * 0.9)


def parametrised(net: Any) -> None:
    torch.nn.utils.parametrizations.weight_norm(net[2])


def tied(net: Any) -> None:
    net[0].bias.data = net[2].bias.data


@pytest.mark.parametrize("spoil", [replaced, parametrised, tied])
def test_what_no_lock_can_reach_is_refused(spoil: Callable[[Any], None]) -> None:
    learner = taught(KINDS["SGD"])
    with pytest.raises(HatrackError, match="has locked entries and was replaced, reshaped or tied") as refused:
        learner.learn(task(1), on_epoch=lambda e: spoil(learner.model.net) if e.epoch == 3 else None)
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore::hatrack.learn.fit.DivergenceWarning")
def test_a_factory_that_writes_and_an_optimiser_that_only_diverges() -> None:
    def factory(parameters: Any) -> Optimizer:
        for p in parameters:
            p.data.mul_(0.9)
        return SGD(parameters, lr=1e38)

    learner = taught(factory)
    relied = Relied(learner)
    learner.learn(task(1))
    relied.check()


@pytest.mark.parametrize("method", ["den", "packnet"])
def test_the_lock_of_a_phase_ends_with_it(method: str) -> None:
    """What a method itself puts in place between two phases is not undone by what the first one locked."""
    learner = taught(method=METHODS[method]())
    last = learner.method.lock
    assert last is not None
    learner.method.begin_phase(0)
    assert learner.method.lock is not last


@pytest.mark.parametrize("method", ["packnet", "pathnet", "pmask", "hat"])
def test_other_methods_hold_on_as_well(method: str) -> None:
    learner = taught(ScheduleFree, method=METHODS[method]())
    relied = Relied(learner)

    @torch.no_grad()
    def shrink(_: Any) -> None:
        for p in learner.model.net.parameters():
            p.mul_(0.9)

    learner.learn(task(1), on_epoch=shrink)
    assert relied.same()
    assert learner.verify().ok
