"""Hats in plain torch loops: the promise, whatever the loop does, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

import hatrack
from hatrack import HAT, HatrackError, Hats, Learner, PMask, Task
from hatrack.methods import METHODS
from hatrack.targets import Classification, Dense, Regression

STEPS = 6


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU())


def batches(seed: int, epochs: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(3, 12, generator=random)
    for _ in range(epochs * STEPS):
        y = torch.randint(0, 3, (32,), generator=random)
        yield centres[y] + 0.3 * torch.randn(32, 12, generator=random), y


def teach(hats: Hats, name: str, seed: int, made: Callable[[Any], Optimizer] = AdamW, epochs: int = 3) -> None:
    hats.begin(name, Classification(3), steps=STEPS)
    optimizer = hats.guard(made(hats.trainable()))
    for x, y in batches(seed, epochs):
        optimizer.zero_grad()
        (cross_entropy(hats(x), y) + hats.penalty()).backward()
        optimizer.step()
    hats.end()


@pytest.mark.parametrize(
    "made",
    [
        lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        lambda p: AdamW(p, lr=0.01, weight_decay=0.3),
        lambda p: Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True),
        lambda p: RMSprop(p, lr=0.01, momentum=0.5),
        lambda p: Adagrad(p, lr=0.05, weight_decay=0.1),
    ],
)
@pytest.mark.parametrize("method", [HAT, PMask])
def test_old_tasks_stay_bit_identical(method: Any, made: Any) -> None:
    hats = Hats(net(), method(s_max=50.0))
    x = torch.randn(20, 12, generator=torch.Generator().manual_seed(9))
    teach(hats, "a", 1, made)
    first = hats.wear("a")(x)
    teach(hats, "b", 2, made)
    assert torch.equal(hats.wear("a")(x), first)
    assert hats.verify().ok
    assert "2" in repr(hats.finished)


def test_a_loop_is_the_learners_step_by_step() -> None:
    """Plain SGD on the same batches: the loop's weights are those that the rule gives when it is written out."""
    hats = Hats(net(), HAT(s_max=3.0, c=0.5, lr=0.1))
    hats.begin("a", Classification(3), steps=STEPS)
    optimizer = hats.guard(SGD(hats.trainable(), lr=0.1))
    weights = [p.detach().double().clone() for p in hats.net.parameters()]
    head = [p.detach().double().clone() for p in hats.heads[0].parameters()]
    embedding = hats.embedding.detach().double().clone()
    for b, (x, y) in enumerate(batches(1)):
        optimizer.zero_grad()
        (cross_entropy(hats(x), y) + hats.penalty()).backward()
        optimizer.step()
        moving = [t.requires_grad_() for t in (*weights, *head, embedding)]
        s = 1 / 3 + (3 - 1 / 3) * b / (STEPS - 1)
        a = torch.sigmoid(s * embedding)
        h = torch.relu(x.double() @ weights[0].T + weights[1]) * a[:40]
        h = torch.relu(h @ weights[2].T + weights[3]) * a[40:]
        loss = cross_entropy(h @ head[0].T + head[1], y) + 0.5 * a.mean()
        gradients = list(torch.autograd.grad(loss, moving))
        e = embedding.detach()
        gradients[-1] = gradients[-1] * 3 * (torch.cosh((s * e).clamp(-50, 50)) + 1) / (s * (torch.cosh(e) + 1))
        *weights, head0, head1, embedding = (t.detach() - 0.1 * g for t, g in zip(moving, gradients, strict=True))
        head, embedding = [head0, head1], embedding.clamp(-6, 6)
    for mine, theirs in zip(hats.net.parameters(), weights, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(hats.embedding.double(), embedding, rtol=1e-3, atol=1e-4)


def crossed(made: Callable[[Any], Optimizer]) -> float:
    """Return the share of gates that change sides in four epochs."""
    hats = Hats(net(), HAT(s_max=50.0, lr=0.5))
    hats.begin("a", Classification(3), steps=STEPS)
    before = hats.embedding.detach() > 0
    optimizer = hats.guard(made(hats.trainable()))
    for x, y in batches(1, 4):
        optimizer.zero_grad()
        (cross_entropy(hats(x), y) + hats.penalty()).backward()
        optimizer.step()
    return float(((hats.embedding.detach() > 0) != before).float().mean())


def test_gates_move_by_a_rule_of_their_own_unless_they_get_a_group() -> None:
    """AdamW, RMSprop and SGD of other rates move them as far as the method's SGD does; a group of theirs counts."""
    usual = crossed(lambda p: SGD(p, lr=0.05))
    assert usual > 0.05
    for made in (
        lambda p: AdamW(p, lr=1e-3),
        lambda p: RMSprop(p, lr=1e-4),
        lambda p: SGD(p, lr=1e-3, momentum=0.9),
    ):
        assert crossed(made) == pytest.approx(usual, rel=0.5)
    others = ("net", "heads", "norms")
    rest = lambda p: {"params": [t for name in others for t in p[name]]}  # noqa: E731
    assert crossed(lambda p: AdamW([rest(p), {"params": p["gates"], "lr": 0.0}], lr=1e-3)) == 0
    assert crossed(lambda p: AdamW([rest(p), {"params": p["gates"], "lr": 0.5}], lr=1e-3)) > usual


def test_gates_follow_the_rate_of_the_weights() -> None:
    moved = []
    for share in (1.0, 0.0):
        hats = Hats(net(), HAT(s_max=50.0))
        hats.begin("a", Classification(3), steps=STEPS)
        began = hats.embedding.detach().clone()
        optimizer = hats.guard(AdamW(hats.trainable(), lr=1e-3))
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _, share=share: share)
        for x, y in batches(1):
            optimizer.zero_grad()
            (cross_entropy(hats(x), y) + hats.penalty()).backward()
            optimizer.step()
        moved.append(float((hats.embedding.detach() - began).abs().max()))
    assert moved[0] > 0.01
    assert moved[1] == 0


