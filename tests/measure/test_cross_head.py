from __future__ import annotations

import numpy as np
import pytest
import torch

from hatrack.errors import HatrackError
from hatrack.measure import chi


def test_the_four_figures_by_hand() -> None:
    own = {"w": torch.tensor([0.5, 0.2, 0.9]), "b": torch.tensor([0.0])}
    heads = [
        {"w": torch.tensor([0.6, 0.1, 0.0]), "b": torch.tensor([0.3])},
        {"w": torch.tensor([0.1, 0.4, 0.3]), "b": torch.tensor([0.0])},
    ]
    before = {"w": torch.tensor([0.9, 0.3, 0.0]), "b": torch.tensor([0.3])}
    # The highest of the heads is 0.6, 0.4, 0.3 and 0.3.
    found = chi(own, heads, before)
    assert found["F-each"] == pytest.approx(3 / 4)
    assert found["G-each"] == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert found["F-total"] == pytest.approx(2 / 4)
    assert found["G-total"] == pytest.approx((0.1 + 0.3) / 2)


def test_against_numpy_on_random_importances() -> None:
    rng = np.random.default_rng(0)
    own, before, *heads = rng.random((5, 1000))
    found = chi(
        {"w": torch.from_numpy(own)}, [{"w": torch.from_numpy(h)} for h in heads], {"w": torch.from_numpy(before)}
    )
    highest = np.max(heads, axis=0)
    for held, name in ((own, "each"), (before, "total")):
        over = highest > held
        assert found[f"F-{name}"] == pytest.approx(over.mean())  # type: ignore[literal-required]
        assert found[f"G-{name}"] == pytest.approx((highest - held)[over].mean())  # type: ignore[literal-required]


def test_a_gap_that_never_happens_is_none() -> None:
    ones, zeros = {"w": torch.ones(3)}, {"w": torch.zeros(3)}
    assert chi(ones, [zeros], ones) == {"F-each": 0.0, "G-each": None, "F-total": 0.0, "G-total": None}


def test_the_first_task_has_no_earlier_head() -> None:
    with pytest.raises(HatrackError, match="from the second task on"):
        chi({"w": torch.ones(1)}, [], {"w": torch.zeros(1)})


def test_a_parameter_that_one_importance_lacks_is_named() -> None:
    with pytest.raises(HatrackError, match="'w'"):
        chi({"w": torch.ones(1)}, [{"v": torch.ones(1)}], {"w": torch.ones(1)})
