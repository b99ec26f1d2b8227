"""AUROC against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from hatrack.measure.auroc import auroc


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_is_scikit_learns(ties: bool) -> None:
    random = np.random.default_rng(0)
    known, strange = random.normal(size=70), random.normal(0.8, 2, size=30)
    if ties:
        known, strange = known.round(), strange.round()
    truth = [0] * 70 + [1] * 30
    assert auroc(known, strange) == pytest.approx(roc_auc_score(truth, np.concatenate([known, strange])))
    assert auroc(np.array([0.0]), np.array([1.0])) == 1.0
