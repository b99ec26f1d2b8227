"""Adopting: head(net(x)), computed by torch alone, is what the first task answers, then and after later tasks."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import HAT, Adopted, CapacityWarning, HatrackError, HatrackWarning, Learner, PMask, Task
from hatrack.methods import METHODS
from hatrack.targets import Dense, MultiLabel, Regression
from hatrack.testing.case import held
from life.trained import convolutional, digits, mlp, ready, same_bits, taught

# They make weights, masks or paths of their own, and so cannot answer as the network does.
REFUSED = {"den", "pathnet", "random", "supsup", "wsn"}
ROOMY = {"hat", "pmask", "packnet", "cat"}


def answers(net: nn.Module, head: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return head(net(x)).clone()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_adopts_bit_for_bit_or_refuses_by_name(name: str, tmp_path: Path) -> None:
    net, head = taught(mlp(), epochs=1)
    first, _ = digits()
    x, _ = ready(first)
    expected = answers(net, head, x)
    learner = Learner(net, METHODS[name](), epochs=1, device="cpu")
    if name in REFUSED:
        before = held(learner, tmp_path)
        with pytest.raises(HatrackError, match=f"^{name} cannot adopt .* choose another method") as told:
            learner.adopt(first, head)
        assert "\n" not in str(told.value)
        assert held(learner, tmp_path) == before
        return
    adopted = learner.adopt(first, head)
    assert same_bits(learner.predict(first.train.on(torch.device("cpu"))[0], first.name), expected)
    assert adopted.before == adopted.after
    assert adopted.promised == learner.method.promises()
    assert ("no promise" in str(adopted)) != learner.method.promises()
    assert learner.verify().ok
    assert learner.matrix() == [[learner.evaluate(first, 0)]]


OPTIMISERS: dict[str, Any] = {
    "own": None,
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
}


@pytest.mark.filterwarnings("ignore::hatrack.CapacityWarning")  # of a layer that is taken as a whole
@pytest.mark.parametrize("made", [mlp, convolutional])
@pytest.mark.parametrize("name", ["hat", "pmask", "packnet"])
@pytest.mark.parametrize("optimizer", OPTIMISERS.values(), ids=OPTIMISERS)
def test_old_answers_are_bit_identical_after_later_tasks(
    made: Callable[[], nn.Sequential], name: str, optimizer: Any
) -> None:
    net, head = taught(made(), epochs=2)
    first, second = digits()
    learner = Learner(net, METHODS[name](), optimizer, epochs=2, batch_size=32, device="cpu")
    adopted = learner.adopt(first, head, room=0.3, cost=1.0)
    assert adopted.free is not None
    assert adopted.free["total"] >= 0.3
    x = first.test.first(50)
    then = learner.predict(x, 0)
    learner.learn(second)
    assert same_bits(learner.predict(x, 0), then)
    assert learner.verify().ok
    assert learner.capacity()[0]["total"] <= 0.7  # type: ignore[index]


def test_what_is_adopted_whole_is_answered_so_for_good_and_saved(tmp_path: Path) -> None:
    net, head = taught(convolutional())
    first, second = digits()
    expected = answers(net, head, ready(first)[0])
    learner = Learner(net, HAT(), epochs=12, batch_size=32, device="cpu")
    adopted = learner.adopt(first, head=head)
    assert isinstance(adopted, Adopted)
    assert re.fullmatch(r"'digits 0-1' adopted: accuracy .* no weight is free: .*", str(adopted))
    assert repr(adopted) == str(adopted)
    with pytest.warns(CapacityWarning, match="little of the network is free"):
        learner.learn(second)
    assert learner.evaluate(second, 1) > 0.6  # a head, norms and gates of its own read the old units
    x = first.train.on(torch.device("cpu"))[0]
    learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, convolutional()[:-1])
    for each in (learner, loaded):
        torch.testing.assert_close(each.predict(x, 0), expected, rtol=1e-5, atol=1e-5)
        assert each.verify().ok
        assert [known.name for known in each.history] == [first.name, second.name]
    assert same_bits(loaded.predict(x, 0), learner.predict(x, 0))
    assert learner.report(tmp_path / "page").exists()
    with torch.no_grad():
        next(net.parameters()).view(-1)[0] += 1
    assert not learner.verify().ok


def test_a_convolution_that_scores_positions_is_adopted() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU())
    head = nn.Conv2d(6, 3, 1, bias=False)
    x = torch.rand(12, 1, 5, 5)
    y = answers(net, head, x).argmax(1) % 2  # one of the three classes occurs in no label
    learner = Learner(net, HAT(), device="cpu")
    learner.adopt(Task("pixels", (x, y), target=Dense()), head)
    torch.testing.assert_close(learner.predict(x, 0), answers(net, head, x))
    assert learner.tasks[0].classes == 3


def test_a_regression_answers_in_the_unit_of_its_head() -> None:
    torch.manual_seed(0)
    net, head = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 1)
    x = torch.randn(30, 4)
    y = 1000 + 5 * answers(net, head, x)
    with torch.no_grad():
        head.weight.mul_(5)
        head.bias.mul_(5).add_(1000)
    learner = Learner(net, PMask(), device="cpu")
    adopted = learner.adopt(Task("figures", (x, y), target=Regression()), head)
    assert adopted.score == "R²"
    assert adopted.before > 0.999
    torch.testing.assert_close(learner.predict(x, 0), answers(net, head, x))


@pytest.mark.parametrize("name", ["hat", "pmask", "packnet"])
def test_room_is_what_can_be_had_within_the_cost(name: str) -> None:
    net, head = taught(mlp())
    first, _ = digits()
    weights = {n: p.detach().clone() for n, p in net.named_parameters()}
    learner = Learner(net, METHODS[name](), device="cpu")
    with pytest.warns(HatrackWarning, match=r"within a cost of 0\.02 .* can be left free, not 99%; allow a larger"):
        adopted = learner.adopt(first, head, room=0.99, cost=0.02)
    assert adopted.after >= adopted.before - 0.02
    assert adopted.free is not None
    assert 0 < adopted.free["total"] < 0.99
    assert adopted.free["total"] == pytest.approx(1 - learner.capacity()[0]["total"])  # type: ignore[index]
    assert "of the weights are free (1 " in str(adopted)
    for n, p in net.named_parameters():
        assert same_bits(p, weights[n]), n  # no weight moves
    assert same_bits(learner.model.heads[0].weight, head.weight)
    assert learner.evaluate(first, 0) >= adopted.before - 0.1


def test_units_are_closed_by_their_worth() -> None:
    """Of sixteen units, four make the answer: these stay open, whatever the others' activations are."""
    torch.manual_seed(0)
    net, head = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 3)
    with torch.no_grad():
        head.weight[:, 4:] = 0
        net[0].weight[4:] *= 10  # type: ignore[operator]
    x = torch.randn(200, 6)
    y = answers(net, head, x).argmax(1)
    learner = Learner(net, HAT(), device="cpu")
    learner.adopt(Task("few", (x, y)), head, room=0.7, cost=0.0)
    assert (learner.masks() or {})["0/0"].nonzero().flatten().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("samples", [1, 2])
