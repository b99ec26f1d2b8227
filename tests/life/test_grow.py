"""Growing: old tasks answer to the last bit as before, new ones have the new room, and nothing goes half way."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import HAT, HatrackError, Learner
from hatrack.learn.proof import verification as proof
from hatrack.methods import METHODS
from hatrack.nets.model import Model
from zoo import ZOO, Lively, tasks

FIXED = {"shuffle", "tied-bare", "tokens"}  # no site of these can be widened
FAST = {"mlp-relu", "vgg", "vit", "lstm", "mobile", "rms-norm"}
GROWING = {"hat": {"s_max": 100.0}, "pmask": {}, "packnet": {}, "wsn": {}, "supsup": {}}
ALL = [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in ZOO if n not in FIXED]
pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")


def digits() -> list[hatrack.Task]:
    return list(hatrack.tasks("split-digits", seed=0))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 16), nn.LayerNorm(16), nn.ReLU()
    )


def learner_of(method: str = "hat", learned: int = 2, **more: Any) -> Learner:
    learner = Learner(net(), METHODS[method](**GROWING.get(method, {})), epochs=2, device="cpu", **more)
    for task in digits()[:learned]:
        learner.learn(task)
    return learner


def answers(learner: Learner, x: Tensor, count: int) -> list[Tensor]:
    return [learner.predict(x, task) for task in range(count)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(bool(proof.same_bits(p, q).all()) for p, q in zip(a, b, strict=True))


def everything(learner: Learner) -> dict[str, Tensor]:
    """Return all tensors that a learner holds and does not merely compute with."""
    model = learner.model
    heads = {f"head/{t}/{n}": p for t, head in enumerate(model.heads) for n, p in head.named_parameters()}
    own = {f"own/{t}/{n}": p for t, private in enumerate(model.private) for n, p in private.items()}
    first = {f"initial/{n}": p for n, p in model.initial.items()}
    locked = {f"locked/{n}": p for n, p in learner.locked_values.values.items()}
    held = {**model.tensors(), **heads, **own, **first, **locked, **learner.method.state()}
    return {name: tensor.detach().clone() for name, tensor in held.items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# ---- every network


@pytest.mark.parametrize("name", ALL)
def test_any_network_grows_and_old_tasks_stay(name: str, tmp_path: Path) -> None:
    kept = ZOO[name]
    first, second, third = tasks(kept)
    network = kept.build()
    narrow = deepcopy(network)
    learner = Learner(network, Lively(s_max=20.0), epochs=1, batch_size=8, device="cpu")
    learner.learn(first)
    learner.learn(second)
    x = kept.batch(5, seed=7)
    before, cuts = answers(learner, x, 2), _cuts(learner, 2)
    count = learner.parameters_count
    grown = learner.grow(0.25)
    assert learner.parameters_count > count
    assert all(now > was for was, now in grown.sites.values())
    assert same(before, answers(learner, x, 2))
    assert _same_cuts(cuts, _cuts(learner, 2))
    assert learner.verify().ok
    learner.learn(third)
    assert same(before, answers(learner, x, 2))
    assert _same_cuts(cuts, _cuts(learner, 2))
    verdict = learner.verify()
    assert verdict.ok, str(verdict)
    learner.save(tmp_path)
    for again in (narrow, deepcopy(learner.model.net)):
        loaded = hatrack.load(tmp_path, again, device="cpu")
        assert same(answers(learner, x, 3), answers(loaded, x, 3))
        assert loaded.verify().ok
        assert equal(everything(loaded), everything(learner))


def _cuts(learner: Learner, count: int) -> list[dict[str, Tensor] | str]:
    found: list[dict[str, Tensor] | str] = []
    for task in range(count):
        try:
            found.append({name: t.clone() for name, t in learner.cut_out(task).state_dict().items()})
        except HatrackError as error:  # what cannot be cut out cannot before or after
            found.append(str(error))
    return found


def _same_cuts(a: list[dict[str, Tensor] | str], b: list[dict[str, Tensor] | str]) -> bool:
    return all(p == q if isinstance(p, str) or isinstance(q, str) else equal(p, q) for p, q in zip(a, b, strict=True))


# ---- every method that grows


@pytest.mark.parametrize("method", GROWING)
def test_methods_grow_twice_and_go_on(method: str, tmp_path: Path) -> None:
    learner = learner_of(method)
    parts, x = digits(), digits()[0].test.first(30)
    before = answers(learner, x, 2)
    assert learner.grow(0.25).sites == {"1": (20, 25), "4": (16, 20)}
    learner.learn(parts[2])
    before.append(learner.predict(x, 2))
    assert learner.grow({"1": 3}).sites == {"1": (25, 28)}
    learner.learn(parts[3])
    before.append(learner.predict(x, 3))
    assert same(before, answers(learner, x, 4))
    verdict = learner.verify()
    assert verdict.ok, str(verdict)
    learner.save(tmp_path)
    others = [hatrack.load(tmp_path, again, device="cpu") for again in (net(), deepcopy(learner.model.net))]
    others.append(deepcopy(learner))
    for other in (learner, *others):
        other.learn(parts[4])
        assert same(before, answers(other, x, 4))
        assert other.verify().ok
        assert torch.equal(other.predict(x, 4), learner.predict(x, 4))
        assert equal(everything(other), everything(learner))


@pytest.mark.parametrize("method", GROWING)
def test_new_room_is_used_and_what_was_taken_is_not_moved(method: str) -> None:
    learner = learner_of(method)
    places_of = learner.model.tensors()
    weights = {name: t.detach().clone() for name, t in places_of.items()}
    used = [learner.method.use(task) for task in range(2)]
    learner.grow(0.5)
    generation = learner.model.generation(0)
    assert generation is not None
    wide = {name: t.detach().clone() for name, t in learner.model.tensors().items()}
    learner.learn(digits()[2])
    now, moved = learner.model.tensors(), False
    for name, old in weights.items():
        if name in learner.model.private[2]:
            continue
        there = generation.places.taken(name, now[name].detach())
        locked = torch.stack([use[name] > 0 for use in used if use is not None]).any(0) if name in used[0] else None
        if locked is not None:
            assert torch.equal(there[locked], old[locked])
        new = generation.places.spread(name, torch.zeros_like(old), torch.ones_like(now[name])) == 1
        moved |= bool((now[name][new] != wide[name][new]).any())
    uses = learner.method.use(2)
    assert uses is not None
    assert any(
        bool(
            (amount > 0)[generation.places.spread(n, torch.zeros_like(weights[n]), torch.ones_like(amount)) == 1].any()
        )
        for n, amount in uses.items()
    )
    assert moved or method == "supsup"


def test_soft_gates_and_shared_norms_grow_as_well() -> None:
    learner = Learner(net(), HAT(s_max=50.0, hard=False, norm="shared"), epochs=2, device="cpu")
    learner.learn(digits()[0])
    x = digits()[0].test.first(10)
    before = learner.predict(x, 0)
    learner.grow(0.25)
    assert torch.equal(before, learner.predict(x, 0))
    learner.learn(digits()[1])
    assert learner.predict(x, 1).shape == (10, 2)


def test_other_methods_refuse_in_one_line() -> None:
    for method in ("sgd", "ewc", "cat", "pathnet", "den"):
        learner = Learner(net(), METHODS[method](), epochs=1, device="cpu")
        learner.learn(digits()[0])
        held = everything(learner)
        with pytest.raises(HatrackError, match=f"^{method} cannot learn on in a network that grows") as refused:
            learner.grow(0.25)
        assert "\n" not in str(refused.value)
        assert equal(held, everything(learner))


# ---- what is the user's


def test_norms_without_parameters_learn_their_width(tmp_path: Path) -> None:
    def bare() -> nn.Module:
        torch.manual_seed(0)
        layers = [nn.Linear(64, 8), nn.LayerNorm(8, elementwise_affine=False), nn.BatchNorm1d(8, affine=False)]
        return nn.Sequential(nn.Flatten(), *layers, nn.ReLU(), nn.Linear(8, 6))

    learner = Learner(bare(), HAT(s_max=50.0), epochs=1, device="cpu")
    learner.learn(digits()[0])
    x = digits()[0].test.first(5)
    before = learner.predict(x, 0)
    learner.grow({"1": 2})
    learner.learn(digits()[1])
    assert (learner.model.net[2].normalized_shape, learner.model.net[3].num_features) == ((10,), 10)
    assert torch.equal(before, learner.predict(x, 0))
    learner.save(tmp_path)
    for again in (bare(), deepcopy(learner.model.net)):
        assert torch.equal(before, hatrack.load(tmp_path, again, device="cpu").predict(x, 0))


def test_the_network_is_widened_in_place() -> None:
    learner = learner_of()
    own = learner.model.net
    layer, weight = own[1], own[1].weight
    learner.grow({"1": 4})
    assert own[1] is layer
    assert layer.weight is weight
    assert (layer.out_features, own[2].num_features, own[4].in_features) == (24, 24, 24)
    assert weight.shape == (24, 64)
    assert own(torch.zeros(3, 8, 8)).shape == (3, 16)


def test_what_cannot_be_widened_is_named_and_left() -> None:
    learner = Learner(ZOO["in-place"].build(), Lively(), epochs=1, device="cpu")
    learner.learn(tasks(ZOO["in-place"])[0])
    grown = learner.grow(0.25)
    assert set(grown.sites) == {"c"}
    assert set(grown.left) == {"a", "b"}
    assert "as they were: a (" in str(grown)
    assert "\n" not in str(grown)


def test_bad_wishes_get_one_line_and_change_nothing() -> None:
    fresh = Learner(net(), HAT(), device="cpu")
    with pytest.raises(HatrackError, match="learn a task first"):
        fresh.grow(0.25)
    learner = learner_of(learned=1)
    held = everything(learner)
    for wish, said in (
        (0, "got 0"), (-1.0, "got -1"), (float("nan"), "got nan"), (True, "got True"), ("a", "got 'a'"),
        ({"fc": 3}, "unknown site 'fc'"), ({"1": 0}, "got 0"), ({"1": 1.5}, "got 1.5"), ({}, "no site is named"),
    ):  # fmt: skip
        with pytest.raises(HatrackError, match=said) as refused:
            learner.grow(wish)  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)
    assert equal(held, everything(learner))
    shuffled = Learner(ZOO["shuffle"].build(), Lively(), epochs=1, device="cpu")
    shuffled.learn(tasks(ZOO["shuffle"])[0])
    with pytest.raises(HatrackError, match="cannot be widened at any site asked for"):
        shuffled.grow(0.25)


def test_not_in_the_middle_of_a_task(tmp_path: Path) -> None:
    learner = learner_of(learned=1)

    def stop(epoch: hatrack.Epoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(digits()[1], on_epoch=stop)
    with pytest.raises(HatrackError, match=r"in the middle of task .*grow between two tasks"):
        learner.grow(0.25)
    learner.abandon()
    learner.grow(0.25)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(digits()[1], on_epoch=stop)
    learner.save(tmp_path)
    taken_up = hatrack.load(tmp_path, net(), device="cpu")
    taken_up.learn(digits()[1])
    straight = learner_of(learned=1)
    straight.grow(0.25)
    straight.learn(digits()[1])
    assert equal(everything(straight), everything(taken_up))


# ---- all or nothing


@pytest.mark.parametrize("method", GROWING)
@pytest.mark.parametrize("where", ["method", "network", "answers"])
def test_a_growth_that_fails_never_was(method: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, other = learner_of(method), learner_of(method)
    held, x = everything(learner), digits()[0].test.first(9)
    before = answers(learner, x, 2)

    def fails(*args: Any) -> None:
        raise RuntimeError("stopped here")

    if where == "method":
        monkeypatch.setattr(type(learner.method), "grown", fails)
    elif where == "network":
        monkeypatch.setattr(Model, "look", fails)
    else:
        real = proof.probe_logits
        calls: list[int] = []

        def drifting(*args: Any) -> Tensor:
            calls.append(1)
            return real(*args) + (1e-6 if len(calls) == 4 else 0)

        monkeypatch.setattr(proof, "probe_logits", drifting)
    with pytest.raises(HatrackError if where == "answers" else RuntimeError):
        learner.grow(0.25)
    monkeypatch.undo()
    assert equal(held, everything(learner))
    assert (learner.model.generations, learner.growths) == ([], [])
    assert (learner.model.net[1].out_features, learner.model.net[5].normalized_shape) == (20, (16,))
    assert same(before, answers(learner, x, 2))
    assert learner.verify().ok
    for each in (learner, other):
        each.learn(digits()[2])
    assert equal(everything(learner), everything(other))


# ---- proof


def test_verify_finds_what_is_changed_at_an_old_width() -> None:
    learner = learner_of()
    use = learner.method.use(0)
    assert use is not None
    learner.grow(0.25)
    weight = learner.model.net[1].weight
    generation = learner.model.generation(0)
    assert generation is not None
    used = generation.places.spread("1.weight", use["1.weight"] > 0, torch.zeros_like(weight, dtype=torch.bool))
    new = generation.places.spread("1.weight", torch.zeros(20, 64), torch.ones_like(weight)) == 1
    with torch.no_grad():
        weight[new] += 1
    assert learner.verify().ok
    row, column = used.nonzero()[0].tolist()
    with torch.no_grad():
        weight[row, column] += 1e-3
    verdict = learner.verify()
    assert verdict.changed
    assert verdict.tasks[0].drifts[0].parameter == "1.weight"
    assert verdict.tasks[0].drifts[0].entries == 1


def test_masks_and_report_of_several_widths(tmp_path: Path) -> None:
    learner = learner_of()
    learner.grow(0.25)
    learner.learn(digits()[2])
    masks = learner.masks()
    assert masks is not None
    assert {name: len(mask) for name, mask in masks.items()} == {
        "0/1": 25, "0/4": 20, "1/1": 25, "1/4": 20, "2/1": 25, "2/4": 20,
    }  # fmt: skip
    assert not any(bool(masks[f"{task}/1"][20:].any()) for task in (0, 1))  # units that came later are off
    page = learner.report(tmp_path / "page").read_text()
    assert "digits" in page


def test_parameters_are_those_of_the_network_as_it_is() -> None:
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.ReLU(), nn.Linear(10, 6), nn.ReLU())
    learner = Learner(mlp, HAT(), epochs=1, device="cpu")
    learner.learn(digits()[0])
    assert (learner.parameters_count, learner.learnable_count) == (64 * 10 + 10 + 60 + 6 + 14, 730 + 16)
    grown = learner.grow({"1": 2, "3": 1})
    assert grown.parameters == (716, 64 * 12 + 12 + 12 * 7 + 7)
    assert learner.parameters_count == 871 + 14
    learner.learn(digits()[1])
    assert learner.parameters_count == 871 + 14 + 16
    assert learner.learnable_count == 871 + 14 + 16 + 16 + 19
    assert learner.capacity() is not None
    weights = {"1": 64 * 10, "3": 60}
    taken = {n: int((u > 0).sum()) for n, u in (learner.method.use(0) or {}).items() if u.ndim > 1}
    assert taken["1.weight"] <= weights["1"]
    assert taken["3.weight"] <= weights["3"]


def test_pictures_of_a_residual_network_grow_their_streams() -> None:
    kept = ZOO["resnet18"]
    learner = Learner(kept.build(), Lively(s_max=20.0), epochs=1, batch_size=8, device="cpu")
    learner.learn(tasks(kept)[0])
    grown = learner.grow({"conv": 2})
    assert grown.sites == {"conv": (4, 6)}
    assert learner.model.net.stages[0][1].conv2.out_channels == 6


# ---- by itself


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10), nn.ReLU())


@pytest.mark.parametrize("method", ["hat", "pmask", "packnet", "wsn"])
def test_room_is_made_before_a_task_that_finds_none(method: str, tmp_path: Path) -> None:
    made = METHODS[method](grow=0.5, grow_below=0.9, budget=2500, **GROWING[method])
    learner = Learner(small(), made, epochs=1, device="cpu")
    parts, free = digits(), []
    for task in parts:
        known = learner.capacity()
        free.append(None if known is None else 1 - max(known[-1]["layers"].values()))
        learner.learn(task)
    steps = learner.growths
    assert steps, "some layer had less than 90 % free"
    assert steps[0].tasks >= 1  # the first task has all the room there is
    assert all(free[step.tasks] < 0.9 for step in steps)
    assert steps[0].parameters[0] == 64 * 12 + 12 + 120 + 10
    assert all(b.parameters[0] == a.parameters[1] for a, b in pairwise(steps))
    assert steps[-1].parameters[1] <= 2500 < 1.5 * 1.5 * steps[-1].parameters[1]
    assert learner.verify().ok
    learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, small(), device="cpu")
    assert loaded.growths == learner.growths
    assert equal(everything(loaded), everything(learner))


def test_nothing_grows_while_there_is_room_or_no_budget() -> None:
    for settings in ({"grow_below": 0.0}, {"budget": 800}, {"grow": 0.0}):
        learner = Learner(small(), HAT(**{"grow": 0.25, "grow_below": 1.0, **settings}), epochs=1, device="cpu")
        for task in digits()[:3]:
            learner.learn(task)
        assert learner.growths == []
    with pytest.raises(HatrackError, match="leave grow out"):
        METHODS["cat"](grow=0.25)


def test_a_task_that_fails_takes_its_room_away_again() -> None:
    learner, other = (Learner(small(), HAT(grow=0.5, grow_below=1.0), epochs=2, device="cpu") for _ in range(2))
    for each in (learner, other):
        each.learn(digits()[0])
    held = everything(learner)
    learner.model.net.train()

    def fails(epoch: hatrack.Epoch) -> None:
        assert learner.growths
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        learner.learn(digits()[1], on_epoch=fails)
    assert learner.growths == []
    assert all(module.training for module in learner.model.net.modules())
    assert equal(held, everything(learner))
    for each in (learner, other):
        each.learn(digits()[1])
    assert equal(everything(learner), everything(other))
    assert len(learner.growths) == 1


def test_a_loop_of_the_users_finds_the_room() -> None:
    hats = hatrack.Hats(small(), HAT(grow=0.5, grow_below=1.0))
    for number, task in enumerate(digits()[:2]):
        hats.begin(task.name, hatrack.targets.Classification(2), steps=1, example=torch.rand(2, 8, 8))
        assert next(hats.net.parameters()).shape[0] == (12, 18)[number]
        optimizer = hats.guard(torch.optim.SGD(hats.trainable(), lr=0.1))
        loss = nn.functional.cross_entropy(hats(torch.rand(4, 8, 8)), torch.tensor([0, 1, 0, 1])) + hats.penalty()
        loss.backward()
        optimizer.step()
        hats.end()
    assert hats.verify().ok
    assert hats.grow({"1": 2}).sites == {"1": (18, 20)}
    assert hats.verify().ok
