"""The side-by-side benchmark: its arithmetic by hand, and our side against a plain training loop."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
MODULES = ("accuracy", "contests", "export", "ours", "protocol", "table")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a way to import the benchmark's scripts by name, forgotten again after the test."""
    monkeypatch.syspath_prepend(str(PEERS))
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    yield importlib.import_module
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def result(peers: Any, *finals: float) -> Any:
    """Return a result whose runs ended at these accuracies."""
    side = peers("protocol").Side("x")
    return peers("table").Result(side, {}, [], [{"test": [[1.0], [final, final]]} for final in finals])


def test_mean_and_standard_error_by_hand(peers: Any) -> None:
    found = result(peers, 0.9, 0.8, 0.7)
    assert found.mean == pytest.approx(0.8)
    assert found.error == pytest.approx(0.1 / 3**0.5)
    assert result(peers, 0.9).error == 0


@pytest.mark.parametrize(("ours", "reached"), [(0.75, True), (0.743, True), (0.742, False)])
def test_reached_means_no_more_than_their_standard_error_below(peers: Any, ours: float, reached: bool) -> None:
    theirs = result(peers, 0.9, 0.8, 0.7)  # 0.8 − 0.0577 = 0.7423
    assert peers("table").reaches(result(peers, ours, ours, ours), theirs) is reached


def test_the_best_setting_is_that_of_the_highest_mean_validation_accuracy(peers: Any) -> None:
    outcomes = [{"valid": [0.9, 0.5]}, {"valid": [0.8, 0.7]}, {"valid": [0.75, 0.75]}]
    assert peers("accuracy").best(outcomes) is outcomes[1]


def test_both_sides_try_equally_many_settings(peers: Any) -> None:
    for contest in peers("contests").CONTESTS:
        if contest.theirs.name != "SI as released":  # whose one setting has no effect
            assert len(contest.ours.settings()) == len(contest.theirs.settings())


def toy(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Return noisy two-class samples that are not quite separable."""
    y = rng.integers(0, 2, count)
    x = rng.normal(size=(count, 6)).astype(np.float32) + 0.8 * y[:, None]
    return x.astype(np.float32), y


def test_our_side_is_a_plain_loop_over_what_was_exported(peers: Any) -> None:
    """First weights, order of batches, learning rate and the last epoch, against a loop written out here."""
    protocol, export, ours = peers("protocol"), peers("export"), peers("ours")
    budget, seed, rng = protocol.Budget(train=90, epochs=3, batch=32, lr=0.1), 3, np.random.default_rng(0)
    samples = [
        {part: toy(rng, 90 if part == "train" else 400) for part in ("train", "valid", "test")} for _ in range(5)
    ]
    tasks = [ours.Task(f"task {t}", s["train"], s["valid"], s["test"]) for t, s in enumerate(samples)]
    test, valid = ours.run(protocol.Job("sgd", {}, seed, budget), tasks)

    first = export.first_weights(torch.from_numpy(samples[0]["train"][0][:1]), seed)
    first = {name: torch.from_numpy(value.copy()).requires_grad_() for name, value in first.items()}

    def logits(x: Any, task: int) -> torch.Tensor:
        h = torch.as_tensor(x)
        for layer in ("fc1", "fc2"):
            h = torch.relu(h @ first[f"net/{layer}.weight"].T + first[f"net/{layer}.bias"])
        return h @ first[f"head/{task}/weight"].T + first[f"head/{task}/bias"]

    def accuracy(part: str, task: int) -> float:
        x, y = samples[task][part]
        return float((logits(x, task).argmax(1) == torch.from_numpy(y)).double().mean())

    for t, sample in enumerate(samples):
        x, y = (torch.from_numpy(a) for a in sample["train"])
        for epoch in range(1, 4):
            for rows in torch.from_numpy(export.shuffled(seed, t, 0, epoch, 90)).split(32):
                loss = cross_entropy(logits(x[rows], t), y[rows])
                moved = [p for name, p in first.items() if name.startswith(("net/", f"head/{t}/"))]
                for parameter, gradient in zip(moved, torch.autograd.grad(loss, moved), strict=True):
                    parameter.data -= 0.1 * gradient
        assert test[t] == pytest.approx([accuracy("test", i) for i in range(t + 1)], abs=1 / 400)
    assert valid == pytest.approx([accuracy("valid", t) for t in range(5)], abs=1 / 400)
