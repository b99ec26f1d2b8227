"""Schedules: patience against the paper's wording, the others against closed formulas and torch stepped by hand."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from functools import partial
from math import cos, inf, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim import lr_scheduler as torchs

import hatrack
from hatrack import ByStep, DivergenceWarning, Epoch, HatrackError, HatrackWarning, Learner, Task
from hatrack.errors import EngineWarning
from hatrack.learn.machine.engine import Engine
from hatrack.learn.schedule import Patience
from hatrack.learn.step import Stepper, build
from hatrack.masks.lock import watched
from hatrack.methods import METHODS

EPOCHS, STEPS = 6, 3  # steps an epoch


def test_lr_is_divided_after_the_patience_and_training_ends_below_the_minimum() -> None:
    schedule = Patience(lr=0.05, factor=3.0, patience=5, minimum=1e-4)
    assert schedule.record(1.0)
    epochs, seen = 0, []
    while not schedule.over:
        assert not schedule.record(1.0)  # equal is not lower
        epochs += 1
        if schedule.stalled == 0:
            seen.append(schedule.lr)
    assert seen == pytest.approx([0.05 / 3**k for k in range(1, 7)])  # the published code's six drops
    assert epochs == 6 * 5


def test_an_improvement_starts_the_count_again() -> None:
    schedule = Patience(lr=1.0, factor=2.0, patience=2, minimum=0.1)
    for loss, lr in ((3.0, 1.0), (3.5, 1.0), (2.9, 1.0), (3.0, 1.0), (3.0, 0.5), (2.0, 0.5), (2.5, 0.5), (2.5, 0.25)):
        schedule.record(loss)
        assert schedule.lr == lr


def test_every_task_starts_with_a_fresh_schedule() -> None:
    first = Patience(0.05, 3.0, 5, 1e-4)
    for _ in range(20):
        first.record(1.0)
    second = Patience(0.05, 3.0, 5, 1e-4)
    assert (second.lr, second.best, second.stalled) == (0.05, inf, 0)


def test_the_minimum_itself_is_still_trained_at() -> None:
    schedule = Patience(lr=1.0, factor=2.0, patience=1, minimum=0.25)
    overs = []
    for _ in range(3):
        schedule.drop()
        overs.append((schedule.lr, schedule.over))
    assert overs == [(0.5, False), (0.25, False), (0.125, True)]


# ---- what optimisers saw, step by step


def task(number: int = 0) -> Task:
    draw = torch.Generator().manual_seed(number)
    x, y = torch.randn(8 * STEPS, 5, generator=draw), torch.arange(8 * STEPS) % 2
    return Task(f"task {number}", (x, y), (x[:8], y[:8]))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())


def numbers(group: dict[str, Any]) -> dict[str, Any]:
    return {k: float(v) if isinstance(v, Tensor) else v for k, v in group.items() if k != "params"}


class Seen:
    """A callable that makes optimisers which note the settings of all their groups at each step."""

    def __init__(self, kind: type[Optimizer], spoil: int | None = None, **options: Any) -> None:
        self.steps: list[list[dict[str, Any]]] = []
        self.made: list[Optimizer] = []
        seen = self

        class Noting(kind):  # type: ignore[misc,valid-type]
            def step(self, closure: Any = None) -> None:
                seen.steps.append([numbers(group) for group in self.param_groups])
                super().step(closure)
                if spoil is not None and len(seen.steps) == spoil:
                    self.param_groups[0]["params"][0].data.fill_(torch.nan)

        self.kind, self.options = Noting, options

    def __call__(self, parameters: Any) -> Optimizer:
        self.made.append(self.kind(parameters, **self.options))
        return self.made[-1]

    def rates(self) -> list[float]:
        return [groups[0]["lr"] for groups in self.steps]


def learner(scheduler: Any, optimizer: Any = None, method: str = "hat", **options: Any) -> Learner:
    given = {"epochs": EPOCHS, "batch_size": 8, "device": "cpu"} | options
    return Learner(network(), METHODS[method](lr_patience=2), optimizer, scheduler=scheduler, **given)


def by_hand(make: Callable[[Optimizer], Any], kind: Any, every: int, losses: Sequence[float] = ()) -> list[Any]:
    """Return the settings of an optimiser whose scheduler is stepped after `every` steps, over a whole task."""
    optimizer = kind([nn.Parameter(torch.zeros(1))])
    scheduler, seen = make(optimizer), []
    for step in range(EPOCHS * STEPS):
        seen.append([numbers(group) for group in optimizer.param_groups])
        optimizer.step()
        if (step + 1) % every == 0:
            scheduler.step(*[losses[step // every]] if losses else [])
    return seen


def cosine(lr: float) -> list[float]:
    return [lr * (1 + cos(pi * (step // STEPS) / EPOCHS)) / 2 for step in range(EPOCHS * STEPS)]


def onecycle(low: float, high: float, end: float) -> list[float]:
    """Half a cosine from low to high in 30 % of the steps, half a cosine on to the end."""
    steps, found = EPOCHS * STEPS, []
    top = 0.3 * steps - 1
    for step in range(steps):
        start, goal, share = (low, high, step / top) if step <= top else (high, end, (step - top) / (steps - 1 - top))
        found.append(goal + (start - goal) / 2 * (1 + cos(pi * share)))
    return found


@pytest.mark.parametrize("lr", [0.05, 0.002])
def test_named_schedules_against_closed_formulas(lr: float) -> None:
    expected = {
        "cosine": cosine(lr),
        "constant": [lr] * (EPOCHS * STEPS),
        "onecycle": onecycle(lr / 25, lr, lr / 25 / 1e4),
    }
    for name, rates in expected.items():
        seen = Seen(SGD, lr=lr)
        made = learner(name, seen)
        history = made.learn(task())
        assert seen.rates() == pytest.approx(rates, rel=1e-12, abs=1e-18), name
        assert [e.lr for e in history.epochs] == pytest.approx(rates[::STEPS], rel=1e-12), name
        assert all(groups[0]["momentum"] == 0 for groups in seen.steps)  # none is brought in


@pytest.mark.parametrize(("kind", "options"), [(SGD, {"momentum": 0.5}), (AdamW, {})])
def test_onecycle_turns_momentum_the_other_way(kind: type[Optimizer], options: dict[str, Any]) -> None:
    seen = Seen(kind, lr=0.01, **options)
    learner("onecycle", seen).learn(task())
    found = [groups[0]["momentum"] if kind is SGD else groups[0]["betas"][0] for groups in seen.steps]
    assert found == pytest.approx(onecycle(0.95, 0.85, 0.95), rel=1e-12)


def test_the_methods_own_optimiser_follows_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(SGD, lr=0.05)
    monkeypatch.setattr(METHODS["hat"], "optimizer", lambda self, parameters: seen(parameters))
    learner("cosine").learn(task())
    assert len(seen.made) == 1
    assert seen.rates() == pytest.approx(cosine(0.05), rel=1e-12)


def test_gates_follow_in_proportion_to_the_highest_rate() -> None:
    def cycle(optimizer: Optimizer, steps: int) -> torchs.LRScheduler:
        return torchs.OneCycleLR(optimizer, 0.4, total_steps=steps)

    for scheduler, rates in (("cosine", cosine(1.0)), (ByStep(cycle), onecycle(1 / 25, 1.0, 1 / 25 / 1e4))):
        found: list[float] = []
        made, move = learner(scheduler, partial(AdamW, lr=0.01)), Stepper._move_gates
        with pytest.MonkeyPatch.context() as patch:

            def noted(self: Stepper, found: list[float] = found, move: Any = move) -> None:
                assert self.gates is not None
                found.append(self.gates.param_groups[0]["lr"])
                move(self)

            patch.setattr(Stepper, "_move_gates", noted)
            made.learn(task())
        assert found == pytest.approx([0.05 * share for share in rates], rel=1e-12)


def warmed(optimizer: Optimizer) -> torchs.LRScheduler:
    parts = [torchs.LinearLR(optimizer, 0.1, total_iters=2), torchs.CosineAnnealingLR(optimizer, 4)]
    return torchs.SequentialLR(optimizer, parts, [2])


def chained(optimizer: Optimizer) -> torchs.LRScheduler:
    return torchs.ChainedScheduler([torchs.ConstantLR(optimizer, 0.5, 3), torchs.ExponentialLR(optimizer, 0.9)])


class Halving:
    """A function of the epoch with a state of its own."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, epoch: int) -> float:
        self.asked += 1
        return 0.5**self.asked


