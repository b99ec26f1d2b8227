"""Updating: the task learns on, the others do not notice, and there is a way back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import HAT, HatrackError, Learner, Task, Updated
from hatrack.methods import METHODS
from hatrack.targets import Classification, Regression
from hatrack.testing.case import held
from life.trained import convolutional, same_bits

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.CapacityWarning")
UPDATABLE = ("hat", "pmask", "packnet", "wsn")
WHOLE = hatrack.tasks("split-digits", seed=0)


def drawn(digits: range, which: str) -> tuple[Tensor, Tensor]:
    """Return samples of these digits, numbered from 0."""
    pairs = [getattr(task, which).on(torch.device("cpu")) for task in WHOLE]
    x = torch.cat([pair[0] for pair in pairs])
    y = torch.cat([pair[1] + 2 * t for t, pair in enumerate(pairs)])
    found = (y >= digits.start) & (y < digits.stop)
    return x[found], y[found] - digits.start


def task(name: str, digits: range, as_seen: Callable[[Tensor], Tensor] = lambda x: x, **options: Any) -> Task:
    (x, y), (u, v) = (drawn(digits, which) for which in ("train", "test"))
    return Task(name, (as_seen(x), y), test=(as_seen(u), v), **options)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 120), nn.ReLU(), nn.Linear(120, 80), nn.ReLU())


def learned(method: Any = None, network: nn.Module | None = None, **options: Any) -> Learner:
    """Return a learner of three tasks: digits 5-6, 0-2 (which is updated) and 7-9."""
    given = {"epochs": 8, "batch_size": 32, "device": "cpu", **options}
    made = Learner(net() if network is None else network, method or HAT(), **given)
    for each in (task("before", range(5, 7)), task("a", range(3)), task("behind", range(7, 10))):
        made.learn(each, progress=False)
    return made


X = drawn(range(5), "test")[0][:40]


def answers(learner: Learner, *names: str) -> list[Tensor]:
    return [learner.predict(X, name).clone() for name in names]


def alike(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(same_bits(a, b) for a, b in zip(one, other, strict=True))


def tensors(learner: Learner, folder: Path) -> dict[str, str]:
    return {kind: file["sha256"] for kind, file in held(learner, folder)["files"].items()}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=() if (kind == "mlp") == (name in ("hat", "wsn")) else pytest.mark.slow)
        for kind in ("mlp", "conv")
        for name in UPDATABLE
    ],
)
def test_new_classes_come_and_go_and_nobody_else_notices(name: str, kind: str, tmp_path: Path) -> None:
    def network() -> nn.Sequential:
        return net() if kind == "mlp" else convolutional()[:-1]

    made = learned(METHODS[name](), network())
    then, mine = answers(made, "before", "behind"), answers(made, "a")
    more, seen = task("any name", range(5)), []

    def ask(epoch: Any) -> None:
        if epoch.epoch == 3:
            seen.append(alike(answers(made, "a", "before", "behind"), mine + then) and made.verify().ok)

    updated = made.update("a", more, on_epoch=ask, progress=False)
    assert seen == [True]  # until it is accepted the version before answers
    assert isinstance(updated, Updated)
    assert updated.accepted
    assert updated.others.ok
    assert updated.after > max(updated.before, 0.6 if kind == "mlp" else 0.3)
    assert made.predict(X, "a").shape[1] == 5
    assert made.index(1) == made.index("a") == 3
    assert same_bits(made.predict(X, 1), made.predict(X, "a"))
    assert alike(answers(made, "before", "behind"), then)
    assert [t.task for t in made.verify().tasks] == ["before", "a (older version)", "behind", "a"]
    assert made.verify().ok
    made.save(tmp_path / "saved")
    loaded = hatrack.load(tmp_path / "saved", network())
    assert tensors(loaded, tmp_path / "one") == tensors(made, tmp_path / "two")
    for each in (made, loaded):
        assert alike(answers(each, "a", "before", "behind"), answers(made, "a") + then)
        assert each.verify().ok
        page = each.report(tmp_path / "page").read_text()
        assert "a (older version)" in page
        assert "a (older version)" in each._repr_html_()
    for each in (made, loaded):
        assert each.revert("a").ok
        assert alike(answers(each, "a", "before", "behind"), mine + then)
        assert each.index("a") == 1
        assert [event["event"] for event in each.events] == ["updated", "reverted"]
        with pytest.raises(HatrackError, match="no version before this one"):
            each.revert("a")
    assert tensors(loaded, tmp_path / "one") == tensors(made, tmp_path / "two")
    again = hatrack.load(tmp_path / "one", network())
    assert again.verify().ok
    for each in (made, again):
        each.learn(task("next", range(3, 5)), progress=False)
        assert each.verify().ok
    assert tensors(again, tmp_path / "one") == tensors(made, tmp_path / "two")


def test_it_moves_only_what_no_other_task_uses() -> None:
    made = learned()
    gates = made.masks()
    assert gates is not None
    before = {name: p.detach().clone() for name, p in made.model.net.named_parameters()}
    made.update("a", task("a", range(5)), accept="always", progress=False)
    masks = made.masks()
    assert masks is not None
    assert set(masks) == {f"{t}/{site}" for t in (0, 2, 3) for site in (1, 3)}
    used, mine = {}, {}
    for t in (0, 2, 1):  # written out for two layers: an entry is used between open units
        first, second = gates[f"{t}/1"] > 0.5, gates[f"{t}/3"] > 0.5
        table = {"1.weight": first[:, None].expand(120, 64), "3.weight": second[:, None] & first[None]}
        for name, entries in table.items():
            if t == 1:
                mine[name] = entries & ~used[name]
            else:
                used[name] = used.get(name, torch.zeros_like(entries)) | entries
    for name, others in used.items():
        now = dict(made.model.net.named_parameters())[name]
        assert same_bits(now[others], before[name][others])
        assert bool((now != before[name])[mine[name]].any())


@pytest.mark.parametrize("name", UPDATABLE)
def test_another_domain(name: str) -> None:
    made = learned(METHODS[name](), epochs=25)
    plain = task("a", range(3))
    then = answers(made, "before", "behind")

    def inverted(x: Tensor) -> Tensor:
        return 16 / 16 - x if x.is_floating_point() else 16 - x

    (x, y), (u, v) = drawn(range(3), "train"), drawn(range(3), "test")
    both = Task("both", (torch.cat([x, inverted(x)]), y.repeat(2)), test=(torch.cat([u, inverted(u)]), v.repeat(2)))
    before = made.evaluate(plain, "a")
    updated = made.update("a", both, progress=False)
    assert updated.accepted
    assert updated.after > updated.before + 0.04
    assert made.evaluate(plain, "a") > before - 0.1
    assert made.evaluate(both, "a") > 0.8
    assert alike(answers(made, "before", "behind"), then)


def test_what_is_not_better_is_not_taken(tmp_path: Path) -> None:
    made = learned()
    before, (x, y) = held(made, tmp_path / "a"), drawn(range(3), "train")
    torch.manual_seed(0)
    rows, mixed = torch.randperm(len(x)), torch.randperm(200)
    x, y = x[rows], y[rows]
    noise = Task("a", (x[:200], y[:200][mixed]), valid=(x[200:], y[200:]))
    updated = made.update("a", noise, progress=False)
    assert not updated.accepted
    assert updated.after <= updated.before
    assert "stays as it was" in str(updated)
    assert made.events[-1]["accepted"] is False
    after = held(made, tmp_path / "a")
    assert after.pop("events") != before.pop("events")
    assert {k: v for k, v in after.items() if k != "sha256"} == {k: v for k, v in before.items() if k != "sha256"}
    assert made.update("a", noise, accept="always", progress=False).accepted
    assert made.revert("a").ok


@pytest.mark.parametrize("name", UPDATABLE)
@pytest.mark.filterwarnings("ignore::hatrack.HatrackWarning")
def test_it_is_interrupted_saved_and_gone_on_with_or_given_up(name: str, tmp_path: Path) -> None:
    class Trouble(Exception):
        pass

    def at(stage: int, kind: type[BaseException]) -> Callable[[Any], None]:
        def stop(epoch: Any) -> None:
            if epoch.epoch == stage:
                made.save(tmp_path / "mid")
                raise kind

        return stop

    made, straight = (learned(METHODS[name](), epochs=5) for _ in range(2))
    more, before = task("a", range(5)), held(made, tmp_path / "a")
    with pytest.raises(Trouble):
        made.update("a", more, on_epoch=at(2, Trouble), progress=False)
    assert held(made, tmp_path / "a") == before
    mine = answers(made, "a", "before", "behind")
    with pytest.raises(KeyboardInterrupt):
        made.update("a", more, on_epoch=at(3, KeyboardInterrupt), progress=False)
    others = [hatrack.load(tmp_path / "mid", net(), device="cpu") for _ in range(2)]
    for each in (made, *others):
        assert alike(answers(each, "a", "before", "behind"), mine)
        assert each.verify().ok
        with pytest.raises(HatrackError, match=r"go on by learner\.update, or give it up"):
            each.learn(task("a", range(5)), progress=False)
    others[0].abandon()
    assert others[0].versions == others[0].model.copies == {}
    assert held(others[0], tmp_path / "b")["files"] == before["files"]
    straight.update("a", more, accept="always", progress=False)
    for each in (others[1], others[0]):
        each.update("a", more, accept="always", progress=False)
        assert tensors(each, tmp_path / "b") == tensors(straight, tmp_path / "c")
        assert each.revert("a").ok
        assert alike(answers(each, "a", "before", "behind"), mine)
    made.abandon()
    assert held(made, tmp_path / "a") == before


def test_there_is_no_way_back_once_others_rely_on_what_moved() -> None:
    made = learned()
    then = answers(made, "a", "before", "behind")
    made.update("a", task("a", range(5)), accept="always", progress=False)
    made.learn(task("later", range(3, 6)), progress=False)
    later = answers(made, "later")
    with pytest.raises(HatrackError, match=r"'a' cannot go back: 'later' relies on entries of \d\.\w+ that"):
        made.revert("a")
    assert alike(answers(made, "later"), later)
    assert made.verify().ok
    made.release("later")
    assert made.revert("a").ok
    assert alike(answers(made, "a", "before", "behind"), then)


def test_updated_again_the_first_version_is_gone_and_released_all_are() -> None:
    made = learned(epochs=3)
    once = made.kept_bytes()
    for _ in range(2):
        made.update("a", task("a", range(5)), accept="always", progress=False)
    assert set(made.model.copies) == {3}
    assert made.released == (1,)
    assert made.kept_bytes() > once  # a copy of the network
    assert made.index(1) == made.index(3) == made.index("a") == 4
    released = made.release("a")
    assert [t.task for t in released.others.tasks] == ["before", "behind"]
    assert made.model.copies == {}
    assert made.released == (1, 3, 4)
    for number in (1, 3, 4):
        with pytest.raises(HatrackError, match="was released"):
            made.predict(X, number)
    assert made.verify().ok


def test_classes_go_by_their_names_and_figures_keep_their_unit() -> None:
    made = learned(epochs=6)
    x, y = drawn(range(3), "train")
    named = Task("named", (x, y), target=Classification(names=["zero", "one", "two"]))
    made.learn(named, progress=False)
    head = made.model.heads[3].weight.clone()
    turned = Classification(names=["two", "three", "zero", "one"])
    u, v = drawn(range(4), "train")
    with pytest.raises(HatrackError, match="knows the class 'one', which the new data do not name"):
        made.update("named", Task("x", (x[y != 1], y[y != 1] // 2), target=Classification(names=["zero", "two"])))
    with pytest.raises(HatrackError, match="has classes with names; name those"):
        made.update("named", Task("x", (u, v)))
    seen: list[Tensor] = []

    class Watch:
        def on_begin(self, learner: Learner) -> None:
            seen.append(learner.model.heads[-1].weight.clone())

    order = torch.tensor([2, 3, 0, 1])  # zero is output 2, …
    made.update("named", Task("x", (u, order[v]), target=turned), accept="always", callback=Watch(), progress=False)
    assert same_bits(seen[0][[2, 3, 0]], head)
    assert made.decode(made.predict(u[:1], "named"), "named")[0] in turned.names  # type: ignore[operator]
    flat = x.flatten(1).float()
    made.learn(Task("sum", (x, flat.sum(1, keepdim=True)), target=Regression()), progress=False)
    target = made.tasks[made.index("sum")].target
    made.update("sum", Task("sum", (x, flat.sum(1, keepdim=True) * 3), target=Regression()), "always", progress=False)
    again = made.tasks[made.index("sum")].target
    assert isinstance(target, Regression)
    assert isinstance(again, Regression)
    assert (again.mean, again.std) == (target.mean, target.std)
    assert made.verify().ok


def test_what_cannot_be_updated_is_refused_in_a_line(tmp_path: Path) -> None:
    made = learned(epochs=1)
    before, more = held(made, tmp_path), task("a", range(5))
    x, y = drawn(range(3), "train")
    for arguments, line in (
        (("nobody", more), "nobody"),
        ((1, x), "update takes data as a task"),
        ((1, more, "perhaps"), "accept"),
        ((1, Task("a", (x, y.float()[:, None]), target=Regression())), "predicts classification with 3 outputs, got"),
    ):
        with pytest.raises(HatrackError, match=line):
            made.update(*arguments, progress=False)  # type: ignore[arg-type]
    with pytest.raises(HatrackError, match="no version before this one"):
        made.revert("a")
    assert held(made, tmp_path) == before
    for method in (HAT(hard=False), METHODS["cat"](), METHODS["supsup"](), METHODS["one"](), METHODS["ewc"]()):
        other = Learner(net(), method, epochs=1, device="cpu")
        other.learn(task("a", range(3)), progress=False)
        with pytest.raises(HatrackError, match=rf"{method.name}, as it was set, cannot update 'a'"):
            other.update("a", more, progress=False)


def test_a_method_that_moves_what_others_use_is_found_out(tmp_path: Path) -> None:
    class Careless(HAT):
        name = "careless"

        def begin_task(self, task: int, feed: Any, generator: torch.Generator) -> None:
            super().begin_task(task, feed, generator)
            self.lock = None

    made = Learner(net(), Careless(), epochs=2, device="cpu")
    for each in (task("a", range(3)), task("b", range(5, 8))):
        made.learn(each, progress=False)
    before = held(made, tmp_path)
    with pytest.raises(HatrackError, match="another task would be answered otherwise, so all is as it was"):
        made.update("b", task("b", range(5, 10)), accept="always", progress=False)
    assert held(made, tmp_path)["files"] == before["files"]
