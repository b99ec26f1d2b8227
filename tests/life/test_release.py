"""Releasing: nothing of the task is left, and the others are what they were; looked for in files and by statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

import hatrack
from hatrack import HAT, HatrackError, HatrackWarning, Hats, Learner, PMask, Released, Task
from hatrack.cli import main
from hatrack.life import release as releasing
from hatrack.methods import METHODS
from hatrack.methods.parts.declared import kept
from hatrack.targets import Classification
from hatrack.testing.case import Case, held
from hatrack.testing.releasing import releases
from life.trained import convolutional, same_bits

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.CapacityWarning")


def digits(count: int = 3) -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:count]


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU())


def learner(method: Any = None, net: nn.Module | None = None, **options: Any) -> Learner:
    given = {"epochs": 4, "batch_size": 32, "device": "cpu", **options}
    return Learner(small() if net is None else net, method or HAT(), **given)


def learned(count: int = 2, **options: Any) -> Learner:
    made = learner(**options)
    for task in digits(count):
        made.learn(task, progress=False)
    return made


def bits(folder: Path) -> set[int]:
    """Return the bits of all floats in a folder's files; zeros aside."""
    found: set[int] = set()
    for file in folder.glob("*.safetensors"):
        for value in load_file(file).values():
            if value.dtype == np.float32:
                found |= set(value.reshape(-1).view(np.int32).tolist())
    return found - {0, -(2**31)}


def words(*tensors: Tensor) -> set[int]:
    return {w for t in tensors if t.dtype == torch.float32 for w in t.detach().flatten().view(torch.int32).tolist()} - {
        0,
        -(2**31),
    }


def used_by_hand(gates: dict[str, Tensor], task: int) -> dict[str, Tensor]:
    """Return which entries of `small` stand between open units of a task, written out layer by layer."""
    first, second = gates[f"{task}/1"] > 0.5, gates[f"{task}/3"] > 0.5
    return {
        "1.weight": first[:, None].expand(40, 64), "1.bias": first,
        "3.weight": second[:, None] & first[None, :], "3.bias": second,
    }  # fmt: skip


# ---- what is left


def test_only_the_draw_tells_it_from_a_network_that_never_learned_the_task() -> None:
    never, made = learned(1), learned(2)
    gates = made.masks()
    assert gates is not None
    mine, theirs = (used_by_hand(gates, task) for task in (1, 0))
    then = {name: p.detach().clone() for name, p in made.model.net.named_parameters()}
    initial = made.model.initial
    released = made.release("digits 2-3")
    assert isinstance(released, Released)
    x = digits(1)[0].train.first(50)
    assert same_bits(made.predict(x, 0), never.predict(x, 0))
    for name, now in made.model.net.named_parameters():
        before = dict(never.model.net.named_parameters())[name]
        assert same_bits(now[theirs[name]], before[theirs[name]])
        free = ~theirs[name]
        if now.ndim < 2:
            assert same_bits(now[free], initial[name][free])
            continue
        drawn, old = now[free].detach().numpy(), then[name][free].numpy()
        count = len(drawn)
        assert count > 100
        assert abs(np.corrcoef(drawn, old)[0, 1]) < 4 / count**0.5
        assert np.corrcoef(initial[name][free].numpy(), old)[0, 1] > 0.5  # else the line above says nothing
        assert ks(drawn, initial[name].numpy().ravel()) < 1.95 * ((count + 1) / count) ** 0.5 / count**0.5
        exclusive = mine[name] & free
        assert bool(exclusive.any())
        assert not bool((now[exclusive] == then[name][exclusive]).any())
    own = sum(int((mine[n] & ~theirs[n]).sum()) for n in mine if n.endswith("weight"))
    assert released.free == pytest.approx(own / sum(int(mine[n].sum()) for n in mine if n.endswith("weight")))
    assert released.used == {"digits 0-1": pytest.approx(1 - released.free)}
    assert made.capacity()[-1] == never.capacity()[-1]  # type: ignore[index]
    for one, other in zip(made.locked_values.held.items(), never.locked_values.held.items(), strict=True):
        assert one[0] == other[0]
        assert torch.equal(one[1], other[1])


