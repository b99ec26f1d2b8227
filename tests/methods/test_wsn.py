"""WSN: gradients through the mask, what is frozen, scores that go on, answers that stay."""

from __future__ import annotations

import numpy as np
import torch
from tiny import Arrays, arrays, batch, begin, close, feed, gradient, logits, model, samples

from hatrack.learn.proof.verification import same_bits
from hatrack.methods.wsn import WSN

WEIGHTS = ("fc1.weight", "fc2.weight")


def best(scores: np.ndarray, keep: float) -> np.ndarray:
    """The mask by sorting: so many entries, those of the largest size."""
    order = np.argsort(-np.abs(scores), axis=None, kind="stable")
    mask = np.zeros(scores.size)
    mask[order[: scores.size - int((1 - keep) * scores.size)]] = 1
    return mask.reshape(scores.shape)


def scores_of(method: WSN) -> Arrays:
    return {name: s.detach().numpy().copy() for name, s in method.scores.items()}


def masked(p: Arrays, masks: Arrays) -> Arrays:
    return {name: v * masks[name] if name in masks else v for name, v in p.items()}


def masks_of(method: WSN) -> Arrays:
    return {name: best(s, method.keep) for name, s in scores_of(method).items()}


def test_gradients_reach_weights_in_the_mask_and_every_score() -> None:
    m, method = model(heads=(3,)), WSN(keep=0.5)
    method.attach(m)
    x, y = samples(0)
    begin(method, 0, x, y)
    p, scores, masks = arrays(m, 0), scores_of(method), masks_of(method)
    method.loss(batch(x, y)).backward()
    g = gradient(masked(p, masks), x, y)
    for name in WEIGHTS:
        np.testing.assert_allclose(m.net.get_parameter(name).grad.numpy(), g[name] * masks[name], rtol=1e-8, atol=1e-14)
        expected = g[name] * p[name] * np.sign(scores[name])
        np.testing.assert_allclose(method.scores[name].grad.numpy(), expected, rtol=1e-8, atol=1e-12, err_msg=name)


def test_used_weights_are_frozen_and_free_ones_learn() -> None:
    m, method = model(heads=(3, 3, 3)), WSN(keep=0.3, lr=0.01)
    method.attach(m)
    x, y = samples(0)
    taken = {name: np.zeros(m.net.get_parameter(name).shape) for name in WEIGHTS}
    answers = []
    for task in range(3):
        stepper = begin(method, task, *samples(task))
        before = arrays(m)
        for _ in range(5):
            stepper.step(batch(*samples(task)))
        after, masks, moved = arrays(m), masks_of(method), False
        for name in WEIGHTS:
            held = taken[name] == 1
            assert np.array_equal(after[name][held], before[name][held])
            moved |= bool((after[name] != before[name]).any())
            taken[name] = np.maximum(taken[name], masks[name])
        assert moved
        if task:
            assert np.array_equal(after["fc1.bias"], before["fc1.bias"])
        method.end_task(feed(x, y, task))
        answers.append(method.predict(torch.from_numpy(x), task).detach())
        np.testing.assert_allclose(answers[-1].numpy(), logits(masked(arrays(m, task), masks), x), rtol=1e-9)
        for name, used in method.use(task).items():
            assert np.array_equal(used.numpy(), masks.get(name, np.ones(used.shape))), name
        for name, used in method.occupied().items():
            assert np.array_equal(used.numpy(), taken.get(name, np.ones(used.shape))), name
    for task, then in enumerate(answers):
        assert same_bits(then, method.predict(torch.from_numpy(x), task).detach()).all()


def test_scores_go_on_from_task_to_task_also_after_a_load() -> None:
    m, method = model(heads=(3, 3)), WSN(lr=0.01)
    method.attach(m)
    x, y = samples(0)
    stepper = begin(method, 0, x, y)
    drawn = scores_of(method)
    for name in WEIGHTS:
        bound = drawn[name].shape[1] ** -0.5
        assert 0.8 * bound < np.abs(drawn[name]).max() <= bound
    stepper.step(batch(x, y))
    last = scores_of(method)
    assert all((last[name] != drawn[name]).any() for name in WEIGHTS)
    method.end_task(feed(x, y))
    again = WSN()
    again.attach(m)
    again.load_state(method.state(), 1, torch.device("cpu"))
    for one in (method, again):
        one.begin_task(1, feed(x, y, 1), torch.Generator().manual_seed(5))
        close(scores_of(one), last, rtol=0, atol=0)