def test_accumulation_clipping_closures_and_a_scheduler_break_nothing() -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    teach(hats, "a", 1)
    x = torch.randn(20, 12, generator=torch.Generator().manual_seed(9))
    first = hats.wear("a")(x)
    hats.begin("b", Classification(3), steps=STEPS // 2)
    optimizer = hats.guard(AdamW(hats.trainable(), lr=0.02, weight_decay=0.5))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20)
    for number, (x_, y) in enumerate(batches(2, 2)):

        def closure(x_: Tensor = x_, y: Tensor = y) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                loss = cross_entropy(hats(x_), y) + hats.penalty()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(hats.parameters(), 0.1)
            return loss

        if number % 2:
            optimizer.step(closure)
            scheduler.step()
            optimizer.zero_grad()
        else:
            closure()
    hats.end()
    assert torch.equal(hats.wear("a")(x), first)
    assert hats.verify().ok


def test_what_an_unguarded_optimiser_moves_comes_back() -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    teach(hats, "a", 1)
    hats.begin("b", Classification(3), steps=STEPS)
    guarded = hats.guard(AdamW(hats.trainable()))
    other = SGD(hats.net.parameters(), lr=0.05)
    for x, y in batches(2):
        guarded.zero_grad()
        cross_entropy(hats(x), y).backward()
        guarded.step()
        other.step()
    hats.end()
    assert hats.verify().ok


def test_a_task_that_diverged_cannot_end() -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    teach(hats, "a", 1)
    hats.begin("b", Classification(3), steps=STEPS)
    optimizer = hats.guard(SGD(hats.trainable(), lr=0.1))
    for x, y in batches(2):
        (cross_entropy(hats(x), y) * torch.nan).backward()
        optimizer.step()
    with pytest.raises(HatrackError, match=r"'b' has left numbers in .* not finite; give it up with abandon"):
        hats.end()
    assert hats.abandon().verify().ok


def test_a_head_that_is_not_finite_cannot_end() -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    hats.begin("a", Classification(3), steps=STEPS)
    optimizer = hats.guard(SGD(hats.trainable(), lr=0.1))
    for x, y in batches(1):
        (cross_entropy(hats(x), y) + hats.penalty()).backward()
        optimizer.step()
    hats.heads[0].weight.data[0, 0] = torch.nan
    with pytest.raises(HatrackError, match="'a' has left numbers in head/weight that are not finite"):
        hats.end()


