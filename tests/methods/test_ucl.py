"""UCL's uncertainties, strengths and regulariser against numpy loops, float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import next_task, random_task, scramble, start
from torch import nn

from hatrack import HatrackError, Learner
from hatrack.data.feed import Batch
from hatrack.methods.ucl import UCL
from hatrack.nets import build


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def second_task(net: nn.Module | None = None, shape: tuple[int, ...] = (6,)) -> UCL:
    """A method in its second task; anchors, uncertainties and current values are all random."""
    method = UCL(beta=0.7, ratio=0.5, alpha=0.2)
    start(method, net, shape)
    feed = next_task(method, shape=shape)
    scramble({f"rho/{n}": r for n, r in method.rho.items()}, 1)
    method.end_task(feed)
    next_task(method, shape=shape)
    scramble({**method.gaussian, **method.plain}, 2)
    scramble({f"rho/{n}": r for n, r in method.rho.items()}, 3)
    return method


def test_uncertainties_start_at_a_share_of_the_variance_of_the_weights() -> None:
    method = UCL(ratio=0.125)
    start(method)
    assert {n: tuple(r.shape) for n, r in method.rho.items()} == {"fc1.weight": (5, 1), "fc2.weight": (4, 1)}
    for name, fan in (("fc1.weight", 6), ("fc2.weight", 5)):
        sigma = softplus(method.rho[name].detach().numpy())
        np.testing.assert_allclose(sigma, np.sqrt(0.125 * 2 / fan), rtol=1e-12)
    conv = UCL(ratio=0.5)
    start(conv, nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten()).double(), (2, 4, 4))
    np.testing.assert_allclose(softplus(conv.rho["0.weight"].detach().numpy()), np.sqrt(0.5 * 2 / 27), rtol=1e-12)
    assert conv.rho["0.weight"].shape == (3, 1, 1, 1)


def test_the_regulariser_of_a_later_task_equals_loops() -> None:
    method = second_task()
    old = {n: t.detach().numpy() for n, t in method.anchors.items()}
    now = {n: p.detach().numpy() for n, p in {**method.gaussian, **method.plain}.items()}
    rho = {n: r.detach().numpy() for n, r in method.rho.items()}
    total, below = 0.0, np.zeros(6)
    for layer, fan in (("fc1", 6), ("fc2", 5)):
        first = np.sqrt(0.5 * 2 / fan)
        was, is_ = softplus(old[f"rho/{layer}.weight"])[:, 0], softplus(rho[f"{layer}.weight"])[:, 0]
        for i in range(len(was)):
            for j in range(fan):
                moved = now[f"{layer}.weight"][i, j] - old[f"{layer}.weight"][i, j]
                total += 0.5 * (max(first / was[i], below[j]) * moved) ** 2
                total += (first * old[f"{layer}.weight"][i, j] / was[i]) ** 2 * abs(moved)
            moved = now[f"{layer}.bias"][i] - old[f"{layer}.bias"][i]
            total += 0.5 * (first / was[i] * moved) ** 2
            total += (first * old[f"{layer}.bias"][i] / was[i]) ** 2 * abs(moved)
            ratio = is_[i] ** 2 / was[i] ** 2
            total += 0.7 / 2 * (ratio - np.log(ratio) + is_[i] ** 2 - np.log(is_[i] ** 2))
        below = first / was
    assert float(method.regulariser().detach()) == pytest.approx(total, rel=1e-6)


def test_the_first_task_is_pulled_to_its_starting_weights_by_alpha() -> None:
    method = UCL(beta=0.0, alpha=0.2)
    model = start(method)
    next_task(method)
    initial = {n: p.detach().clone() for n, p in model.parameters().items()}
    scramble({**method.gaussian, **method.plain}, 2)
    squares = sum(((p.detach() - initial[n]) ** 2).sum() for n, p in model.parameters().items())
    assert float(method.regulariser().detach()) == pytest.approx(0.1 * float(squares), rel=1e-6)  # strengths are 1


def test_strengths_pass_from_filters_to_the_linear_layer_behind_a_flatten() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).double()
    method = second_task(net, (1, 4, 4))
    filters = np.sqrt(0.5 * 2 / 18) / softplus(method.anchors["rho/0.weight"].numpy()).reshape(-1)
    nodes = np.sqrt(0.5 * 2 / 8) / softplus(method.anchors["rho/3.weight"].numpy()).reshape(-1)
    expected = np.maximum(nodes[:, None], np.repeat(filters, 4)[None, :])
    np.testing.assert_allclose(method.strength["3.weight"].numpy(), expected, rtol=1e-6)


def test_training_draws_weights_and_evaluation_uses_the_means() -> None:
    method = second_task()
    torch.manual_seed(0)
    drawn = method.sampled()
    torch.manual_seed(0)
    for name, mu in method.gaussian.items():
        noise = torch.randn_like(mu).numpy()
        sigma = softplus(method.rho[name].detach().numpy())
        np.testing.assert_allclose(drawn[name].detach().numpy(), mu.detach().numpy() + sigma * noise, rtol=1e-10)
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3
    assert torch.equal(method.predict(x, 1), method.model.heads[1](method.model.net(x)))
    torch.manual_seed(0)
    logits = method.model.logits(x, 1, weights=drawn)
    expected = nn.functional.cross_entropy(logits, y) + method.regulariser() / 8
    torch.testing.assert_close(method.loss(Batch(x, y)), expected)


def test_uncertainties_have_a_learning_rate_of_their_own() -> None:
    method = UCL(lr=0.002, lr_rho=0.03)
    start(method)
    next_task(method)
    optimizer = method.optimizer(list(method.trainable().values()))
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert {rates[id(r)] for r in method.rho.values()} == {0.03}
    assert {rates[id(p)] for n, p in method.trainable().items() if not n.startswith("rho/")} == {0.002}


def test_layers_it_does_not_know_are_refused() -> None:
    with pytest.raises(HatrackError, match=r"'1\.weight' belongs to a LayerNorm"):
        Learner(nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4)), UCL())


def test_old_uncertainties_are_what_the_last_task_left() -> None:
    torch.manual_seed(0)
    learner = Learner(build("mlp", (6,), widths=(8,)), UCL(), epochs=2, batch_size=8)
    for i in range(2):
        left = {n: r.detach().clone() for n, r in learner.method.rho.items()}
        learner.learn(random_task(f"t{i}", i))
        sigma = {n: nn.functional.softplus(r) for n, r in left.items()}
        torch.testing.assert_close(learner.method.sigma_old, sigma)