def ks(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The largest distance between two empirical distributions."""
    every = np.sort(np.concatenate([a, b]))
    steps = (np.searchsorted(np.sort(part), every, side="right") / len(part) for part in (a, b))
    return float(np.abs(np.subtract(*steps)).max())


def test_a_network_whose_own_initialisation_is_not_torchs_is_drawn_as_it_was() -> None:
    weight = nn.init.orthogonal_(torch.empty(64, 64)) * 3
    mixed = releasing.drawn(weight, torch.Generator().manual_seed(0))
    assert torch.equal(mixed.sort(1).values, weight.sort(1).values)
    assert not torch.equal(mixed, weight)
    rows = torch.zeros(5, 7)  # the row of what is padded, and biases that begin at zero
    assert torch.equal(releasing.drawn(rows, torch.Generator()), rows)


@pytest.mark.parametrize("kind", [HAT, PMask])
def test_nothing_of_it_is_in_the_files(kind: Any, tmp_path: Path) -> None:
    made = learner(kind(), convolutional()[:-1])
    first, second = digits(2)
    made.learn(first, progress=False)
    names = Classification(names=["unmistakable", "incomparable"])
    x, y = second.train.on(torch.device("cpu"))
    made.learn(Task("secret", (x, y), test=(x[:50], y[:50]), target=names), progress=False)
    model = made.model
    head = words(*model.heads[1].parameters(), made.probes[1].logits)
    norms = words(*model.private[1].values()) - words(*model.private[0].values(), *model.initial.values())
    mine, theirs = (made.method.use(task) for task in (1, 0))
    assert mine is not None
    assert theirs is not None
    parameters = dict(model.net.named_parameters())
    alone = words(*(parameters[n][(a > 0) & (theirs[n] == 0)] for n, a in mine.items())) - words(
        *model.initial.values()
    )
    state = {key: t for key, t in made.method.state().items() if key.endswith("/1")}
    mask = next(t.cpu().numpy().tobytes() for key, t in state.items())
    made.save(tmp_path)
    assert head | norms | alone <= bits(tmp_path)
    assert any(mask in file.read_bytes() for file in tmp_path.iterdir())
    seal = next(iter(made.probes[1].seal.values()))  # type: ignore[union-attr]
    assert seal in (tmp_path / "learner.json").read_text()
    made.release("secret")
    made.save(tmp_path)
    left = bits(tmp_path)
    assert len(head & left) + len(norms & left) + len(alone & left) == 0
    assert not any(mask in file.read_bytes() for file in tmp_path.iterdir())
    page = (tmp_path / "learner.json").read_text()
    assert seal not in page
    assert "unmistakable" not in page
    assert json.loads(page)["tasks"][1] == {"name": "secret", "released": True}
    story = json.loads((tmp_path / "history.json").read_text())["tasks"][1]
    assert story["released"]
    assert not any(story[key] for key in ("samples", "epochs", "seconds"))
    assert story["accuracy"][1] is None
    assert json.loads(page)["events"] == made.events
    assert made.events[0]["event"] == "released"
    assert (made.events[0]["task"], made.events[0]["number"], made.events[0]["after"]) == ("secret", 1, 2)


@pytest.mark.parametrize("what", ["values", "masks", "the lock"])
def test_what_is_forgotten_to_be_removed_is_found(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The behaviour that all methods are held to can fail."""
    if what == "values":
        monkeypatch.setattr(releasing, "_draw_anew", lambda *_: None)
    elif what == "masks":
        monkeypatch.setattr(HAT, "release", lambda *_: None)
    else:
        monkeypatch.setattr("hatrack.learn.proof.verification.LockedValues.only", lambda *_: None)
    with pytest.raises(AssertionError, match="without a trace"):
        releases.hold(Case(HAT, "mlp", tmp_path))


# ---- what goes on


def test_numbers_are_for_life_and_a_name_can_be_learned_again(tmp_path: Path) -> None:
    made = learned(3)
    second = digits(2)[1]
    x = second.train.first(20)
    then = {t: made.predict(x, t) for t in (0, 2)}
    made.release(1)
    for call in (made.predict, made.decode):
        with pytest.raises(
            HatrackError, match=r"task 'digits 2-3' \(number 1\) was released; learn it again to ask it"
        ):
            call(x, "digits 2-3")
    for ask in (made.cut_out, made.release, lambda t: made.evaluate(second, t), lambda t: made.verify(probes={t: x})):
        with pytest.raises(HatrackError, match=r"number 1\) was released"):
            ask(1)
    with pytest.raises(HatrackError, match="was released"):
        made.remember(second)
    assert made.finished == 3
    assert made.released == (1,)
    assert "tasks=2: 'digits 0-1', 'digits 4-5'; released: 1" in repr(made)
    assert set(made.masks() or {}) == {f"{t}/{site}" for t in (0, 2) for site in (1, 3)}
    assert [row[1:2] for row in made.matrix()] == [[], [None], [None]]
    assert [h.released for h in made.history] == [False, True, False]
    table = made.reuse()
    assert table is not None
    assert table[0][2] is not None
    assert table[0][1] is None
    assert table[1] == [None] * 3
    assert "digits 2-3 (released)" in made._repr_html_()
    made.learn(second, progress=False)
    assert made.index("digits 2-3") == 3
    with pytest.raises(
        HatrackError, match=r"number 1\) was released; one of that name was learned since, task number 3"
    ):
        made.predict(x, 1)
    for task, answer in then.items():
        assert same_bits(made.predict(x, task), answer)
    assert [t.task for t in made.verify().tasks] == ["digits 0-1", "digits 4-5", "digits 2-3"]
    assert made.verify().ok
    made.save(tmp_path / "saved")
    page = made.report(tmp_path / "report").read_text()
    assert "digits 2-3 (released)" in page
    loaded = hatrack.load(tmp_path / "saved", small())
    assert loaded.report(tmp_path / "again").exists()
    assert hatrack.plot.masks(loaded).svg
    assert loaded.released == (1,)
    assert loaded.events == made.events
    assert held(loaded, tmp_path / "other")["files"] == held(made, tmp_path / "one")["files"]


@pytest.mark.parametrize(
    ("method", "net"),
    [
        ("hat", small),
        ("hat", convolutional),
        ("pmask", convolutional),
        ("pathnet", convolutional),
        ("wsn", convolutional),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"norm": "frozen"}])
