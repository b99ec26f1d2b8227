"""Augmentation and samplers in whole runs: seeded, taken up again as if nothing had happened, and in training alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset, WeightedRandomSampler

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.data.augmenting import each
from hatrack.learn.machine import compiled
from hatrack.methods import METHODS


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 16), nn.ReLU())


def pictures(seed: int, count: int = 40) -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 2
    x = torch.randint(60, (count, 1, 8, 8), generator=numbers) + 150 * (torch.arange(8) // 4 == y[:, None, None, None])
    return x.to(torch.uint8), y


def jitter(x: Tensor) -> Tensor:
    """Draws from everywhere."""
    return x + 0.1 * torch.rand(len(x), 1, 1, 1) + 0.1 * random.random() + 0.1 * float(np.random.rand())


def tasks(**options: Any) -> list[Task]:
    return [
        Task(name, pictures(seed), pictures(seed + 10, 12), pictures(seed + 20, 12), **options)
        for seed, name in enumerate("ab")
    ]


def learner(method: str = "hat", **options: Any) -> Learner:
    return Learner(net(), METHODS[method](), **{"epochs": 3, "batch_size": 16, "device": "cpu", **options})


def state(made: Learner) -> list[Tensor]:
    heads = [p for head in made.model.heads for p in head.parameters()]
    return [*made.model.tensors().values(), *heads, *made.method.state().values()]


def same(one: Learner, other: Learner) -> bool:
    return all(torch.equal(a, b) for a, b in zip(state(one), state(other), strict=True))


HOW: dict[str, dict[str, Any]] = {
    "built in": {"augment": "crop,flip,colour,cutout"},
    "mixup": {"augment": "mixup"},
    "function": {"augment": jitter},
    "of a sample": {"augment": each(lambda x: x.flip(-1) if random.random() < 0.5 else x)},
    "with targets": {"augment": lambda x, y: (1 - x, y)},
    "balanced": {"sampler": "balanced"},
    "weighted": {"sampler": WeightedRandomSampler([1.0] * 30 + [3.0] * 10, 56)},
    "drawn": {"sampler": lambda g: torch.randint(40, (24,), generator=g)},
}


@pytest.mark.parametrize("how", HOW)
def test_a_run_that_is_taken_up_again_gives_the_same_bits(how: str, tmp_path: Path) -> None:
    first, second = tasks(**HOW[how])
    whole = learner()
    whole.learn(first)
    random.seed()
    np.random.seed()
    whole.learn(second, on_epoch=lambda epoch: whole.save(tmp_path) if epoch.epoch == 1 else None)
    resumed = hatrack.load(tmp_path, net(), device="cpu")
    resumed.learn(second)
    assert same(whole, resumed)
    assert whole.verify().ok
    plain = learner()
    for task in tasks():
        plain.learn(task)
    assert not same(whole, plain)


@pytest.mark.parametrize(
    "method", ["hat", "ewc", "sgd", "joint", "replay-all", "a-gem", "der++", "lwf", "pmask", "packnet"]
)
@pytest.mark.parametrize("augment", ["crop,flip,mixup", jitter])
def test_any_method_learns_augmented_samples(method: str, augment: Any) -> None:
    made = learner(method, epochs=2)
    for task in tasks(augment=augment, sampler="balanced"):
        made.learn(task)
    assert made.verify().ok or not made.method.promises()


def test_validation_test_and_probes_are_never_augmented() -> None:
    seen: list[Tensor] = []

    def marks(x: Tensor) -> Tensor:
        seen.append(x)
        return x * 0 + 7

    made = learner("ewc", epochs=2)
    inputs: list[Tensor] = []
    made.model.net.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    first, _ = tasks(augment=marks, probes=torch.zeros(3, 1, 8, 8))
    made.learn(first)
    made.evaluate(first, 0)
    made.verify({0: torch.zeros(3, 1, 8, 8)})
    trained = [x for x in inputs if bool((x == 7).all())]
    others = [x for x in inputs if not bool((x == 7).any())]
    assert len(trained) + len(others) == len(inputs)
    assert sum(map(len, trained)) >= 80
    assert all(len(x) <= 40 for x in seen)  # of the training part alone


def test_samplers_see_the_whole_training_part_and_balance_counts_its_classes() -> None:
    x, y = torch.rand(30, 4), (torch.arange(30) >= 24).long()
    counted: list[Tensor] = []
    made = Learner(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), METHODS["sgd"](), epochs=1, batch_size=30, device="cpu")
    part = (x[:9], y[:9].clone().fill_(0))
    own = made.method.task_loss
    made.method.task_loss = lambda logits, batch: (counted.append(batch.y), own(logits, batch))[1]  # type: ignore[method-assign]
    made.learn(Task("t", TensorDataset(x, y), part, classes=2, sampler=lambda g: [0, 29, 29]))
    assert sorted(counted[0].tolist()) == [0, 1, 1]
    counted.clear()
    data = TensorDataset(x, y)
    data.targets = y  # type: ignore[attr-defined]
    made.learn(Task("u", data, part, sampler="balanced", classes=2))
    assert torch.bincount(counted[0]).tolist() == [15, 15]


def test_a_schedule_by_steps_counts_what_a_sampler_draws() -> None:
    rates: list[float] = []
    made = learner("sgd", epochs=3, scheduler="onecycle")
    made.learn(
        tasks(sampler=lambda g: torch.randint(40, (130,), generator=g))[0], on_epoch=lambda e: rates.append(e.lr)
    )
    assert len(rates) == 3
    assert rates[-1] < rates[1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Task("t", pictures(0), sampler="even"), "sampler must be 'balanced', a torch Sampler, or a function"),
        (lambda: Task("t", pictures(0), sampler=lambda g: [0]), "without valid a share of it is held out; give Task"),
        (
            lambda: Task("t", TensorDataset(*pictures(0)), classes=2, sampler="balanced"),
            "a balanced sampler needs labels; give the Dataset targets",
        ),
        (
            lambda: Task(
                "t", (torch.rand(9, 2), torch.rand(9)), target=hatrack.targets.Regression(), sampler="balanced"
            ),
            "a balanced sampler needs classes, regression has none",
        ),
    ],
)
def test_a_sampler_that_does_not_fit_is_refused_in_one_line(make: Callable[[], Task], words: str) -> None:
    with pytest.raises(HatrackError, match=f"task 't': .*{words}"):
        make()


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (lambda g: [0, 99], "must give the numbers of samples, from 0 to 39, got 0 to 99"),
        (lambda g: [], "must give the numbers of samples, from 0 to 39, got torch.float32"),
        (lambda g: [[0, 1]], r"from 0 to 39, got torch.int64 \(1, 2\)"),
        (lambda g: 1 / 0, "fails"),
    ],
)
def test_a_sampler_that_draws_what_is_not_there_leaves_the_learner_as_it_was(sampler: Any, words: str) -> None:
    made = learner()
    before = [t.clone() for t in state(made)]
    with pytest.raises(HatrackError, match=f"task 'a': its sampler .*{words}"):
        made.learn(tasks(sampler=sampler)[0])
    assert all(torch.equal(a, b) for a, b in zip(before, state(made), strict=True))


def test_an_augmentation_that_fails_is_one_line_and_leaves_the_learner_as_it_was() -> None:
    made = learner()
    before = [t.clone() for t in state(made)]
    with pytest.raises(
        HatrackError, match=r"task 'a': augment <lambda> does not work on a batch of \(1, 8, 8\)"
    ) as raised:
        made.learn(tasks(augment=lambda x: x @ torch.zeros(3, 3))[0])
    assert "\n" not in str(raised.value)
    with pytest.raises(HatrackError, match=r"cannot take the inputs of task 'a' \(\(1, 4, 8\)"):
        made.learn(tasks(augment=lambda x: x[:, :, :4])[0])
    assert all(torch.equal(a, b) for a, b in zip(before, state(made), strict=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("augment", ["crop,flip,mixup", jitter])
def test_compiled_steps_draw_and_learn_the_same(augment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setattr(compiled, "_KNOWN", {})
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
    made = []
    for engine in ("eager", "compiled"):
        torch.manual_seed(0)
        plain[1].reset_parameters()
        one = Learner(plain, METHODS["hat"](), epochs=2, batch_size=8, device="cpu", engine=engine)
        one.learn(tasks(augment=augment)[0])
        made.append([t.clone() for t in state(one)])
    assert compiled._KNOWN, "nothing was compiled"
    for a, b in zip(*made, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_steps_follow_pictures_that_change_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setattr(compiled, "_KNOWN", {})

    def narrower(x: Tensor) -> Tensor:
        return x[..., : 6 + 2 * int(torch.rand(()) < 0.3)]

    made = []
    for engine in ("eager", "compiled"):
        torch.manual_seed(0)
        pools = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        one = Learner(pools, METHODS["hat"](), epochs=3, batch_size=8, device="cpu", engine=engine)
        one.learn(tasks(augment=narrower)[0])
        made.append([t.clone() for t in state(one)])
    for a, b in zip(*made, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
