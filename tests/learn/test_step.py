"""The step: clipping against numpy, and that a step asks the device for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from hatrack import HAT, HatrackError
from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.samples import Split
from hatrack.learn.step import Clip, OptimizerFactory, Stepper, build, clip, clip_traced, plain
from hatrack.masks.lock import Lock
from hatrack.methods.base import Method
from hatrack.nets.model import Model
from hatrack.targets import Classification


@pytest.mark.parametrize("clip", [clip, clip_traced])
@pytest.mark.parametrize("limit", [0.5, 1e4])
def test_clip_scales_the_common_norm(clip: Clip, limit: float) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, 4)), rng.normal(size=5)]
    norm = np.sqrt(sum((a**2).sum() for a in arrays))
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    clip(tensors, limit)
    scale = min(1.0, limit / norm)
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_allclose(tensor.numpy(), array * scale, rtol=1e-5)


@pytest.mark.parametrize("clip", [clip, clip_traced])
def test_a_norm_that_is_not_finite_scales_nothing(clip: Clip) -> None:
    gradient = torch.tensor([float("nan"), 0.0, 3.0])
    clip([gradient], 1.0)
    assert torch.equal(gradient[1:], torch.tensor([0.0, 3.0]))


def test_plain_sgd_is_told_from_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    p = torch.nn.Parameter(torch.zeros(2))
    assert plain(torch.optim.SGD([p], lr=0.1, fused=True))
    for options in ({"momentum": 0.9}, {"weight_decay": 0.1}, {"maximize": True}):
        assert not plain(torch.optim.SGD([p], lr=0.1, **options))  # type: ignore[arg-type]
    assert not plain(torch.optim.Adam([p]))
    two = [{"params": [p], "lr": 0.1}, {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.2}]
    assert not plain(torch.optim.SGD(two))
    watched = torch.optim.SGD([p], lr=0.1)
    watched.register_step_post_hook(lambda *_: None)
    assert not plain(watched)
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self, closure=None: None)
    assert not plain(torch.optim.SGD([p], lr=0.1))


def begun() -> Method:
    """HAT in its first task, which trains a layer, a head and an embedding."""
    model = Model(torch.nn.Linear(4, 3), torch.device("cpu"))
    model.meet(torch.zeros(1, 4))
    method = HAT()
    method.attach(model)
    model.add_task(Classification(2), torch.Generator())
    x, y = torch.zeros(6, 4), torch.arange(6) % 2
    method.begin_task(
        0, Feed([Part(0, Split(x, y), Inputs(), Classification(2))], torch.device("cpu")), torch.Generator()
    )
    return method


def test_parameters_may_come_in_groups() -> None:
    groups = build(begun(), lambda p: torch.optim.SGD([{"params": p[:3]}, {"params": p[3:], "lr": 1.0}])).param_groups
    assert [len(group["params"]) for group in groups] == [3, 1]  # the embedding has a rule of its own


class Twice(torch.optim.SGD):
    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__(parameters)
        self.param_groups.append(dict(self.param_groups[0]))  # which torch itself would refuse


def test_an_optimiser_over_other_parameters_than_it_was_given_is_refused() -> None:
    method = begun()
    net, other = method.model.net, torch.nn.Parameter(torch.zeros(2))
    factories: list[tuple[OptimizerFactory, str]] = [
        (lambda _: torch.optim.Adam(net.parameters()), "Adam lacks head/weight"),
        (lambda p: torch.optim.SGD(p[:-1]), "SGD lacks head/bias"),
        (lambda p: torch.optim.SGD([*p["gates"], *p["net"]]), "SGD lacks head/weight"),
        (lambda p: torch.optim.SGD([*p, other]), "SGD holds 1 that it was not given"),
        (lambda p: Twice(p), "Twice holds some of them twice"),
    ]
    for factory, says in factories:
        with pytest.raises(HatrackError, match=f"must hold exactly the parameters .* {says}"):
            build(method, factory)


def test_an_optimiser_without_a_learning_rate_is_refused() -> None:
    with pytest.raises(HatrackError, match="Optimizer has parameters without a learning rate"):
        build(begun(), lambda p: torch.optim.Optimizer(p, {}))


def test_a_learning_rate_in_a_tensor_falls_once_and_stays_the_callers() -> None:
    method, given = begun(), torch.tensor(0.3)

    def two_groups(parameters: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
        groups = [{"params": list(parameters)[:1]}, {"params": list(parameters)[1:]}]
        return torch.optim.Adam(groups, lr=given)

    stepper = Stepper(method, build(method, two_groups))
    stepper.set_lr(1 / 3)
    assert [float(group["lr"]) for group in stepper.optimizer.param_groups] == pytest.approx([0.1, 0.1])
    assert float(given) == pytest.approx(0.3)


def test_what_is_locked_as_a_whole_costs_no_product_and_changes_nothing() -> None:
    found = []
    for whole in (True, False):
        torch.manual_seed(0)
        method = begun()
        net = method.model.net
        amounts = {"weight": torch.ones(3, 4)}
        method.lock = Lock(dict(net.named_parameters()), amounts)
        if not whole:
            method.lock.whole.clear()
        stepper = Stepper(method, build(method, None))
        before = net.weight.detach().clone()
        x, y = torch.randn(16, 4), torch.arange(16) % 2
        feed = Feed([Part(0, Split(x, y), Inputs(), Classification(2))], torch.device("cpu"))
        stepper.begin_epoch(feed, 8)
        for batch in feed.batches(8):
            stepper.step(batch)
        assert (net.weight.grad is None) is whole
        assert net.weight.requires_grad
        assert torch.equal(net.weight, before)
        found.append({name: tensor.detach().clone() for name, tensor in method.trainable().items()})
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())
    assert not torch.equal(found[0]["net/bias"], torch.zeros(3))