def test_one_sample_is_enough_without_room(samples: int) -> None:
    net, head = taught(mlp(), epochs=1)
    first, _ = digits()
    x, _ = first.train.on(torch.device("cpu"))
    learner = Learner(net, HAT(), device="cpu")
    learner.adopt(Task("few", (x[:samples], torch.zeros(samples, dtype=torch.long)), classes=2), head)
    assert learner.verify().ok


def _refused(match: str, task: Task, head: Any, learner: Learner, folder: Path, **asked: Any) -> None:
    before = held(learner, folder)
    with pytest.raises(HatrackError, match=match) as told:
        learner.adopt(task, head, **asked)
    assert "\n" not in str(told.value)
    assert held(learner, folder) == before


def not_finite(head: nn.Linear) -> nn.Linear:
    lost = copy.deepcopy(head)
    nn.init.constant_(lost.weight[0], float("nan"))
    return lost


def test_what_cannot_be_adopted_is_refused_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    net, head = taught(mlp(), epochs=1)
    first, second = digits()
    learner = Learner(net, HAT(), epochs=1, device="cpu")
    x, _ = first.train.on(torch.device("cpu"))
    several = Task("several", (x, torch.rand(len(x), 3).round()), target=MultiLabel())
    for match, task, given, asked in [
        (r"^adopt takes a task, .* got list", [x], head, {}),
        (r"^room must be a figure of 0 or more and below 1, got 1", first, head, {"room": 1}),
        (r"^room must be .* got '0\.5'", first, head, {"room": "0.5"}),
        (r"^cost must be a figure of 0 or more, got -0\.1", first, head, {"cost": -0.1}),
        (r"^task 'digits 0-1': head must be the last linear layer .* got Sequential", first, nn.Sequential(head), {}),
        (r"head must be .* got Conv2d", first, nn.Conv2d(16, 2, 3), {}),
        (r"head is of torch.float64, heads are of torch.float32", first, copy.deepcopy(head).double(), {}),
        (r"^task 'digits 0-1': head has numbers that are not finite", first, not_finite(head), {}),
        (r"^task 'digits 0-1': head reads 9 units, the network gives 16", first, nn.Linear(9, 2), {}),
        (r"^task 'several' has 3 outputs \(multilabel\), its head 2", several, head, {}),
        (r"^task 'digits 0-1': head is missing, .* net\.fc = net\.fc, torch\.nn\.Identity\(\)", first, None, {}),
    ]:
        _refused(match, task, given, learner, tmp_path, **asked)  # type: ignore[arg-type]
    whole = Learner(nn.Sequential(*net, head), HAT(), device="cpu")
    _refused(r"head, net\[5\] = net\[5\], torch\.nn\.Identity\(\)", first, None, whole, tmp_path)
    none = Learner(copy.deepcopy(net), METHODS["ewc"](), device="cpu")
    _refused(r"^ewc cannot leave room .* choose hat, pmask or packnet", first, head, none, tmp_path, room=0.5)
    learner.adopt(first, head)
    _refused(
        r"^task 'digits 2-3' cannot be adopted: the learner has 'digits 0-1' already", second, head, learner, tmp_path
    )


def test_a_network_that_was_changed_after_the_learner_was_made_is_refused(tmp_path: Path) -> None:
    net, head = taught(convolutional(), epochs=1)
    learner = Learner(net, HAT(), device="cpu")
    with torch.no_grad():
        next(net.parameters()).mul_(2)
    _refused("the network was changed", digits()[0], head, learner, tmp_path)


def test_what_fails_while_room_is_made_was_never_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    net, head = taught(mlp(), epochs=1)
    first, second = digits()
    learner, clean = (Learner(copy.deepcopy(net), HAT(), epochs=1, device="cpu") for _ in range(2))
    before = held(learner, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("hatrack.life.adopt.end_task", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            learner.adopt(first, head, room=0.3, cost=1.0)
    assert held(learner, tmp_path) == before
    for each in (learner, clean):
        each.adopt(first, head, room=0.3, cost=1.0)
        each.learn(second)
    assert held(learner, tmp_path) == held(clean, tmp_path)
