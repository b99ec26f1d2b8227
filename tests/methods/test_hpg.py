"""HPG against the restatement of SPG with its mask cut at the threshold, and that blocked entries keep their bits."""

from __future__ import annotations

import numpy as np
import pytest
from test_spg import follow
from tiny import arrays, as_arrays, batch, begin, feed, model, samples

from hatrack.methods.hpg import HPG


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_three_tasks_equal_the_restatement(threshold: float) -> None:
    follow(HPG(threshold=threshold), lambda gamma: (gamma > threshold).astype(float))


def test_what_hpg_blocks_keeps_its_bits() -> None:
    m, method = model(heads=(3, 3)), HPG(threshold=0.5)
    method.attach(m)
    x, y = samples(0)
    begin(method, 0, x, y).step(batch(x, y))
    method.end_task(feed(x, y))
    before, blocked = arrays(m), as_arrays(method.amounts())
    stepper = begin(method, 1, *samples(1))
    for seed in range(5):
        stepper.step(batch(*samples(seed)))
    moved = {name: v != before[name] for name, v in arrays(m).items()}
    assert not any(moved[name][blocked[name] == 1].any() for name in moved)
    assert any(moved[name][blocked[name] == 0].any() for name in moved)
    assert {v for b in blocked.values() for v in np.unique(b)} == {0.0, 1.0}