TORCHS: dict[str, Any] = {
    "StepLR": partial(torchs.StepLR, step_size=2),
    "MultiStepLR": partial(torchs.MultiStepLR, milestones=[1, 3, 5], gamma=0.5),
    "ExponentialLR": partial(torchs.ExponentialLR, gamma=0.8),
    "LambdaLR": partial(torchs.LambdaLR, lr_lambda=lambda epoch: 1 / (1 + epoch)),
    "LambdaLR with a state": lambda optimizer: torchs.LambdaLR(optimizer, Halving()),
    "MultiplicativeLR": partial(torchs.MultiplicativeLR, lr_lambda=lambda epoch: 0.7),
    "CosineAnnealingWarmRestarts": partial(torchs.CosineAnnealingWarmRestarts, T_0=2),
    "PolynomialLR": partial(torchs.PolynomialLR, total_iters=5, power=2.0),
    "SequentialLR": warmed,
    "ChainedScheduler": chained,
    "CyclicLR": partial(torchs.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=2),
    "OneCycleLR by step": ByStep(lambda optimizer, steps: torchs.OneCycleLR(optimizer, 0.3, total_steps=steps)),
    "CyclicLR by step": ByStep(lambda o, _: torchs.CyclicLR(o, 0.01, 0.1, step_size_up=4, mode="exp_range", gamma=0.9)),
    "LambdaLR by step": ByStep(lambda o, steps: torchs.LambdaLR(o, lambda step: 1 - step / steps)),
}


