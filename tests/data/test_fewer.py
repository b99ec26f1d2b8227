"""Fewer samples to learn from: which ones, of every class, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hatrack
from hatrack.data import tasks
from hatrack.data.fewer import fewer
from hatrack.errors import HatrackError
from hatrack.runs.spec import resolve
from hatrack.studies.plan import digest


def task(counts: tuple[int, ...] = (50, 30, 4), valid: int = 21) -> hatrack.Task:
    """Samples that are their own row number."""
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    return hatrack.Task("one", (x, y), valid=(x[:valid], y[:valid]), test=(x, y))


def test_so_many_of_every_class_or_all_there_are() -> None:
    whole = task()
    small = fewer(whole, 10, seed=3)
    x, y = small.train.on(torch.device("cpu"))
    assert np.bincount(y).tolist() == [10, 10, 4]
    assert [int(v) >= 50 for v in x] == [int(label) > 0 for label in y]  # each with its own label
    assert small.valid is not None
    assert small.test is whole.test
    assert len(small.valid) == 6  # 21 · 24/84
    assert (small.about["train"], small.about["valid"], small.about["test"]) == (24, 6, 84)
    assert small.about["notes"] == ["at most 10 training samples a class, validation in proportion"]


def test_the_seed_decides() -> None:
    first, again, other = (fewer(task(), 10, seed).train.on(torch.device("cpu"))[0] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("most", "says"), [(-1, "train_per_class must be 1 or more, got -1")])
def test_a_wrong_number_is_refused(most: int, says: str) -> None:
    with pytest.raises(HatrackError, match=says):
        tasks("split-digits", train_per_class=most)


def test_every_benchmark_takes_it() -> None:
    small, whole = tasks("permuted-digits", tasks=2, train_per_class=5), tasks("permuted-digits", tasks=2)
    assert [len(t.train) for t in small] == [50, 50]
    assert [t.test and len(t.test) for t in small] == [t.test and len(t.test) for t in whole]
    assert small[0].about["rows"] != whole[0].about["rows"]


def test_all_samples_are_the_run_that_it_is_without() -> None:
    """Its spec and its digest, by which a study knows that a run is finished, are those of before the option."""
    plain, zero, some = (
        resolve({"device": "cpu"}, [("train_per_class", n)] if n is not None else []) for n in (None, 0, 9)
    )
    assert plain == zero
    assert "train_per_class" not in plain.toml()
    assert some.benchmark_options == {"train_per_class": 9}
    assert digest(plain) != digest(some)
    assert resolve({"device": "cpu"}, [("benchmark.train_per_class", 9)]) == some
