"""DEN: selection, expansion, split and the shrinking steps, each by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch
from small import next_task, random_task, same_bits, scramble, small_mlp, start
from torch import nn

from hatrack import HatrackError, Learner
from hatrack.data.feed import Batch
from hatrack.methods.den import DEN, EXPAND, RETRAIN, SELECT, SPLIT, copy_units, shrink, shrink_rows

FEED = tiny.feed(*tiny.samples(3), task=1)


def second_task(widths: tuple[int, ...] = (6, 5), net: nn.Module | None = None, **settings: float) -> DEN:
    """A method in its second task, whose first left random weights behind."""
    method = DEN(**{"start": 0.5, "grow": 1, **settings})
    start(method, net or small_mlp(widths))
    feed = next_task(method)
    method.begin_phase(0)
    method.end_task(feed)
    next_task(method)
    method.begin_phase(SELECT)
    return method


def test_a_share_of_every_layer_is_open_at_the_start() -> None:
    method = second_task()
    assert method.open.int().tolist() == [1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0]
    x = torch.randn(4, 6, dtype=torch.float64)
    net, head = method.model.net, method.model.heads[0]
    h = torch.relu(x @ net.fc1.weight[:3].T + net.fc1.bias[:3])
    h = torch.relu(h @ net.fc2.weight[:3, :3].T + net.fc2.bias[:3])
    torch.testing.assert_close(method.predict(x, 0), h @ head.weight[:, :3].T + head.bias)


def test_selection_follows_weights_that_are_not_zero_back_from_the_head() -> None:
    method = second_task((8, 8), start=1.0)
    net, head = method.model.net, method.model.heads[1]
    rng = np.random.default_rng(0)
    with torch.no_grad():
        head.weight.mul_(torch.from_numpy(rng.random(head.weight.shape) < 0.15))
        net.fc2.weight.mul_(torch.from_numpy(rng.random((8, 8)) < 0.2))
    top = [i for i in range(8) if any(head.weight.detach()[c, i] != 0 for c in range(3))]
    low = [j for j in range(8) if any(net.fc2.weight.detach()[i, j] != 0 for i in top)]
    assert 0 < len(top) < 8
    assert 0 < len(low) < 8
    method.end_phase(SELECT, None, None)
    assert method.selected.nonzero().flatten().tolist() == low + [8 + i for i in top]
    method.begin_phase(RETRAIN)
    method.begin_epoch()
    for i in range(8):
        for j in range(8):
            assert method.allowed["fc2.weight"][i, j] == (i in top and j in low)
        assert (method.allowed["fc1.weight"][i] == (i in low)).all()


def test_only_the_head_is_trained_while_selecting() -> None:
    assert set(second_task().trainable()) == {"head/weight", "head/bias"}


def step(method: DEN, feed_seed: int = 0) -> None:
    """One step by hand, as the learner makes it."""
    generator = torch.Generator().manual_seed(feed_seed)
    x, y = torch.randn(12, 6, generator=generator, dtype=torch.float64), torch.arange(12) % 3
    optimizer = method.optimizer(list(method.trainable().values()))
    method.begin_epoch()
    method.loss(Batch(x, y)).backward()
    method.after_backward()
    optimizer.step()
    method.after_step()


def test_an_expansion_opens_units_and_trains_nothing_else() -> None:
    method = second_task(threshold=0.0, grow=2)
    method.begin_phase(RETRAIN)
    method.end_phase(RETRAIN, FEED, None)
    assert method.born.int().tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    before = {n: p.detach().clone() for n, p in method.shared().items()}
    method.begin_phase(EXPAND)
    step(method)
    moved = method.model.net.fc2.weight.detach() != before["fc2.weight"]
    new_low, new_top, open_low = {3, 4}, {3, 4}, {0, 1, 2, 3, 4}
    for i in range(5):
        for j in range(6):
            assert bool(moved[i, j]) == (j in open_low and (i in new_top or j in new_low)), (i, j)


def test_nothing_is_opened_when_the_loss_is_low_enough() -> None:
    method = second_task(threshold=1e9)
    method.begin_phase(RETRAIN)
    method.end_phase(RETRAIN, FEED, None)
    assert not method.born.any()
    method.begin_phase(EXPAND)
    assert method.optimizer(list(method.trainable().values())).param_groups[0]["lr"] == 0.0  # over before it begins


def test_new_units_that_end_up_empty_are_given_back() -> None:
    method = second_task(threshold=0.0, grow=2, drift=1e9)
    method.begin_phase(RETRAIN)
    method.end_phase(RETRAIN, FEED, None)
    method.begin_phase(EXPAND)
    fc1 = method.model.net.fc1
    with torch.no_grad():
        fc1.weight[3] = 0.0
        fc1.weight[4] += 1.0
    method.end_phase(EXPAND, None, None)
    assert method.open[:6].int().tolist() == [1, 1, 1, 0, 1, 0]
    assert torch.equal(fc1.weight[3], method.model.initial["fc1.weight"][3])
    assert not torch.equal(fc1.weight[4], method.model.initial["fc1.weight"][4])


def test_units_that_drift_are_doubled_and_go_back() -> None:
    method = second_task(grow=1, drift=0.5)
    net, x = method.model.net, torch.randn(9, 6, dtype=torch.float64)
    old_logits = method.predict(x, 0).detach().clone()
    method.begin_phase(RETRAIN)
    with torch.no_grad():
        net.fc1.weight[0] += 0.3  # moves by 0.73: split if there is room for one more
        net.fc1.weight[1] += 0.5  # moves by 1.2: this one first
        net.fc1.weight[2] += 0.1  # moves by 0.24: stays
        net.fc1.bias[1] += 1.0
        net.fc2.weight[0, 1] += 0.4  # too little to split a unit of the second layer
    scramble({"head": method.model.heads[1].weight})
    new_logits = method.predict(x, 1).detach().clone()
    moved = net.fc1.weight.detach().clone()
    method.begin_phase(EXPAND)
    method.end_phase(EXPAND, None, None)
    assert method.away.nonzero().flatten().tolist() == [1]
    assert method.open.int().tolist() == [1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0]
    assert torch.equal(net.fc1.weight[3], moved[1])  # the copy keeps what the unit has become
    assert torch.equal(net.fc1.weight[1], method.anchors["fc1.weight"][1])
    assert torch.equal(net.fc1.bias[1], method.anchors["fc1.bias"][1])
    assert torch.equal(net.fc1.weight[0], moved[0])  # no room left
    torch.testing.assert_close(method.predict(x, 1), new_logits, rtol=1e-10, atol=1e-12)
    with torch.no_grad():  # without the units that stay drifted, the first task answers as before
        net.fc1.weight[0] = method.anchors["fc1.weight"][0]
        net.fc1.weight[2] = method.anchors["fc1.weight"][2]
    torch.testing.assert_close(method.predict(x, 0), old_logits, rtol=1e-10, atol=1e-12)
    method.begin_phase(SPLIT)
    assert method.optimizer(list(method.trainable().values())).param_groups[0]["lr"] == method.lr


def test_the_loss_holds_old_weights_and_shrinks_trained_ones() -> None:
    method = second_task()
    method.begin_phase(RETRAIN)
    method.begin_epoch()
    net, x, y = method.model.net, torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3
    with torch.no_grad():
        net.fc1.weight += 0.1
        net.fc2.bias -= 0.2
    plain = nn.functional.cross_entropy(method.predict(x, 1), y)
    trained = (net.fc1.weight[:3], net.fc1.bias[:3], net.fc2.weight[:3, :3], net.fc2.bias[:3])
    squares = sum(part.square().sum() for part in trained)
    moves = 3 * 6 * 0.1**2 + 3 * 0.2**2
    expected = float((plain + 1e-4 / 2 * squares).detach()) + 0.5 / 2 * moves
    assert float(method.loss(Batch(x, y)).detach()) == pytest.approx(expected, rel=1e-6)


def test_shrinking_steps_equal_numpy() -> None:
    w = torch.randn(4, 3, 2, 2, dtype=torch.float64)
    before, marks = w.numpy().copy(), (torch.rand(4, 3, 2, 2) < 0.7).double()
    amount = torch.full_like(w, 0.3) * marks
    shrink([w], [amount])
    expected = np.sign(before) * np.maximum(np.abs(before) - amount.numpy(), 0)
    np.testing.assert_allclose(w.numpy(), expected)
    before = w.numpy().copy()
    shrink_rows(w, marks, 1.5)
    for i in range(4):
        norm = np.sqrt((before[i] ** 2 * marks[i].numpy()).sum())
        factor = max(1 - 1.5 / norm, 0) if norm > 0 else 0
        np.testing.assert_allclose(w[i].numpy(), np.where(marks[i].numpy() > 0, before[i] * factor, before[i]))


def test_units_are_copied_along_the_axis_they_number() -> None:
    index = torch.tensor([[2, 2, 0, 0, 1, 1]])  # a linear layer behind a flatten: each unit has two columns
    w = torch.arange(12.0).view(2, 6)
    copy_units(w, index, torch.tensor([0, 2, 2]))  # unit 1 becomes a copy of unit 2
    assert w.tolist() == [[0, 1, 2, 3, 0, 1], [6, 7, 8, 9, 6, 7]]


def test_grouped_convolutions_are_refused() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1, groups=2), nn.ReLU(), nn.Flatten())
    learner = Learner(net, DEN(), epochs=1)
    with pytest.raises(HatrackError, match="grouped convolution"):
        learner.learn(random_task("t", 0, (1, 3, 3)))


def test_closed_units_are_as_they_were_handed_over() -> None:
    torch.manual_seed(0)
    net = small_mlp((20, 20)).float()
    learner = Learner(net, DEN(start=0.4, grow=2), epochs=3, batch_size=8)
    initial = {n: p.detach().clone() for n, p in net.named_parameters()}
    for i in range(3):
        learner.learn(random_task(f"t{i}", i))
    method = learner.method
    assert 16 < int(method.opened.sum()) < 40
    closed = (~method.opened).nonzero().flatten()
    low = closed[closed < 20]
    assert same_bits(net.fc1.weight[low], initial["fc1.weight"][low])
    masks = learner.masks()
    assert set(masks) == {f"{t}/fc{i}" for t in range(3) for i in (1, 2)}