@pytest.mark.parametrize("name", TORCHS)
def test_a_callables_scheduler_is_torchs_stepped_by_hand(name: str) -> None:
    seen, given = Seen(SGD, lr=0.1, momentum=0.9), TORCHS[name]
    made = learner(given, seen)
    made.learn(task())
    by_step = isinstance(given, ByStep)
    make = partial(given.make, steps=EPOCHS * STEPS) if "OneCycle" in name else given
    if by_step and "OneCycle" not in name:
        make = lambda optimizer: given.make(optimizer, EPOCHS * STEPS)  # noqa: E731
    expected = by_hand(make, partial(SGD, lr=0.1, momentum=0.9), 1 if by_step else STEPS)
    assert seen.steps == expected
    assert made.scheduled_with == name.removesuffix(" with a state")


def test_a_plateau_is_told_the_validation_loss() -> None:
    seen, make = Seen(SGD, lr=0.3), partial(torchs.ReduceLROnPlateau, patience=0, factor=0.5, threshold=0.1)
    history = learner(make, seen, "sgd").learn(task())
    losses = [epoch.valid_loss for epoch in history.epochs]
    assert len(losses) == EPOCHS
    assert seen.steps == by_hand(make, partial(SGD, lr=0.3), STEPS, losses)
    assert min(seen.rates()) < 0.3


def test_steps_are_counted_as_they_are_trained() -> None:
    """A last batch of one is left out where batch norm refuses it, and every phase has steps of its own."""
    told: list[int] = []

    def make(optimizer: Optimizer, steps: int) -> torchs.LRScheduler:
        told.append(steps)
        return torchs.LambdaLR(optimizer, lambda _: 1.0)

    x, y = torch.randn(17, 5), torch.arange(17) % 2
    for norm, steps in ((nn.BatchNorm1d(12), 2), (nn.LayerNorm(12), 3)):
        net = nn.Sequential(nn.Linear(5, 12), norm, nn.ReLU())
        Learner(net, METHODS["sgd"](), scheduler=ByStep(make), epochs=4, batch_size=8, device="cpu").learn(
            Task("odd", (x, y), (x[:8], y[:8]))
        )
        assert told.pop() == 4 * steps
    learner(ByStep(make), method="pathnet").learn(task())
    assert sum(told) == 2 * EPOCHS * STEPS
    assert len(told) == 2 * EPOCHS


# ---- what goes with a schedule


@pytest.mark.parametrize("name", ["cosine", "onecycle", "constant"])
def test_all_epochs_are_run_and_the_best_one_counts(name: str) -> None:
    kept: dict[int, Tensor] = {}
    made = learner(name, partial(SGD, lr=1.0), "sgd", epochs=12)

    def keep(epoch: Epoch) -> None:
        kept[epoch.epoch] = made.model.net[0].weight.detach().clone()  # type: ignore[index,union-attr]

    history = made.learn(task(), keep)
    assert len(history.epochs) == 12
    best = min(history.epochs, key=lambda epoch: epoch.valid_loss)
    assert [epoch.epoch for epoch in history.epochs if epoch.best][-1] == best.epoch
    assert torch.equal(made.model.net[0].weight, kept[best.epoch])  # type: ignore[index]