def test_all_are_released_and_another_is_learned_as_well_as_ever(
    method: str, net: Callable[[], nn.Sequential], settings: dict[str, Any], tmp_path: Path
) -> None:
    if settings and method != "hat":
        pytest.skip("has no such setting")
    network = net() if net is small else net()[:-1]
    made = learner(METHODS[method](**settings), network, epochs=6)
    for task in digits(2):
        made.learn(task, progress=False)
    said = [str(made.release(oldest=True)) for _ in range(2)]
    assert re.match(r"'digits 0-1' \(number 0\) released; .* 1 other task compared: not one bit differs\.", said[0])
    assert re.fullmatch(r"'digits 2-3' \(number 1\) released; .* all its weights are free again\.", said[1])
    with pytest.raises(HatrackError, match="all that were learned are released"):
        made.release(oldest=True)
    made.save(tmp_path)
    again = hatrack.load(tmp_path, small() if net is small else net()[:-1])
    for each in (made, again):
        each.learn(digits(3)[2], progress=False)
        assert each.verify().ok
    assert made.evaluate(digits(3)[2], 2) > 0.8
    assert held(made, tmp_path / "a")["files"] == held(again, tmp_path / "b")["files"]


def test_a_pretrained_network_gets_back_what_it_was_handed_over_with() -> None:
    made = learned(2, method=HAT(start="pretrained"))
    made.release("digits 2-3")
    use = made.method.use(0)
    assert use is not None
    for name, p in made.model.net.named_parameters():
        assert same_bits(p[use[name] == 0], made.model.initial[name][use[name] == 0])


def test_what_was_frozen_beforehand_stays() -> None:
    net = small()
    net[1].requires_grad_(False)
    made, then = learned(2, net=net), net[1].weight.clone()
    made.release(0)
    made.release(1)
    assert same_bits(net[1].weight, then)


# ---- what is refused, and what fails


