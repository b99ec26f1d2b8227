"""The real sets, where HATRACK_DATA names a folder that holds them. HATRACK_CACHE keeps what is decoded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hatrack.data import load, tasks
from hatrack.data.sets import SETS

REAL = os.environ.get("HATRACK_DATA", "")
CACHE = os.environ.get("HATRACK_CACHE")
PRESENT = sorted(name for name in SETS if REAL and (Path(REAL) / name).is_dir())

pytestmark = [pytest.mark.data, pytest.mark.skipif(not PRESENT, reason="HATRACK_DATA names no folder of sets")]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Decode each set once for all tests of this file."""
    cache = Path(CACHE) if CACHE else tmp_path_factory.getbasetemp() / "real-cache"
    monkeypatch.setenv("HATRACK_CACHE", str(cache))
    monkeypatch.setenv("HATRACK_DATA", REAL)
    return cache


@pytest.mark.parametrize("name", PRESENT)
def test_the_labels_belong_to_the_pictures(name: str) -> None:
    """The nearest neighbour in raw pixels carries the right label far more often than a shuffled label would."""
    held = load(name)
    rng = np.random.default_rng(0)
    train, test = (rng.permutation(rows)[:3000] for rows in (held.train, held.test))
    x, probe = (held.x[rows].reshape(len(rows), -1).astype(np.float32) for rows in (train, test[:1000]))
    for pixels in (x, probe):
        pixels -= pixels.mean(axis=1, keepdims=True)
        pixels /= np.linalg.norm(pixels, axis=1, keepdims=True) + 1
    nearest = (probe @ x.T).argmax(axis=1)
    wanted, given = held.y[test[:1000]], held.y[train]
    shuffled = rng.permutation(given)
    assert (given[nearest] == wanted).mean() > 1.2 * (shuffled[nearest] == wanted).mean()


@pytest.mark.parametrize("name", [name for name in PRESENT if name not in ("cifar100", "notmnist", "tiny_imagenet32")])
def test_the_papers_normalisation_fits_the_pictures(name: str) -> None:
    """CIFAR-100 is normalised by CIFAR-10's figures and notMNIST by those of another subset, as published."""
    held = load(name)
    part = held.x[np.random.default_rng(0).permutation(held.train)[:10000]] / 255.0
    np.testing.assert_allclose(part.mean(axis=(0, 2, 3)), held.inputs.mean, atol=0.01)
    np.testing.assert_allclose(part.std(axis=(0, 2, 3)), held.inputs.std, atol=0.01)


@pytest.mark.skipif("cifar100" not in PRESENT, reason="cifar100 is absent")
def test_a_second_start_of_cifar100_takes_less_than_a_second() -> None:
    tasks("c-20")
    start = time.perf_counter()
    made = tasks("c-20")
    assert time.perf_counter() - start < 1
    assert [task.about["notes"] for task in made] == [[]] * 20
    assert {task.about["train"] for task in made} == {5 * 450}


@pytest.mark.skipif("tiny_imagenet32" not in PRESENT, reason="tiny_imagenet32 is absent")
def test_tiny_imagenet_takes_what_exists_and_says_so() -> None:
    held = load("tiny_imagenet32")
    task = tasks("t-10", seed=1)[0]
    a_class = len(held.train) // 200
    assert task.about["train"] + task.about["valid"] == 20 * min(a_class, 500)
    assert bool(task.about["notes"]) == (a_class < 500)


MEASURE = """
import resource, sys, torch
from hatrack.data import tasks
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made = tasks("mixture", replace="facescrub=yale_faces")
decoded = {task.about["set"]: task.train._x for task in made}
for task in made:                                  # what a run on the CPU holds: one task at a time
    parts = [part.on(torch.device("cpu")) for part in (task.train, task.valid, task.test)]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(peak / 1024, sum(x.size for x in decoded.values()) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not {"cifar10", "cifar100", "mnist", "svhn", "fashion_mnist", "gtsrb", "notmnist", "yale_faces"} <= {*PRESENT},
    reason="a member of the mixture is absent",
)
def test_the_mixture_holds_no_more_than_twice_the_decoded_pictures() -> None:
    tasks("mixture", replace="facescrub=yale_faces")
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    peak, decoded = map(float, done.stdout.split())
    assert peak < 2 * decoded