def test_every_task_and_phase_begins_anew_and_no_rate_is_the_callers() -> None:
    rate = torch.tensor(0.1)
    seen = Seen(AdamW, lr=rate)
    made = learner("cosine", seen, "packnet", epochs=4)
    for number in range(2):
        made.learn(task(number))
    assert seen.rates()[::STEPS] == pytest.approx([0.1, 0.075, 0.025, 0.1] * 2)
    assert len(seen.made) == 2 * 2
    assert float(rate) == pytest.approx(0.1)


def test_a_scheduler_costs_an_optimiser_no_trust() -> None:
    """torch puts its own step in place of the class's, which else is the mark of somebody's code."""
    made = learner(TORCHS["SequentialLR"], partial(SGD, lr=0.1, momentum=0.9))
    checked: list[bool] = []

    def look(_: Epoch) -> None:
        assert made._fit is not None
        checked.append(watched(made._fit.stepper.optimizer))

    made.learn(task(), look)
    assert checked == [False] * EPOCHS


def test_a_step_that_was_patched_stays_so() -> None:
    calls = []

    def factory(parameters: Any) -> Optimizer:
        optimizer = SGD(parameters, lr=0.1)
        own = optimizer.step

        def step(closure: Any = None) -> None:
            calls.append(1)
            own(closure)

        optimizer.step = step  # type: ignore[method-assign,assignment]
        return optimizer

    learner("cosine", factory).learn(task())
    assert len(calls) == EPOCHS * STEPS


@pytest.mark.parametrize("scheduler", ["cosine", "onecycle", TORCHS["ChainedScheduler"]])
def test_after_numbers_that_are_not_finite_all_rates_are_smaller(scheduler: Any) -> None:
    expected, seen = Seen(SGD, lr=0.1), Seen(SGD, spoil=2 * STEPS, lr=0.1)
    learner(scheduler, expected).learn(task())
    made = learner(scheduler, seen)
    gates: list[float] = []
    rates: list[float] = []

    def note(_: Epoch) -> None:
        assert made._fit is not None
        assert made._fit.stepper.gates is not None
        gates.append(made._fit.stepper.gates.param_groups[0]["lr"])
        rates.append(made._fit.schedule.lr)

    with pytest.warns(DivergenceWarning, match="diverged in epoch 2"):
        history = made.learn(task(), note)
    assert len(history.epochs) == EPOCHS
    assert seen.rates()[: 2 * STEPS] == expected.rates()[: 2 * STEPS]
    third = [rate / made.method.lr_factor for rate in expected.rates()[2 * STEPS :]]
    assert seen.rates()[2 * STEPS :] == pytest.approx(third, rel=1e-12)
    assert gates == pytest.approx([0.05 / 0.1 * rate for rate in rates], rel=1e-12)
    assert all(bool(torch.isfinite(p).all()) for p in made.model.net.parameters())


def values(made: Learner) -> list[Tensor]:
    return [p.detach().clone() for p in (*made.model.net.parameters(), *made.model.heads[-1].parameters())]


RESUMED: dict[str, Any] = {
    **{name: name for name in ("patience", "cosine", "onecycle", "constant")},
    **TORCHS,
    "ReduceLROnPlateau": partial(torchs.ReduceLROnPlateau, patience=0, factor=0.5, threshold=0.1),
}


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
def test_a_task_taken_up_again_ends_bit_for_bit_where_it_would_have(name: str, rate: Any, tmp_path: Path) -> None:
    scheduler = RESUMED[name]
    factory = Seen(SGD, lr=rate, momentum=0.9, spoil=None) if name != "StepLR" else Seen(AdamW, lr=rate)
    whole = learner(scheduler, factory)
    with_history = whole.learn(task())

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 3:
            broken.save(tmp_path)
            raise KeyboardInterrupt

    broken = learner(scheduler, factory)
    with pytest.raises(KeyboardInterrupt):
        broken.learn(task(), stop)
    given = None if isinstance(scheduler, str) else scheduler
    again = hatrack.load(tmp_path, network(), optimizer=factory, device="cpu", scheduler=given)
    history = again.learn(task())
    assert all(torch.equal(a, b) for a, b in zip(values(again), values(whole), strict=True))
    assert [epoch.lr for epoch in history.epochs] == [epoch.lr for epoch in with_history.epochs]


