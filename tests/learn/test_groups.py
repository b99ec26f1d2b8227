"""What an optimiser's callable is given, and that gates move alike whatever the user's optimiser is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

import hatrack
from hatrack import HAT, Epoch, HatrackError, Learner, Task
from hatrack.learn.groups import GROUPS, Groups
from hatrack.learn.step import Stepper
from hatrack.methods import METHODS
from hatrack.methods.parts.subnetworks import top


def task(number: int = 0, samples: int = 96) -> Task:
    draw = torch.Generator().manual_seed(number)
    x = torch.randn(samples, 20, generator=draw)
    y = (x @ torch.randn(20, generator=draw) > 0).long()
    return Task(f"task {number}", (x, y), (x[:32], y[:32]))


def network(norm: bool = True) -> nn.Module:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(40)] if norm else []
    return nn.Sequential(nn.Linear(20, 40), *middle, nn.ReLU(), nn.Linear(40, 40), nn.ReLU())


def learner(optimizer: Any, method: str = "hat", norm: bool = True, **options: Any) -> Learner:
    given = {"epochs": 2, "batch_size": 8, "device": "cpu"} | options
    return Learner(network(norm), METHODS[method](), optimizer, **given)


def given_to(method: str, tasks: int = 1, norm: bool = True) -> list[tuple[Groups, Any]]:
    """Return what the callable was given in each phase, with what the method trains there, by name."""
    found: list[tuple[Groups, Any]] = []
    made: list[Learner] = []

    def factory(groups: Groups) -> Optimizer:
        found.append((groups, made[0].method.trainable()))
        return SGD(groups, lr=0.1)

    made.append(learner(factory, method, norm))
    for number in range(tasks):
        made[0].learn(task(number))
    return found


# ---- the groups


def test_every_group_holds_what_it_says() -> None:
    groups, trained = given_to("hat")[0]
    names = {id(tensor): name for name, tensor in trained.items()}
    assert {group: [names[id(p)] for p in groups[group]] for group in GROUPS} == {
        "net": ["net/0.weight", "net/0.bias", "net/3.weight", "net/3.bias"],
        "gates": ["embedding"],
        "heads": ["head/weight", "head/bias"],
        "norms": ["private/1.weight", "private/1.bias"],
    }
    groups, trained = given_to("supsup")[0]
    names = {id(tensor): name for name, tensor in trained.items()}
    assert [names[id(p)] for p in groups["gates"]] == ["scores/0.weight", "scores/3.weight"]
    assert not groups["net"]


@pytest.mark.parametrize("method", ["hat", "cat", "pmask", "wsn", "supsup", "ucl", "pnn", "lwf", "joint", "one", "den"])
def test_all_that_is_trained_is_in_one_group_and_gates_are_not_in_the_list(method: str) -> None:
    for groups, trained in given_to(method, tasks=2):
        held = [id(p) for group in GROUPS for p in groups[group]]
        assert sorted(held) == sorted(id(p) for p in trained.values())
        assert sorted(id(p) for p in groups) == sorted(set(held) - {id(p) for p in groups["gates"]})


def test_it_is_a_list_of_tensors_and_answers_to_names() -> None:
    groups = given_to("hat")[0][0]
    assert isinstance(groups, list)
    assert [p is q for p, q in zip(groups, list(groups), strict=True)] == [True] * len(groups)
    assert groups[0] is groups["net"][0]
    assert groups[-1] is groups["norms"][-1]
    assert len(groups[1:3]) == 2
    assert [*groups, *groups["gates"]][-1] is groups["gates"][0]
    groups["net"].clear()  # a list of the caller's own
    assert groups["net"]
    with pytest.raises(HatrackError, match=r"^unknown group of parameters 'gate'; did you mean 'gates'\? Accepted: "):
        groups["gate"]


@pytest.mark.parametrize("name", sorted(n for n, k in vars(torch.optim).items() if inspect.isclass(k)))
def test_torchs_optimisers_take_groups_that_are_empty(name: str) -> None:
    kind = getattr(torch.optim, name)
    if name in ("Optimizer", "LBFGS", "Muon", "SparseAdam"):
        pytest.skip("takes no groups, or not these parameters")

    def factory(groups: Groups) -> Optimizer:
        assert not groups["gates"]
        assert not groups["norms"]
        return kind([{"params": groups[group]} for group in ("norms", *GROUPS[:-1])], lr=0.01)  # type: ignore[no-any-return]

    made = learner(factory, "sgd", norm=False, epochs=1)
    start = [p.detach().clone() for p in made.model.net.parameters()]
    made.learn(task())
    assert all(not torch.equal(p, before) for p, before in zip(made.model.net.parameters(), start, strict=True))


def test_an_optimiser_of_nothing_is_refused_in_one_line() -> None:
    """torch refuses an empty list of parameters; of several optimisers in one, none may be made of an empty group."""
    made = learner(lambda groups: SGD(groups["norms"], lr=0.1), "sgd", norm=False)
    says = r"the optimizer's callable failed: optimizer got an empty parameter list; .*empty here: gates, norms"
    with pytest.raises(HatrackError, match=says) as refused:
        made.learn(task())
    assert "\n" not in str(refused.value)
    assert made.finished == 0


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (lambda g: SGD([*g["net"], *g["heads"]], lr=0.1), "lacks private/1.weight"),
        (lambda g: SGD([*g[1:], *g["gates"]], lr=0.1), "lacks net/0.weight"),
    ],
)
def test_a_group_that_is_forgotten_is_named(factory: Any, says: str) -> None:
    with pytest.raises(HatrackError, match=says):
        learner(factory).learn(task())


def test_some_gates_are_not_taken_without_the_others() -> None:
    with pytest.raises(HatrackError, match=r"AdamW lacks scores/3\.weight"):
        learner(lambda g: AdamW([*g, g["gates"][0]]), "wsn").learn(task())


# ---- what moves gates


def gates_rule(optimizer: Any, method: str = "hat") -> tuple[Optimizer, Optimizer | None]:
    made = learner(optimizer, method)
    with pytest.raises(KeyboardInterrupt):
        made.learn(task(), lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    assert made._fit is not None
    return made._fit.stepper.optimizer, made._fit.stepper.gates


def test_gates_have_the_methods_own_rule_unless_they_are_taken() -> None:
    own, beside = gates_rule(None)
    assert beside is None
    assert len(own.param_groups) == 1
    _, beside = gates_rule(partial(AdamW, lr=1e-3))
    assert isinstance(beside, SGD)
    assert beside.param_groups[0]["lr"] == HAT().lr
    assert isinstance(gates_rule(partial(SGD, lr=0.1), "wsn")[1], Adam)
    named: Callable[[Any], Optimizer] = lambda g: AdamW(  # noqa: E731
        [{"params": list(g)}, {"params": g["gates"], "lr": 0.05}], lr=1e-3
    )
    user, beside = gates_rule(named)
    assert beside is None
    assert [group["lr"] for group in user.param_groups] == [1e-3, 0.05]
    assert gates_rule(partial(AdamW, lr=1e-3), "sgd")[1] is None


def test_the_users_rule_for_gates_is_what_moves_them() -> None:
    """e ← e − lr·sign(q) at the first step of Adam, within |e| ≤ 6; heads at a rate of 0 stay where they are."""
    seen: list[list[Tensor]] = []

    class Noting(Adam):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            before = [p.detach().clone() for group in self.param_groups for p in group["params"]]
            super().step(closure)
            after = [p.detach() for group in self.param_groups for p in group["params"]]
            seen.append([b - a for a, b in zip(after, before, strict=True)])

    def factory(g: Groups) -> Optimizer:
        groups = [{"params": g["gates"], "lr": 0.25}, {"params": [*g["net"], *g["norms"]]}]
        return Noting([*groups, {"params": g["heads"], "lr": 0.0}], lr=1e-3)

    learner(factory, epochs=1).learn(task())
    gates, *others = seen[0]
    assert float(gates.abs().max()) == pytest.approx(0.25, rel=1e-3)
    assert max(float(moved.abs().max()) for moved in others[:-2]) == pytest.approx(1e-3, rel=1e-3)
    assert all(not moved.any() for step in seen for moved in step[-2:])


def crossed(method: str, optimizer: Any) -> float:
    """Return the share of gates whose side has changed after 144 steps: of 0, or for scores of the mask."""
    made = learner(optimizer, method, epochs=12, scheduler="constant")
    start: dict[str, Tensor] = {}
    begin, found = made.method.begin_phase, [0.0]

    def begun(phase: int) -> Any:
        state = begin(phase)
        start.update({name: tensor.detach().clone() for name, tensor in made.method.gates().items()})
        return state

    def sides(tensor: Tensor) -> Tensor:
        return top(tensor.abs(), made.method.keep) if method in ("wsn", "supsup") else tensor > 0  # type: ignore[attr-defined]

    def look(epoch: Epoch) -> None:
        if epoch.epoch == 12:
            now = made.method.gates().items()
            found[0] = float(
                torch.cat([(sides(start[n]) ^ sides(e.detach())).flatten() for n, e in now]).float().mean()
            )

    made.method.begin_phase = begun  # type: ignore[method-assign]
    made.learn(task(), look)
    return found[0]


OPTIMISERS = {
    "SGD with momentum": partial(SGD, lr=0.01, momentum=0.9),
    "AdamW": partial(AdamW, lr=1e-3),
    "RMSprop": partial(RMSprop, lr=1e-3),
    "Adagrad": partial(Adagrad, lr=1e-2),
}


@pytest.mark.parametrize("method", ["hat", "cat", "pmask", "wsn", "supsup"])
def test_gates_cross_as_often_under_any_optimiser(method: str) -> None:
    own = crossed(method, None)
    shares = {name: crossed(method, optimizer) / own for name, optimizer in OPTIMISERS.items()}
    assert own > 0.005
    assert all(0.4 < share < 2.5 for share in shares.values()), shares


def test_without_a_rule_of_their_own_they_would_not() -> None:
    own = crossed("hat", None)
    assert crossed("hat", lambda g: AdamW([*g, *g["gates"]], lr=1e-3)) < own / 3
    assert crossed("hat", lambda g: SGD([*g, *g["gates"]], lr=0.1, momentum=0.9)) > own * 1.5


# ---- what else an optimiser may be


class Sharp(SGD):
    """Evaluates the loss twice a step, as SAM and LBFGS do."""

    def step(self, closure: Callable[[], Any]) -> None:  # type: ignore[override]
        with torch.enable_grad():
            closure()
            closure()
        super().step()


@pytest.mark.parametrize("kind", [Sharp, torch.optim.LBFGS])
def test_an_optimiser_that_evaluates_moves_gates_once_a_step(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    moved, move = [], Stepper._move_gates

    def noted(self: Stepper) -> None:
        before = self.method.embedding.detach().clone()  # type: ignore[attr-defined]
        gradient = self.method.embedding.grad.clone()  # type: ignore[attr-defined]
        move(self)
        after = self.method.embedding.detach()  # type: ignore[attr-defined]
        torch.testing.assert_close(after, before - HAT().lr * gradient)
        moved.append(float((after - before).abs().max()))

    monkeypatch.setattr(Stepper, "_move_gates", noted)
    made = learner(partial(kind, lr=0.01, **({"max_iter": 3} if kind is torch.optim.LBFGS else {})))
    for number in range(2):
        made.learn(task(number))
    assert len(moved) == 2 * 2 * 12
    assert sum(step > 0 for step in moved) > 40
    assert made.verify().ok


@pytest.mark.parametrize("method", ["hat", "cat", "pmask", "wsn"])
def test_what_gates_rules_keep_is_saved_in_the_middle_of_a_task(method: str, tmp_path: Path) -> None:
    """WSN's is Adam, which has moments."""
    factory = partial(AdamW, lr=1e-3)

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 2:
            broken.save(tmp_path)
            raise KeyboardInterrupt

    whole, broken = (learner(factory, method, epochs=4, scheduler="cosine") for _ in range(2))
    whole.learn(task())
    with pytest.raises(KeyboardInterrupt):
        broken.learn(task(), stop)
    again = hatrack.load(tmp_path, network(), optimizer=factory, device="cpu")
    again.learn(task())
    for mine, theirs in zip(again.model.net.parameters(), whole.model.net.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    state = again.method.state()
    assert all(torch.equal(tensor, state[name]) for name, tensor in whole.method.state().items())


def test_gates_that_change_their_rule_in_the_middle_of_a_task_are_refused(tmp_path: Path) -> None:
    made = learner(partial(AdamW, lr=1e-3))
    with pytest.raises(KeyboardInterrupt):
        made.learn(task(), lambda _: (made.save(tmp_path), (_ for _ in ()).throw(KeyboardInterrupt))[1])
    loaded = hatrack.load(tmp_path, network(), optimizer=lambda g: AdamW([*g, *g["gates"]]), device="cpu")
    with pytest.raises(HatrackError, match="interrupted with gates beside AdamW, and now they are in it"):
        loaded.learn(task())


def test_compiled_steps_leave_gates_to_their_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.learn.machine.compiled.BACKEND", "aot_eager")
    monkeypatch.setattr("hatrack.learn.machine.compiled._KNOWN", {})
    both = [learner(partial(SGD, lr=0.02), norm=False, engine=engine) for engine in ("compiled", "eager")]
    for each in both:
        each.learn(task())
    for a, b in zip(*(each.model.net.parameters() for each in both), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    assert torch.equal(*(each.method.masks[0] for each in both))  # type: ignore[attr-defined]
