"""SupSup against numpy: the fixed weights, the mask from scores, the straight-through gradient, what is stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import Arrays, arrays, batch, begin, feed, gradient, logits, model, samples

from hatrack.methods.parts.subnetworks import straight_through, top
from hatrack.methods.parts.weight_masks import unpack
from hatrack.methods.supsup import SupSup

WEIGHTS = ("fc1.weight", "fc2.weight")


def restated_mask(scores: np.ndarray, keep: float) -> np.ndarray:
    """Switch entries on one by one, the largest |score| first."""
    order = np.argsort(-np.abs(scores), axis=None, kind="stable")
    mask = np.zeros(scores.size)
    mask[order[: scores.size - int((1 - keep) * scores.size)]] = 1
    return mask.reshape(scores.shape)


@pytest.mark.parametrize("keep", [0.01, 0.32, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(5, 8), (3, 2, 3, 3)])
def test_the_mask_is_the_largest_share_of_the_scores(keep: float, shape: tuple[int, ...]) -> None:
    scores = np.random.default_rng(0).normal(size=shape)
    got = top(torch.from_numpy(scores).abs(), keep).numpy()
    assert np.array_equal(got, restated_mask(scores, keep) == 1)


def test_a_mask_is_never_empty() -> None:
    assert int(top(torch.rand(4, 5), 0.0).sum()) == 1


def test_the_mask_is_exact_and_its_gradient_goes_straight_through() -> None:
    scores = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    mask = straight_through(scores, 0.5)
    assert set(mask.detach().unique().tolist()) == {0.0, 1.0}
    arriving = torch.randn(4, 6, dtype=torch.float64)
    (mask * arriving).sum().backward()
    np.testing.assert_allclose(scores.grad.numpy(), arriving.numpy() * np.sign(scores.detach().numpy()), rtol=1e-14)


def effective(p: Arrays, scores: Arrays, keep: float) -> Arrays:
    return {name: v * restated_mask(scores[name], keep) if name in scores else v for name, v in p.items()}


def scores_of(method: SupSup) -> Arrays:
    return {name: s.detach().numpy().copy() for name, s in method.scores.items()}


def test_weights_become_signed_constants_once_and_never_move() -> None:
    m, method = model(heads=(3, 3)), SupSup(lr=0.01)
    before = arrays(m)
    method.attach(m)
    x, y = samples(0)
    for task in range(2):
        stepper = begin(method, task, x, y)
        start = scores_of(method)
        for _ in range(3):
            stepper.step(batch(x, y))
        assert all((s != start[name]).any() for name, s in scores_of(method).items())
        method.end_task(feed(x, y, task))
        for name, value in arrays(m).items():
            fan_in = before[name].shape[-1]
            expected = np.sign(before[name]) * np.sqrt(2 / fan_in) if name in WEIGHTS else before[name]
            np.testing.assert_allclose(value, expected, rtol=1e-7, err_msg=name)
    fixed = arrays(m)
    method.begin_task(0, feed(x, y), torch.Generator())  # as when an interrupted first task is taken up again
    assert all(np.array_equal(value, fixed[name]) for name, value in arrays(m).items())


def test_scores_start_uniform_and_anew_for_every_task() -> None:
    m, method = model(heads=(3, 3)), SupSup()
    method.attach(m)
    x, y = samples(0)
    drawn = []
    for task in range(2):
        method.begin_task(task, feed(x, y, task), torch.Generator().manual_seed(task))
        drawn.append(scores_of(method))
    for name in WEIGHTS:
        bound = drawn[0][name].shape[1] ** -0.5
        assert np.abs(drawn[0][name]).max() <= bound
        assert np.abs(drawn[0][name]).max() > 0.8 * bound
        assert not np.array_equal(drawn[0][name], drawn[1][name])


def test_the_gradient_of_a_score_is_that_of_its_mask() -> None:
    m, method = model(heads=(3,)), SupSup(keep=0.5)
    method.attach(m)
    x, y = samples(0)
    begin(method, 0, x, y)
    p, scores = arrays(m, 0), scores_of(method)
    method.loss(batch(x, y)).backward()
    g = gradient(effective(p, scores, 0.5), x, y)
    for name in WEIGHTS:  # dL/dM = dL/d(W ⊙ M) ⊙ W, and the sign of the score from its absolute value
        expected = g[name] * p[name] * np.sign(scores[name])
        np.testing.assert_allclose(method.scores[name].grad.numpy(), expected, rtol=1e-8, atol=1e-12, err_msg=name)
        assert m.net.get_parameter(name).grad is None
    np.testing.assert_allclose(m.heads[0].weight.grad.numpy(), g["head.weight"], rtol=1e-8)


def test_a_finished_task_keeps_a_bit_a_weight_and_answers_with_its_mask() -> None:
    m, method = model(heads=(3, 3)), SupSup(keep=0.5, lr=0.01)
    method.attach(m)
    x, y = samples(0)
    masks, answers = [], []
    for task in range(2):
        stepper = begin(method, task, x, y)
        for _ in range(3):
            stepper.step(batch(x, y))
        masks.append({name: restated_mask(s, 0.5) for name, s in scores_of(method).items()})
        answers.append(logits(effective(arrays(m, task), scores_of(method), 0.5), x))
        method.end_task(feed(x, y, task))
    size = sum(mask.size for mask in masks[0].values())
    assert all(packed.numel() == -(-size // 8) for packed in method.masks.packed)
    flat = np.concatenate([mask.ravel() for mask in masks[0].values()])
    assert np.array_equal(unpack(method.masks.packed[0], size).numpy(), flat == 1)
    for task in range(2):
        got = method.predict(torch.from_numpy(x), task).detach().numpy()
        np.testing.assert_allclose(got, answers[task], rtol=1e-9, atol=1e-12)
        use = method.use(task)
        assert all(np.array_equal(use[name].numpy(), mask) for name, mask in masks[task].items())
    union = method.occupied()
    for name in WEIGHTS:
        assert np.array_equal(union[name].numpy(), np.maximum(masks[0][name], masks[1][name]))


def test_nothing_of_the_network_but_the_scores_is_trained() -> None:
    m, method = model(heads=(3,)), SupSup()
    method.attach(m)
    x, y = samples(0)
    begin(method, 0, x, y)
    assert set(method.trainable()) == {"scores/fc1.weight", "scores/fc2.weight", "head/weight", "head/bias"}