def test_a_scale_is_kept_when_a_task_is_taken_up_again(tmp_path: Path) -> None:
    def factory() -> Seen:
        return Seen(SGD, spoil=STEPS + 1, lr=0.1, momentum=0.9)

    whole = learner("onecycle", factory())
    with pytest.warns(DivergenceWarning):
        whole.learn(task())

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 3:
            broken.save(tmp_path)
            raise KeyboardInterrupt

    broken = learner("onecycle", factory())
    with pytest.warns(DivergenceWarning), pytest.raises(KeyboardInterrupt):
        broken.learn(task(), stop)
    again = hatrack.load(tmp_path, network(), optimizer=Seen(SGD, lr=0.1, momentum=0.9), device="cpu")
    again.learn(task())
    assert all(torch.equal(a, b) for a, b in zip(values(again), values(whole), strict=True))


def test_a_task_that_is_given_up_leaves_no_schedule_behind() -> None:
    seen = Seen(SGD, lr=0.1)
    made = learner(TORCHS["StepLR"], seen)
    with pytest.raises(KeyboardInterrupt):
        made.learn(task(), lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    assert made.scheduled_with == "StepLR"
    made.abandon()
    assert made.scheduled_with is None
    seen.steps.clear()
    made.learn(task(1))
    assert seen.rates() == pytest.approx([0.1 * 0.1 ** (step // STEPS // 2) for step in range(EPOCHS * STEPS)])


def test_what_is_saved_names_the_schedule_or_says_its_kind(tmp_path: Path) -> None:
    for scheduler, said in (("cosine", "cosine"), ("patience", "patience"), (TORCHS["StepLR"], "StepLR")):
        made = learner(scheduler)
        made.learn(task())
        made.save(tmp_path)
        assert json.loads((tmp_path / "learner.json").read_text())["scheduler"] == said
    loaded = hatrack.load(tmp_path, network(), device="cpu")
    loaded.save(tmp_path)
    assert json.loads((tmp_path / "learner.json").read_text())["scheduler"] == "StepLR"
    with pytest.warns(HatrackWarning, match="rates followed StepLR; it goes on with 'patience': to keep the other"):
        loaded.learn(task(1))
    loaded.learn(task(2))  # said once
    hatrack.load(tmp_path, network(), device="cpu", scheduler=TORCHS["StepLR"]).learn(task(1))
    assert copy.deepcopy(made)._scheduler is made._scheduler


def test_another_schedule_than_that_of_the_interrupted_task_is_refused(tmp_path: Path) -> None:
    made = learner(TORCHS["StepLR"])
    with pytest.raises(KeyboardInterrupt):
        made.learn(task(), lambda _: (made.save(tmp_path), (_ for _ in ()).throw(KeyboardInterrupt))[1])
    for given, mine in ((None, "patience"), ("cosine", "cosine"), (TORCHS["LambdaLR by step"], "LambdaLR by step")):
        loaded = hatrack.load(tmp_path, network(), device="cpu", scheduler=given)
        says = rf"interrupted under the schedule StepLR, and now there is {mine}; load the learner with the scheduler=…"
        with pytest.raises(HatrackError, match=says):
            loaded.learn(task())


def test_a_saved_learner_that_names_no_schedule_had_patience(tmp_path: Path) -> None:
    made = learner("patience")
    with pytest.raises(KeyboardInterrupt):
        made.learn(task(), lambda _: (made.save(tmp_path), (_ for _ in ()).throw(KeyboardInterrupt))[1])
    page = json.loads((tmp_path / "learner.json").read_text())
    del page["scheduler"], page["fit"]["scheduler"], page["sha256"]  # as version 0.1 wrote it
    text = json.dumps({**page, **hatrack.seal.BLANK}, indent=1)
    (tmp_path / "learner.json").write_text(hatrack.seal.sealed(text))
    again = hatrack.load(tmp_path, network(), METHODS["hat"](lr_patience=2), device="cpu")
    again.learn(task())
    whole = learner("patience")
    whole.learn(task())
    assert all(torch.equal(a, b) for a, b in zip(values(again), values(whole), strict=True))


# ---- engines


@pytest.mark.parametrize("scheduler", ["cosine", "onecycle", TORCHS["OneCycleLR by step"]])
@pytest.mark.parametrize("optimizer", [None, partial(AdamW, lr=0.01)], ids=["own", "adamw"])
def test_compiled_steps_follow(scheduler: Any, optimizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.learn.machine.compiled.BACKEND", "aot_eager")
    monkeypatch.setattr("hatrack.learn.machine.compiled._KNOWN", {})
    both = [learner(scheduler, optimizer, engine=engine) for engine in ("compiled", "eager")]
    for each in both:
        each.learn(task())
    for a, b in zip(*map(values, both), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_a_recorded_step_takes_its_rate_from_a_tensor_or_is_not_recorded() -> None:
    """Recording itself needs a CUDA device; what is recorded is tried here."""
    made = learner("onecycle")
    told: list[Any] = []

    def look(epoch: Epoch) -> None:
        assert made._fit is not None
        if epoch.epoch == 1:
            engine, stepper = made._fit.engine, made._fit.stepper
            engine._recorded, engine.name = True, "graph"
            engine._follow_steps()
            told.append((engine._recorded, stepper.by_tensor))
            engine.name = "eager"

    made.learn(task(), look)
    assert told == [(True, True)]
    plain = learner("onecycle")
    plain.learn(task())
    for a, b in zip(values(made), values(plain), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    method = plain.method
    stepper = Stepper(method, build(method, partial(SGD, lr=0.1)))
    engine = Engine("eager", stepper, None, 8, lambda: None)  # type: ignore[arg-type]
    engine._recorded, engine.name = True, "graph"
    with pytest.warns(EngineWarning, match="the schedule changes the rate with every step, which SGD has as a number"):
        engine._follow_steps()
    assert (engine._recorded, engine.name) == (False, "eager")


def test_a_graph_is_recorded_anew_where_a_setting_changed() -> None:
    made = learner("cosine")
    held: list[bool] = []

    def look(_: Epoch) -> None:
        assert made._fit is not None
        held.append(bool(made._fit.engine._graphs))
        made._fit.engine._graphs[8] = None  # type: ignore[assignment]

    begin = Engine.begin_epoch

    def begun(self: Engine, order: torch.Generator) -> None:
        begin(self, order)
        if made._fit is not None and made._fit.epoch:
            held.append(bool(self._graphs))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "begin_epoch", begun)
        made.learn(task(), look)
    assert not any(held)


# ---- what is refused


@pytest.mark.parametrize(
    ("scheduler", "says"),
    [
        (
            "cosin",
            r"^unknown scheduler 'cosin'; did you mean 'cosine'\? Accepted: constant, cosine, onecycle, patience\.$",
        ),
        (3, "scheduler must be one of patience, cosine, onecycle, constant, or a callable optimizer → torch scheduler"),
        (lambda: None, r"the scheduler's callable failed: .*takes 0 positional arguments but 1 was given"),
        (lambda o, steps: None, r"callable failed: .*missing 1 required positional argument: 'steps'; .*ByStep"),
        (lambda o: o, "must be a callable that returns a torch scheduler .*, got SGD from it"),
        (lambda o: torchs.StepLR(SGD([torch.zeros(1)]), 1), "got one of another optimiser from it"),
        (lambda o: torchs.OneCycleLR(o, 0.1, total_steps=2), "OneCycleLR cannot go on: Tried to step 3 times"),
        (ByStep(lambda o, _: torchs.ReduceLROnPlateau(o)), "ReduceLROnPlateau looks at the validation loss"),
        (partial(torchs.MultiStepLR, milestones=3), "callable failed: 'int' object is not iterable"),
    ],
)
def test_refusals(scheduler: Any, says: str) -> None:
    net = network()

    def tried() -> None:
        Learner(net, METHODS["hat"](), partial(SGD, lr=0.1), scheduler=scheduler, device="cpu").learn(task())

    with pytest.raises(HatrackError, match=says) as refused:
        tried()
    assert "\n" not in str(refused.value)
    assert all(torch.equal(a, b) for a, b in zip(network().parameters(), net.parameters(), strict=True))


def test_what_cannot_be_made_or_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HatrackError, match=r"ByStep takes a callable \(optimizer, steps\) → torch scheduler, got str"):
        ByStep("cosine")  # type: ignore[arg-type]
    with pytest.raises(HatrackError, match="learning rate starts at 0, and nothing would be learned"):
        learner("cosine", partial(SGD, lr=0.0)).learn(task())

    class Odd(torchs.StepLR):
        def __init__(self, optimizer: Optimizer) -> None:
            self.draw = torch.Generator()
            super().__init__(optimizer, 2)

    made = learner(Odd)
    with pytest.raises(HatrackError, match=r"Odd keeps a Generator, which cannot be saved in the middle of a task"):
        made.learn(task(), lambda _: made.save(tmp_path))
