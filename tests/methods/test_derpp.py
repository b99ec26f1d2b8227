"""DER++: its loss and its steps against numpy, its gradient against differences, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from several_heads import SeveralHeads, by_differences
from test_replay import CLASSES, recorded
from tiny import add_head, arrays, batch, begin, close, feed, samples
from tiny import model as new_model

from hatrack.learn.step import Stepper
from hatrack.methods.derpp import DERPP
from hatrack.nets.model import Model

ALPHA, BETA, LR, SIZE = 0.7, 0.4, 0.2, 24


def begun(heads: str, task: int, method: DERPP | None = None) -> tuple[DERPP, Stepper, np.ndarray, np.ndarray]:
    """Begin a task, the next one where a method is handed in."""
    if method is None:
        method = DERPP(lr=LR, buffer=15, memory_batch=10, heads=heads, alpha=ALPHA, beta=BETA)
        method.attach(new_model(heads=()))
    add_head(method.model, CLASSES[task], task)
    x, y = samples(task, n=SIZE, classes=CLASSES[task])
    return method, begin(method, task, x, y), x, y


@pytest.mark.parametrize("heads", ["own", "all"])
def test_steps_of_three_tasks_equal_the_restatement(heads: str) -> None:
    method, stepper, x, y = begun(heads, 0)
    draws = recorded(method)
    torch.manual_seed(4)
    everything = heads == "all"
    for task in range(3):
        if task:
            method, stepper, x, y = begun(heads, task, method)
        now, own = SeveralHeads(method.model), np.full(SIZE, task)
        for _ in range(10):
            before = len(draws)
            loss = stepper.evaluate(batch(x, y))
            stepper.move(loss)
            expected, at = now.cross_entropy(x, y, own, everything)
            gradients = [now.gradient(x, at)]
            if len(draws) > before:
                (kept, z), (again, _) = draws[before:]
                assert kept.source is not None
                assert again.source is not None
                strayed, at = now.strayed(kept.x.numpy(), z.numpy(), kept.source.numpy(), everything)
                gradients.append(now.gradient(kept.x.numpy(), ALPHA * at))
                relearned, at = now.cross_entropy(again.x.numpy(), again.y.numpy(), again.source.numpy(), everything)
                gradients.append(now.gradient(again.x.numpy(), BETA * at))
                expected += ALPHA * strayed + BETA * relearned
                assert not torch.equal(kept.x, again.x)  # two draws
            assert abs(float(loss) - expected) < 1e-9
            now.step(gradients, LR)
            for t, wanted in enumerate(now.nets):
                close(arrays(method.model, t), wanted, rtol=1e-7)
    assert len(draws) == 2 * 29


@pytest.mark.parametrize("heads", ["own", "all"])
def test_the_gradient_is_that_of_differences(heads: str) -> None:
    method, stepper, x, y = begun(heads, 0)
    for _ in range(5):
        stepper.step(batch(x, y))
    method, stepper, x, y = begun(heads, 1, method)
    for _ in range(3):
        stepper.step(batch(x, y))

    def loss() -> torch.Tensor:
        torch.manual_seed(8)  # the same draws
        return method.loss(batch(x, y))

    moved = method.trainable()
    wanted = torch.autograd.grad(loss(), list(moved.values()))
    for (name, p), g in zip(moved.items(), wanted, strict=True):
        places = np.random.default_rng(0).choice(p.numel(), size=min(6, p.numel()), replace=False).tolist()
        found = by_differences(lambda: float(loss().detach()), p.detach().numpy(), places)
        np.testing.assert_allclose(g.flatten()[places].numpy(), found, rtol=1e-5, atol=1e-8, err_msg=name)
        assert np.abs(found).max() > 1e-4, f"{name} is not in the loss"


@pytest.mark.parametrize("heads", ["own", "all"])
def test_answers_are_kept_as_they_were_given_before_the_step(heads: str) -> None:
    method, stepper, x, y = begun(heads, 0)
    method, stepper, x, y = begun(heads, 1, method)
    rows = [tuple(row) for row in x]
    given: list[np.ndarray] = []
    torch.manual_seed(0)
    for _ in range(4):
        now = SeveralHeads(method.model)
        given.append(now.logits(x)[:, 0 if heads == "all" else CLASSES[0] :])
        stepper.step(batch(x, y))
    assert int(method.memory.held["seen"]) == 4 * SIZE
    times = set()
    for sample, z in zip(method.memory.held["x/"][:15], method.memory.held["z"][:15], strict=True):
        row = rows.index(tuple(sample.tolist()))
        found = [t for t in range(4) if np.allclose(given[t][row], z[: given[t].shape[1]].numpy(), rtol=1e-12)]
        assert len(found) == 1  # the answers of one step, and of no other
        times.add(found[0])
    assert len(times) > 1  # along the way, not of its end


def test_without_weights_for_the_memory_it_is_plain_training() -> None:
    models: list[Model] = []
    for alpha, beta in ((0.0, 0.0), (ALPHA, 0.0), (0.0, BETA)):
        method = DERPP(lr=LR, alpha=alpha, beta=beta)
        method.attach(new_model(heads=(3,)))
        x, y = samples(0)
        stepper = begin(method, 0, x, y)
        for _ in range(3):
            stepper.step(batch(x, y))
        models.append(method.model)
    plain = new_model(heads=(3,))
    now = SeveralHeads(plain)
    for _ in range(3):
        now.step([now.gradient(x, now.cross_entropy(x, y, np.zeros(SIZE, int), False)[1])], LR)
    close(arrays(models[0], 0), now.nets[0])
    for other in models[1:]:
        assert not np.allclose(arrays(other)["fc1.weight"], now.nets[0]["fc1.weight"], rtol=1e-6)


def test_room_for_answers_grows_with_the_heads() -> None:
    for heads, widths in (("own", (3, 3, 4)), ("all", (3, 5, 9))):
        method = None
        for task, width in enumerate(widths):
            method, stepper, x, y = begun(heads, task, method)
            assert method.memory.held["z"].shape == (16, width)
            stepper.step(batch(x, y))
            method.end_task(feed(x, y, task))
