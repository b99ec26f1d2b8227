"""Dropout by random words: the distribution, its independence, its gradient, and that it comes again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hatrack
from hatrack import Learner, Task
from hatrack.learn.machine.cpu import dropout
from hatrack.learn.machine.cpu.mode import FastOnCpu

MANY = 400_000
SIGMAS = 5


def dropped(x: Tensor, p: float, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    with FastOnCpu():
        return F.dropout(x, p)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.2, 0.37, 0.5, 0.9, 0.9997])
def test_it_keeps_the_share_that_was_asked_for_and_the_mean(p: float, dtype: torch.dtype) -> None:
    y = dropped(torch.ones(MANY, dtype=dtype), p)
    keep = 1 - p
    spread = sqrt(p * keep / MANY)
    assert float((y != 0).double().mean()) == pytest.approx(keep, abs=1e-3 + SIGMAS * spread)
    rounding = float(torch.finfo(dtype).eps) if dtype == torch.bfloat16 else 0
    assert float(y.double().mean()) == pytest.approx(1, abs=SIGMAS * spread / keep + rounding)
    values = y.unique()
    assert len(values) == 2
    assert values[0] == 0
    if dtype != torch.bfloat16:  # what is kept is divided by the share that is kept indeed, a multiple of 2^-16
        share = 2**16 / float(values[1].double())
        assert share == pytest.approx(round(share), abs=0.01)


def test_its_variance_is_that_of_bernoulli_numbers() -> None:
    for p in (0.2, 0.5, 0.9):
        y = dropped(torch.ones(MANY, dtype=torch.float64), p)
        assert float(y.var()) == pytest.approx(p / (1 - p), rel=0.02)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.7])
def test_positions_batches_and_layers_are_independent(p: float) -> None:
    """Correlations between neighbours at several distances, channels, samples, calls: all within chance."""
    torch.manual_seed(1)
    with FastOnCpu():
        first, second = (F.dropout(torch.ones(64, 32, 14, 14), p).flatten() for _ in range(2))
    pairs = [(first[:-lag], first[lag:]) for lag in (1, 2, 4, 7, 8, 14, 196, 32 * 196)]
    for a, b in [*pairs, (first, second)]:
        r = float(torch.corrcoef(torch.stack([a, b]))[0, 1])
        assert abs(r) < SIGMAS / sqrt(len(a))


def test_pairs_of_neighbours_come_as_often_as_chance_has_them() -> None:
    """A dependence that a correlation does not see: counts of all 16 patterns of 4 neighbours, by chi-square."""
    kept = (dropped(torch.ones(4 * 100_000), 0.5) != 0).view(-1, 4).long()
    counts = torch.bincount(kept @ torch.tensor([8, 4, 2, 1]), minlength=16).double()
    expected = len(kept) / 16
    assert float(((counts - expected) ** 2 / expected).sum()) < 44.3  # 99.99 % of chi-square with 15 degrees of freedom


def test_its_gradient_is_that_of_the_mask() -> None:
    x = torch.randn(30, 40, requires_grad=True)
    y = dropped(x, 0.3)
    g = torch.randn(30, 40)
    y.backward(g)
    factors = (y / x).detach()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, g * factors)
    assert 0 < float((factors == 0).float().mean()) < 1


def test_it_writes_in_place_where_that_is_asked_for() -> None:
    x = torch.ones(1000)
    torch.manual_seed(0)
    with FastOnCpu():
        y = F.dropout(x, 0.5, inplace=True)
        z = torch.dropout_(torch.ones(1000), 0.5, True)
    assert y is x
    assert 300 < int((x == 0).sum()) < 700
    assert 300 < int((z == 0).sum()) < 700


def test_the_layout_of_memory_stays() -> None:
    x = torch.randn(4, 6, 5, 5).to(memory_format=torch.channels_last)
    y = dropped(x, 0.5)
    assert y.stride() == x.stride()
    cut = torch.randn(10, 20)[:, ::2]  # with holes
    assert set((dropped(cut, 0.5) / cut).flatten().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_and_all_are_what_torch_makes_of_them(p: float) -> None:
    x = torch.randn(50)
    assert torch.equal(dropped(x, p), F.dropout(x, p))


def test_it_is_silent_in_evaluation_and_says_what_torch_says() -> None:
    x = torch.randn(50)
    with FastOnCpu():
        assert torch.equal(F.dropout(x, 0.5, training=False), x)
        assert torch.equal(torch.dropout(x, 0.5, False), x)
        with pytest.raises(ValueError, match="between 0 and 1"):
            F.dropout(x, 1.5)


class Attentive(nn.Module):
    """Dropout in attention weights, in a feed-forward part and between recurrent layers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True)
        self.recurrent = nn.GRU(8, 6, 2, dropout=0.4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.recurrent(self.attention(x))[0][:, -1]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        lambda x: nn.MultiheadAttention(8, 2, dropout=0.5)(x, x, x)[0],
        lambda x: nn.MultiheadAttention(8, 2, dropout=0.5)(x, x, x, need_weights=False)[0],
        lambda x: nn.LSTM(8, 4, 2, dropout=0.5)(x)[0],
        lambda x: nn.GRU(8, 4, 2, dropout=0.5)(x)[0],
        lambda x: nn.RNN(8, 4, 2, dropout=0.5)(x)[0],
        lambda x: nn.AlphaDropout(0.5)(x),
        lambda x: nn.FeatureAlphaDropout(0.5)(x),
        lambda x: nn.Dropout1d(0.5)(x),
        lambda x: nn.Dropout2d(0.5)(x[None]),
        lambda x: nn.Dropout3d(0.5)(x[None, None]),
    ],
)
def test_whatever_draws_deeper_inside_takes_random_words_too(
    call: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    real = dropout._kept

    def noted(like: Tensor, keep: float, coarse: bool) -> tuple[Tensor, float]:
        drawn.append(like.numel())
        return real(like, keep, coarse)

    monkeypatch.setattr(dropout, "_kept", noted)
    with FastOnCpu():
        call(torch.randn(5, 6, 8))
    assert drawn


def test_attention_drops_its_weights_evenly() -> None:
    """Values that are one-hot show the weights: each is 0 with p, else its softmax over 1 − p."""
    torch.manual_seed(0)
    q, p = torch.randn(40, 4, 50, 16), 0.3
    clean = F.scaled_dot_product_attention(q, q, torch.eye(50).expand(40, 4, 50, 50))
    with FastOnCpu():
        weights = F.scaled_dot_product_attention(q, q, torch.eye(50).expand(40, 4, 50, 50), dropout_p=p)
    ratio = weights / clean
    zeros = ratio == 0
    assert float(zeros.float().mean()) == pytest.approx(p, abs=SIGMAS * sqrt(p * (1 - p) / ratio.numel()))
    torch.testing.assert_close(ratio[~zeros], torch.full_like(ratio[~zeros], 1 / (1 - p)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_block_that_is_computed_anew_in_the_backward_pass_gets_the_same_masks(reentrant: bool) -> None:
    """What gets through the last mask must be what the gradient goes through: g = 2y·m/q at the last layer's bias."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 20), nn.Dropout(0.2))
    x = torch.randn(1, 20, requires_grad=True)
    with FastOnCpu():
        y = checkpoint(net, x, use_reentrant=reentrant)
        y.square().sum().backward()
    kept = y.detach() != 0
    assert 0 < int(kept.sum()) < 20
    torch.testing.assert_close(net[1].bias.grad, (2 * y.detach() * kept / 0.8)[0])


def test_functorch_and_tensors_of_others_are_left_to_torch() -> None:
    x = torch.ones(6, 100)
    with FastOnCpu():
        many = torch.vmap(lambda row: F.dropout(row, 0.5), randomness="different")(x)
    assert set(many.flatten().tolist()) == {0.0, 2.0}


def some_task(name: str = "a") -> Task:
    x = torch.randn(96, 4, 8, generator=torch.Generator().manual_seed(0))
    y = (x[:, :, 0].sum(1) > 0).long()
    return Task(name, train=(x, y), valid=(x, y), test=(x, y))


@pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
def test_a_learner_draws_so_while_it_trains_and_leaves_torch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, ...]] = []
    real = dropout._kept

    def noted(like: Tensor, keep: float, coarse: bool) -> tuple[Tensor, float]:
        drawn.append(tuple(like.shape))
        return real(like, keep, coarse)

    monkeypatch.setattr(dropout, "_kept", noted)
    torch.manual_seed(0)
    learner = Learner(Attentive(), hatrack.methods.METHODS["sgd"](), epochs=1, batch_size=32, device="cpu")
    functions = F.dropout, torch.dropout, torch.bernoulli, nn.Dropout.forward
    state = torch.get_rng_state()
    learner.learn(some_task())
    assert drawn.count((32, 4, 16)) == 3  # the feed-forward part's, once a step
    assert drawn.count((32, 2, 4, 4)) + drawn.count((64, 4, 4)) == 3  # attention weights
    assert functions == (F.dropout, torch.dropout, torch.bernoulli, nn.Dropout.forward)
    assert torch.equal(torch.get_rng_state(), state)
    drawn.clear()
    learner.model.net.train()(torch.randn(3, 4, 8))  # outside
    assert drawn == []


@pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
def test_what_is_drawn_depends_on_seed_task_and_epoch_and_on_nothing_before(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def made() -> Learner:
        torch.manual_seed(0)
        return Learner(Attentive(), epochs=3, batch_size=32, seed=4, device="cpu")

    whole = made()
    whole.learn(some_task())
    folder = tmp_path_factory.mktemp("stopped")
    stopped = made()

    class Stop(BaseException):
        pass

    def after_two(epoch: hatrack.learn.fit.Epoch) -> None:
        if epoch.epoch == 2:
            stopped.save(folder)
            raise Stop

    with pytest.raises(Stop):
        stopped.learn(some_task(), after_two)
    torch.manual_seed(99)
    resumed = hatrack.load(folder, Attentive(), device="cpu")
    resumed.learn(some_task())
    for name, tensor in whole.model.net.state_dict().items():
        assert torch.equal(tensor, resumed.model.net.state_dict()[name]), name


def test_with_it_a_network_learns_what_it_learns_with_torch_s() -> None:
    """Two ways of drawing the same distribution: mean gradients over many draws agree within chance."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 1))
    x = torch.randn(16, 10)
    found = []
    for way in (FastOnCpu(), nullcontext()):
        torch.manual_seed(1)
        draws = []
        for _ in range(400):
            net.zero_grad()
            with way:
                net(x).square().mean().backward()
            draws.append(net[0].weight.grad.clone())
        found.append(torch.stack(draws))
    (a, b), n = found, 400
    errors = (a.mean(0) - b.mean(0)) / torch.sqrt((a.var(0) + b.var(0)) / n + 1e-12)
    assert float(errors.square().mean()) < 1.5