def test_an_optimiser_of_an_ended_task_moves_nothing_more() -> None:
    hats = Hats(net())
    hats.begin("a", Classification(3), steps=STEPS)
    optimizer = hats.guard(AdamW(hats.trainable()))
    for x, y in batches(1):
        optimizer.zero_grad()
        cross_entropy(hats(x), y).backward()
        optimizer.step()
    hats.end()
    with pytest.raises(HatrackError, match="guarded for task 'a', which is over; guard a new one"):
        optimizer.step()
    assert hats.verify().ok


def test_what_is_saved_is_loaded_by_both(tmp_path: Path) -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    teach(hats, "a", 1)
    x = torch.randn(20, 12)
    answers = hats.wear("a")(x)
    hats.save(tmp_path / "saved")
    learner = hatrack.load(tmp_path / "saved", net())
    assert torch.equal(learner.predict(x, "a"), answers)
    xs, ys = zip(*batches(2), strict=True)
    learner.epochs = 1
    learner.learn(Task("b", (torch.cat(xs), torch.cat(ys))))
    assert learner.verify().ok
    again = Hats.load(tmp_path / "saved", net())
    teach(again, "b", 2)
    assert torch.equal(again.wear("a")(x), answers)
    assert again.verify().ok
    learner.save(tmp_path / "two")
    assert Hats.load(tmp_path / "two", net()).finished == 2


def test_a_task_given_up_leaves_nothing() -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    teach(hats, "a", 1)
    before = {name: tensor.clone() for name, tensor in hats.state_dict().items()}
    hats.begin("b", Classification(3), steps=STEPS)
    optimizer = hats.guard(AdamW(hats.trainable(), lr=0.1))
    for x, y in batches(2):
        cross_entropy(hats(x), y).backward()
        optimizer.step()
    hats.abandon()
    after = hats.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    teach(hats, "b", 2)
    assert hats.verify().ok


@pytest.mark.parametrize(
    "name", ["ewc", "si", "spg", "a-gem", "wsn", "supsup", "imm-mean", "ucl", "sgd", "fisher-mask"]
)
def test_other_methods_go_through_a_loop_of_ones_own(name: str) -> None:
    hats = Hats(net(), METHODS[name]())
    x = torch.randn(9, 12)
    for task in (1, 2):
        xs, ys = zip(*batches(task), strict=True)
        hats.begin(f"t{task}", Classification(3), steps=STEPS, data=(torch.cat(xs), torch.cat(ys)))
        optimizer = hats.guard(SGD(hats.trainable(), lr=0.01))
        for x_, y in batches(task, 2):
            optimizer.zero_grad()
            (cross_entropy(hats(x_), y) + hats.penalty()).backward()
            optimizer.step()
        hats.end()
        if task == 1:
            first = hats.wear(0)(x)
    assert hats.verify().ok == (torch.equal(hats.wear(0)(x), first))
    assert hats.verify().ok or not METHODS[name].guarantee


@pytest.mark.parametrize("name", ["packnet", "pathnet", "den", "cat", "joint", "replay-all", "replay", "lwf", "random"])
def test_methods_that_need_their_own_loop_refuse_by_name(name: str) -> None:
    with pytest.raises(HatrackError, match=f"^{name} needs a loop of its own .*Learner"):
        Hats(net(), METHODS[name]())


def test_a_method_that_looks_at_the_data_says_so() -> None:
    hats = Hats(net(), METHODS["ewc"]())
    hats.begin("a", Classification(3), steps=STEPS)
    optimizer = hats.guard(SGD(hats.trainable(), lr=0.01))
    for x, y in batches(1):
        cross_entropy(hats(x), y).backward()
        optimizer.step()
    with pytest.raises(HatrackError, match=r"ewc looks at the training samples .*data=\(x, y\)"):
        hats.end()


