"""Releasing, updating, growing, finding the task and certificates, one after another on one network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hatrack
from hatrack import HatrackError, Learner
from hatrack.methods import METHODS
from hatrack.ship.certificate.check_hatrack import compare
from hatrack.ship.stored import packed

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
METHODS_HERE = ["hat", "pmask", *(pytest.param(name, marks=pytest.mark.slow) for name in ("packnet", "wsn"))]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU())


@pytest.mark.parametrize("method", METHODS_HERE)
def test_a_long_life(method: str, tmp_path: Path) -> None:
    first, second, third, fourth, _ = hatrack.tasks("split-digits", seed=0)
    last = method == "packnet"  # of which only the last task is alone with its weights
    learner = Learner(net(), METHODS[method](), epochs=3, device="cpu")
    learner.learn(first)
    learner.learn(second)
    gone, kept = (second, first) if last else (first, second)
    x = kept.test.first(50)
    before, file = learner.predict(x, kept.name), packed(learner.cut_out(kept.name))
    learner.save(tmp_path / "old")

    def require_kept(learner: Learner) -> None:
        assert bits(learner.predict(x, kept.name)) == bits(before)
        assert learner.verify().ok, str(learner.verify())

    learner.release(gone.name)
    require_kept(learner)
    learner.grow(0.5)
    require_kept(learner)
    assert dict(compare_of(learner, tmp_path))[kept.name] == []
    learner.learn(third)
    updated = learner.update(third.name, third, accept="always")
    assert updated.accepted
    require_kept(learner)
    learner.revert(third.name)
    require_kept(learner)
    learner.learn(gone)
    learner.grow({learner.model.units.sites[0].name: 3})
    learner.learn(fourth)
    require_kept(learner)

    found = learner.predict(x)
    assert set(found.task) <= {None, kept.name, third.name, gone.name, fourth.name}
    assert sum(name == kept.name for name in found.task) > len(x) / 2
    for told in (kept, third, gone):
        with pytest.raises(HatrackError, match=r"cannot be updated: the network has grown"):
            learner.update(told.name, told)

    learner.save(tmp_path / "new")
    for again in (net(), learner.model.net):
        loaded = hatrack.load(tmp_path / "new", again, device="cpu")
        require_kept(loaded)
        assert loaded.predict(x).task == found.task
    changes = compare(tmp_path / "old", tmp_path / "new")
    assert changes[kept.name] == []
    assert changes[gone.name] != []
    assert packed(learner.cut_out(kept.name)) == file
    released = learner.release(fourth.name) if not last else learner.release(oldest=False, task=fourth.name)
    assert released.task == fourth.name
    require_kept(learner)
    assert packed(learner.cut_out(kept.name)) == file


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()


def compare_of(learner: Learner, folder: Path) -> dict[str, Any]:
    learner.save(folder / "between")
    return compare(folder / "old", folder / "between")
