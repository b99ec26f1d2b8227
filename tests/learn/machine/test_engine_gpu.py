"""Engines and cohorts on a CUDA device; skipped where there is none."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import hatrack
from hatrack import Learner
from hatrack.learn.machine.engine import EngineWarning
from hatrack.learn.machine.side_by_side import together
from hatrack.learn.seeds import noise
from hatrack.methods import METHODS
from hatrack.nets import build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def mlp(dropout: float = 0.0) -> nn.Module:
    with noise(0, "net", device=torch.device("cpu")):
        return build("mlp", (1, 8, 8), widths=(64, 64), dropout=dropout, input_dropout=dropout)


def taught(
    method: str, engine: str, seed: int = 0, dropout: float = 0.0, epochs: int = 25, tasks: int = 2, **options: object
) -> Learner:
    learner = Learner(
        mlp(dropout),
        METHODS[method](),
        epochs=epochs,
        seed=seed,
        device="cuda",
        engine=engine,
        **options,  # type: ignore[arg-type]
    )
    for task in hatrack.tasks("split-digits", seed=0)[:tasks]:
        learner.learn(task)
    return learner


def accuracy(learner: Learner) -> float:
    tasks = hatrack.tasks("split-digits", seed=0)[:2]
    return sum(learner.evaluate(task, t) for t, task in enumerate(tasks)) / 2


def assert_close(a: Learner, b: Learner, within: float) -> None:
    for name, value in a.model.tensors().items():
        torch.testing.assert_close(value, b.model.tensors()[name], rtol=0, atol=within, msg=name)


@pytest.mark.parametrize("engine", ["graph", "compiled"])
def test_hat_has_the_same_weights_after_a_hundred_steps(engine: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", EngineWarning)
        made = taught("hat", engine, precision="float32", tasks=1)  # 25 epochs of 4 steps
    assert_close(made, taught("hat", "eager", precision="float32", tasks=1), 1e-5)
    assert made.verify().ok


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_runs_as_a_graph(method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", EngineWarning)
        recorded = taught(method, "graph", epochs=8)
    assert abs(accuracy(recorded) - accuracy(taught(method, "eager", epochs=8))) < 0.05
    assert recorded.verify().ok or not recorded.method.promises()


def adam(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3, capturable=True)  # type: ignore[arg-type]


def test_adam_keeps_its_count_on_the_device() -> None:
    assert_close(
        taught("hat", "graph", optimizer=adam, precision="float32"),
        taught("hat", "eager", optimizer=adam, precision="float32"),
        1e-5,
    )


def test_bf16_learns_and_keeps_its_promise() -> None:
    learner = taught("hat", "graph", precision="bf16")
    assert accuracy(learner) > 0.9
    assert learner.verify().ok


@pytest.mark.parametrize("engine", ["graph", "compiled"])
def test_dropout_is_drawn_anew_at_every_recorded_step(engine: str) -> None:
    losses: list[float] = []
    learner = Learner(mlp(0.5), METHODS["sgd"](lr=1e-12, lr_min=0.0), epochs=8, device="cuda", engine=engine)
    task = hatrack.tasks("split-digits", seed=0)[0]
    learner.learn(task, on_epoch=lambda epoch: losses.append(epoch.train_loss))
    assert len(set(losses)) == 8
    assert 1e-3 < max(losses) - min(losses) < 1


def test_a_cohort_ends_where_each_would_alone() -> None:
    alone = [taught("hat", "graph", seed, dropout=0.3) for seed in range(3)]
    beside = [
        Learner(mlp(0.3), METHODS["hat"](), epochs=25, seed=seed, device="cuda", engine="graph") for seed in range(3)
    ]

    def member(learner: Learner) -> object:
        for task in hatrack.tasks("split-digits", seed=0)[:2]:
            yield from learner.learning(task)

    assert together([member(one) for one in beside], torch.device("cuda")) == [None] * 3  # type: ignore[misc]
    for a, b in zip(alone, beside, strict=True):
        assert_close(a, b, 1e-6)


@pytest.mark.parametrize("engine", ["graph", "compiled"])
def test_augmented_batches_are_recorded_or_made_before_the_step(engine: str) -> None:
    def on_the_host(x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * float(torch.rand(()))

    def learned(engine: str, augment: object) -> Learner:
        learner = Learner(mlp(), METHODS["hat"](), epochs=25, device="cuda", engine=engine)
        with warnings.catch_warnings():
            warnings.simplefilter("error", EngineWarning)
            learner.learn(hatrack.tasks("split-digits", seed=0, augment=augment)[0])
        return learner

    assert_close(learned(engine, on_the_host), learned("eager", on_the_host), within=1e-3)
    score = learned(engine, "crop,cutout,mixup").matrix()[0][0]
    assert score is not None
    assert score > 0.9