class Convolution(nn.Module):
    """Pictures of one size only: what a made input must find."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 6, 3), nn.Linear(6 * 13 * 13, 20)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.last(torch.max_pool2d(torch.relu(self.first(x)), 2).flatten(1)))


@pytest.mark.parametrize(
    ("made", "x"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU()), torch.rand(4, 1, 8, 8)),
        (Convolution, torch.rand(4, 1, 28, 28)),
        (
            lambda: nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
            torch.rand(4, 3, 50),
        ),
        (lambda: nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(128, 7)), torch.randint(0, 30, (4, 16))),
        (lambda: nn.Sequential(nn.Linear(12, 9), nn.ReLU()).double(), torch.rand(4, 12, dtype=torch.float64)),
    ],
)
def test_the_first_input_is_made_where_none_is_given(made: Any, x: Tensor) -> None:
    hats = Hats(made(), HAT(s_max=20.0))
    hats.begin("a", Classification(2), steps=2)
    optimizer = hats.guard(AdamW(hats.trainable()))
    for _ in range(2):
        (cross_entropy(hats(x), torch.tensor([0, 1, 0, 1])) + hats.penalty()).backward()
        optimizer.step()
    hats.end()
    assert hats.verify().ok


class Texts(nn.Module):
    """Mean embedding of the words that a mask lets through: two inputs, of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(30, 12), nn.Linear(12, 20)

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        mean = (self.words(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return {"states": self.words(ids), "pooled": torch.relu(self.layer(mean))}


def test_texts_of_several_lengths_with_a_mask(tmp_path: Path) -> None:
    hats = Hats(Texts(), HAT(s_max=20.0), features="pooled")
    random = torch.Generator().manual_seed(0)

    def batch(length: int) -> dict[str, Tensor]:
        ids = torch.randint(0, 30, (8, length), generator=random)
        return {"ids": ids, "mask": (torch.arange(length) < length - 1).float().expand(8, -1).clone()}

    for name in ("a", "b"):
        hats.begin(name, Classification(2), steps=4, example=batch(6))
        optimizer = hats.guard(AdamW(hats.trainable()))
        for length in (5, 7, 6, 9):
            optimizer.zero_grad()
            (cross_entropy(hats(**batch(length)), torch.arange(8) % 2) + hats.penalty()).backward()
            optimizer.step()
        hats.end()
    asked = batch(7)
    answers = hats.wear("a")(**asked)
    assert hats.verify().ok
    hats.save(tmp_path)
    assert torch.equal(Hats.load(tmp_path, Texts()).wear("a")(**asked), answers)


def test_regression_answers_in_the_unit_of_its_targets() -> None:
    hats = Hats(net(), HAT(s_max=20.0))
    hats.begin("far", Regression(mean=[100.0], std=[5.0]), steps=STEPS)
    optimizer = hats.guard(AdamW(hats.trainable(), lr=0.01))
    for x, _ in batches(1, 4):
        optimizer.zero_grad()
        (mse_loss(hats(x)[:, 0] / 5, (100 + 5 * x[:, 0]) / 5) + hats.penalty()).backward()
        optimizer.step()
    hats.end()
    x, _ = next(batches(3))
    assert bool(((hats.wear("far")(x) - 100).abs() < 60).all())


def test_refusals_are_one_line_and_change_nothing(tmp_path: Path) -> None:
    hats = Hats(net())
    with pytest.raises(HatrackError, match=r"no task is in progress; hats\.begin"):
        hats(torch.zeros(1, 12))
    with pytest.raises(HatrackError, match="no task is in progress"):
        hats.trainable()
    with pytest.raises(HatrackError, match=r"task 'a': target must be one of hatrack\.targets, got 10"):
        hats.begin("a", 10, steps=3)  # type: ignore[arg-type]
    with pytest.raises(HatrackError, match="steps must be a whole number, at least 1, got 0"):
        hats.begin("a", Classification(2), steps=0)
    with pytest.raises(HatrackError, match="task 'a'"):
        hats.begin("a", Classification(), steps=1)
    with pytest.raises(HatrackError, match="cannot take the inputs of task 'a'"):
        hats.begin("a", Classification(2), steps=1, example=torch.zeros(2, 5))
    with pytest.raises(HatrackError, match="units: axis=1 or -1"):
        hats.begin("a", Dense(3), steps=1)
    assert hats.finished == 0
    hats.begin("a", Classification(3), steps=STEPS)
    with pytest.raises(HatrackError, match="'a' is in progress; end"):
        hats.begin("b", Classification(3), steps=STEPS)
    with pytest.raises(HatrackError, match="in progress; end"):
        hats.save(tmp_path)
    with pytest.raises(HatrackError, match="lacks"):
        hats.guard(SGD(hats.trainable()[:1], lr=0.1))
    hats(torch.zeros(2, 12)).sum().backward()
    with pytest.raises(HatrackError, match="no step of a guarded optimiser"):
        hats.end()
    assert list(tmp_path.iterdir()) == []
    hats.abandon()
    teach(hats, "a", 1)
    with pytest.raises(HatrackError, match="learned already"):
        hats.begin("a", Classification(3), steps=STEPS)
    assert isinstance(hatrack.Learner, type)
    assert hats.verify().ok


def test_learner_and_hats_stand_on_one_core() -> None:
    assert isinstance(Hats(net())._core, Learner.__mro__[1])


def test_averages_of_the_whole_module_break_nothing() -> None:
    network = net()
    network[0].bias.requires_grad_(False).uniform_(-1, 1)
    hats = Hats(network, HAT(s_max=50.0))
    teach(hats, "a", 1)
    hats.begin("b", Classification(3), steps=STEPS)
    optimizer = hats.guard(AdamW(hats.trainable(), lr=0.01))
    average = {name: tensor.clone() for name, tensor in hats.state_dict().items()}
    for x, y in batches(2):
        optimizer.zero_grad()
        (cross_entropy(hats(x), y) + hats.penalty()).backward()
        optimizer.step()
        for name, tensor in hats.state_dict().items():  # rounds, also where nothing moves
            average[name].mul_(0.9).add_(tensor * 0.1)
    before = {name: tensor.clone() for name, tensor in hats.state_dict().items()}
    hats.load_state_dict(average)
    assert not torch.equal(before["heads.0.weight"], average["heads.0.weight"])
    hats.end()
    assert hats.verify().ok
    assert torch.equal(hats.state_dict()["heads.0.weight"], before["heads.0.weight"])
    assert torch.equal(hats.state_dict()["net.0.bias"], before["net.0.bias"])
    assert torch.equal(hats.state_dict()["heads.1.weight"], average["heads.1.weight"])


def test_what_is_changed_between_tasks_is_found_not_mended() -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    x = torch.randn(20, 12, generator=torch.Generator().manual_seed(9))
    teach(hats, "a", 1)
    teach(hats, "b", 2)
    lock = hats._core.method.lock
    assert lock is not None
    before = hats.wear("a")(x)
    with torch.no_grad():
        for kept in lock._kept:  # of "a"
            kept.parameter[kept.free == 0] += 0.1
    assert not torch.equal(hats(x), before)
    assert not hats.verify().ok


def test_gradients_of_the_task_before_are_not_added_to() -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    teach(hats, "a", 1)
    assert any(p.grad is not None for p in hats.net.parameters())
    hats.begin("b", Classification(3), steps=STEPS)
    assert all(p.grad is None for p in hats.parameters())


def test_wrong_calls_of_a_loop_are_one_line() -> None:
    hats = Hats(net(), HAT(s_max=50.0))
    with pytest.raises(HatrackError, match="task 'a', example: inputs must be numbers"):
        hats.begin("a", Classification(3), steps=STEPS, example="x")
    hats.begin("a", Classification(3), steps=STEPS)
    optimizer = hats.guard(SGD(hats.trainable(), lr=0.1))
    with pytest.raises(HatrackError, match="task 'a': this optimiser is guarded already"):
        hats.guard(optimizer)
    with pytest.raises(HatrackError, match=r"task 'a': the penalty is .* call hats\(x\) before"):
        hats.penalty()
    with pytest.raises(HatrackError, match=r"a batch is given as hats\(x\)"):
        hats()
    x, y = next(batches(1))
    hats(x)
    with pytest.raises(HatrackError, match=r"cannot take the inputs of task 'a' \(\(5,\)"):
        hats(torch.zeros(4, 5))
    cross_entropy(hats.eval()(x), y).backward()
    with pytest.raises(HatrackError, match=r"task 'a': .* leave out all gates; .* hats\.train\(\)"):
        optimizer.step()
