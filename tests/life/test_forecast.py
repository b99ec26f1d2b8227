"""Forecasts of a learner's room: refused where there is none to speak of, and held against what happens."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import hatrack
from hatrack import HAT, HatrackError, Learner, nets
from hatrack.measure.forecast import LITTLE
from hatrack.methods import METHODS

SEEDS = (3, 4)  # not those that the model was found with


def mlp(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    )  # fmt: skip


def test_forecasts_say_how_much_is_free_and_what_growth_would_bring() -> None:
    learner = Learner(mlp(30), HAT(s_max=100.0), epochs=3, device="cpu")
    tasks = hatrack.tasks("split-digits", seed=0)
    learner.learn(tasks[0])
    with pytest.raises(HatrackError, match="two finished tasks"):
        learner.forecast()
    learner.learn(tasks[1])
    found = learner.forecast()
    capacity = learner.capacity()
    assert capacity is not None
    assert found.free["layers"] == {name: 1 - taken for name, taken in capacity[-1]["layers"].items()}
    assert found.grown is not None
    assert found.grown.middle >= found.more.middle
    assert found.more.low <= found.more.middle <= found.more.high
    assert "After 2 tasks" in str(found)
    assert "\n" not in str(found)
    with pytest.raises(HatrackError, match="got 0"):
        learner.forecast(0)
    plain = Learner(mlp(30), METHODS["sgd"](), epochs=1, device="cpu")
    plain.learn(tasks[0])
    with pytest.raises(HatrackError, match="sets no weights aside"):
        plain.forecast()


def test_growth_brings_the_free_shares_that_were_foreseen() -> None:
    from hatrack.life.forecast import _wider

    learner = Learner(mlp(20), HAT(s_max=100.0), epochs=2, device="cpu")
    for task in hatrack.tasks("split-digits", seed=0)[:2]:
        learner.learn(task)
    foreseen = _wider(learner, learner.forecast().free, 0.5)
    learner.grow(0.5)
    now = learner.growths[-1].taken
    assert now is not None
    assert foreseen == [pytest.approx(1 - taken) for taken in now["layers"].values()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hatrack.errors.CapacityWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_twenty_tasks_of_permuted_digits_go_as_foreseen(seed: int) -> None:
    """Eight of ten draws lie within: of the forecasts after 4 to 10 tasks seven of ten must hold what happened."""
    torch.manual_seed(seed)
    net = nets.build("mlp", (1, 8, 8), widths=(100, 100), dropout=0.0, input_dropout=0.0)
    learner = Learner(net, HAT(), epochs=20, seed=seed, device="cpu")
    forecasts = {}
    for index, task in enumerate(hatrack.tasks("permuted-digits", seed=seed, tasks=20), start=1):
        learner.learn(task)
        if 4 <= index <= 10:
            forecasts[index] = learner.forecast()
    capacity = learner.capacity()
    assert capacity is not None
    roomy = [1 - max(after["layers"].values()) >= LITTLE - 1e-9 for after in capacity]
    assert not all(roomy), "the network ran out of room, else nothing is shown"
    fits = {done: sum(roomy[done - 1 :]) for done in forecasts}
    held = [forecast.more.low <= fits[done] <= forecast.more.high for done, forecast in forecasts.items()]
    assert sum(held) >= 0.7 * len(held), {d: (str(f.more), fits[d]) for d, f in forecasts.items()}