def test_what_cannot_be_released_is_refused_in_a_line() -> None:
    made = learner()
    with pytest.raises(HatrackError, match="none is learned yet"):
        made.release("a")
    with pytest.raises(HatrackError, match="none is learned yet"):
        made.release(oldest=True)
    made.learn(digits(1)[0], progress=False)
    for given in ((), (0, True)):
        with pytest.raises(HatrackError, match="or oldest=True; give one of the two"):
            made.release(*given[:1], oldest=bool(given[1:]))
    with pytest.raises(HatrackError, match="digits 0-1"):
        made.release("cats")
    for method in (HAT(hard=False), HAT(norm="shared"), METHODS["pnn"](), METHODS["ewc"](), METHODS["finetune-copy"]()):
        other = learned(1, method=method, epochs=1)
        with pytest.raises(HatrackError, match=rf"{method.name}, as it was set, cannot release 'digits 0-1': \w+"):
            other.release(0)
    with pytest.raises(HatrackError, match="keep_tasks = 3 releases old tasks"):
        HAT(keep_tasks=3, hard=False)
    with pytest.raises(HatrackError, match="keep_tasks = 3 releases old tasks"):
        METHODS["cat"](keep_tasks=3)


def test_not_while_something_is_learned() -> None:
    made, seen = learned(1), []

    def ask(epoch: Any) -> None:
        with pytest.raises(HatrackError, match="is being learned"):
            made.release(0)
        seen.append(epoch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.learn(digits(2)[1], on_epoch=ask, progress=False)
    assert seen
    with pytest.raises(HatrackError, match="'digits 2-3' is in progress; finish it, or give it up with abandon"):
        made.release(0)
    made.abandon()
    made.release(0)


class Trouble(Exception):
    pass


@dataclass
class Noting(HAT):
    """Also notes something of every task."""

    name: ClassVar[str] = "noting"
    notes: list[Tensor] = kept("note")
    pairs: list[dict[str, Tensor]] = kept("pair")

    def end_task(self, feed: Any) -> None:
        super().end_task(feed)
        self.notes.append(torch.ones(3))
        self.pairs.append({"a": torch.ones(2)})


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, call: int) -> Iterator[None]:
    original, calls = getattr(where, name), iter(range(1, 1000))

    def fails(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        if next(calls) == call:
            raise Trouble
        return result

    with monkeypatch.context() as patched:
        patched.setattr(where, name, fails)
        with pytest.raises(Trouble):
            yield


def test_what_fails_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, x = learned(3), digits(1)[0].train.first(20)
    before, answers = held(made, tmp_path / "a"), [made.predict(x, t) for t in range(3)]
    for where, name, call in (
        (HAT, "release", 1), (releasing, "_draw_anew", 1), (releasing, "_look_again", 1), (Learner, "verify", 2),
    ):  # fmt: skip
        with failing(monkeypatch, where, name, call):
            made.release(0)
        assert held(made, tmp_path / "a") == before
        assert made.verify().ok
        assert all(same_bits(made.predict(x, t), answers[t]) for t in range(3))
        assert made.evaluate(digits(1)[0], 0) == made.matrix()[2][0]


def test_a_method_that_does_not_say_what_a_task_uses_is_found_out(tmp_path: Path) -> None:
    class Forgetful(HAT):
        name = "forgetful"

        def use(self, task: int) -> Any:
            return {n: used * (n != "3.weight") for n, used in super().use(task).items()}

    made = learned(2, method=Forgetful())
    before = held(made, tmp_path)
    with pytest.raises(HatrackError, match=r"another task would be answered otherwise.*Forgetful\.use does not say"):
        made.release(1)
    assert held(made, tmp_path) == before


# ---- the online mode


def test_so_many_tasks_are_kept_and_no_more(tmp_path: Path) -> None:
    online, plain = learner(HAT(keep_tasks=2)), learner()
    tasks = hatrack.tasks("split-digits", seed=0)
    for t, task in enumerate(tasks):
        if t >= 2:
            plain.release(oldest=True)
            with pytest.warns(HatrackWarning, match=rf"number {t - 2}\) released; .*\(keep_tasks = 2\)"):
                online.learn(task, progress=False)
        else:
            online.learn(task, progress=False)
        plain.learn(task, progress=False)
    assert online.released == (0, 1, 2)
    assert [[score is None for score in row] for row in online.matrix()][-1] == [True] * 3 + [False] * 2
    files = [held(each, tmp_path / str(i))["files"] for i, each in enumerate((online, plain))]
    assert {k: f["sha256"] for k, f in files[0].items()} == {k: f["sha256"] for k, f in files[1].items()}
    assert online.verify().ok
    once = learner(HAT(keep_tasks=1))
    once.learn(tasks[0], progress=False)
    with pytest.warns(HatrackWarning, match="released"):
        once.learn(tasks[1], progress=False)
    assert once.released == (0,)


@pytest.mark.filterwarnings("ignore::hatrack.HatrackWarning")
def test_the_oldest_comes_back_where_the_task_fails_and_stays_away_where_it_was_stopped(tmp_path: Path) -> None:
    made = learned(2, method=HAT(keep_tasks=2))
    before = held(made, tmp_path / "a")
    third, x = digits(3)[2], digits(1)[0].train.first(20)

    def fails(epoch: Any) -> None:
        raise Trouble

    def stops(epoch: Any) -> None:
        if epoch.epoch == 2:
            made.save(tmp_path / "mid")
            raise KeyboardInterrupt

    with pytest.raises(Trouble):
        made.learn(third, on_epoch=fails, progress=False)
    assert held(made, tmp_path / "a") == before
    secret = words(*made.model.heads[0].parameters())
    assert secret <= bits(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        made.learn(third, on_epoch=stops, progress=False)
    assert not secret & bits(tmp_path / "mid")
    killed = hatrack.load(tmp_path / "mid", small())
    assert killed.released == (0,)
    given_up = hatrack.load(tmp_path / "mid", small())
    killed.learn(third, progress=False)
    straight = learned(3, method=HAT(keep_tasks=2))
    assert held(killed, tmp_path / "b")["files"] == held(straight, tmp_path / "c")["files"]
    for each in (made, given_up):
        each.abandon()
        assert each.released == (0,)
        assert each.verify().ok
        each.learn(third, progress=False)
        assert same_bits(each.predict(x, 1), straight.predict(x, 1))
        assert held(each, tmp_path / "d")["files"] == held(straight, tmp_path / "c")["files"]


@pytest.mark.filterwarnings("ignore::hatrack.HatrackWarning")
def test_in_a_loop_of_ones_own() -> None:
    hats = Hats(small(), HAT(keep_tasks=2))
    x, y = torch.rand(64, 64), torch.arange(64) % 2

    def learn(name: str) -> None:
        hats.begin(name, Classification(2), steps=4)
        optimizer = hats.guard(torch.optim.SGD(hats.trainable(), lr=0.1))
        for rows in torch.arange(64).split(16):
            loss = nn.functional.cross_entropy(hats(x[rows]), y[rows]) + hats.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        hats.end()

    learn("a")
    learn("b")
    answer = hats.wear("b")(x)
    with pytest.raises(HatrackError, match="is in progress"):
        hats.begin("c", Classification(2), steps=4).release("a")
    hats.abandon()
    assert hats.verify().ok
    learn("c")
    assert same_bits(hats.wear("b")(x), answer)
    with pytest.raises(HatrackError, match=r"'a' \(number 0\) was released"):
        hats.wear("a")
    hats.wear("b")
    assert hats.release("b").number == 1
    assert hats.verify().ok
    assert sum(p.numel() for p in hats.heads.parameters()) == 30 * 2 + 2


def test_a_method_of_ones_own_need_only_declare_its_fields() -> None:
    made = learned(2, method=Noting(), epochs=1)
    made.release(0)
    state = made.method.state()
    assert state["note/0"].numel() == 0
    assert "pair/0/a" not in state
    assert state["pair/1/a"].numel() == 2


@pytest.mark.filterwarnings("always::hatrack.HatrackWarning")
def test_runs_have_no_score_of_what_they_have_released(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "run --method hat --benchmark split-digits --net mlp --epochs 2 --device cpu".split()
    settings = "--set net.widths=[40] --set keep_tasks=2 --out".split()
    assert main([*words, *settings, str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    last = result["accuracy"][-1]
    assert last[:3] == [None] * 3
    assert None not in last[3:]
    assert [task.get("released", False) for task in result["tasks"]] == [True] * 3 + [False] * 2
    assert result["metrics"]["acc"] is None
    printed = capsys.readouterr()
    assert "3 of 5 tasks were released" in printed.out
    assert "'digits 4-5' (number 2) released; " in printed.err
    assert "digits 0-1 (released)" in (tmp_path / "run" / "report.html").read_text()
    assert main(["verify", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    assert len(result["verified"]["tasks"]) == 2
    (tmp_path / "run" / "result.json").unlink()
    assert main(["resume", str(tmp_path / "run")]) == 0
    again = json.loads((tmp_path / "run" / "result.json").read_text())
    assert again["accuracy"] == result["accuracy"]
