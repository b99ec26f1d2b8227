"""Take away any single protection, and verify must find out. A check that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from hatrack import HAT, HatrackError, Learner
from hatrack.learn.groups import Groups
from hatrack.learn.proof.verification import Verification
from hatrack.masks.lock import Lock
from hatrack.masks.unitmap import ON, UnitMap
from zoo import ZOO, Lively, alive, tasks, unit_map

pytestmark = [
    pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning"),
    pytest.mark.filterwarnings("ignore::hatrack.learn.capacity.CapacityWarning"),
]


def pushy(parameters: Groups) -> torch.optim.Optimizer:
    return torch.optim.AdamW([*parameters, *parameters["gates"]], lr=0.02, weight_decay=0.1)


def plain(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def verdict(
    name: str,
    mutate: Callable[[UnitMap], None] = lambda units: None,
    method: HAT | None = None,
    optimiser: Callable[[list[Tensor]], torch.optim.Optimizer] = pushy,
) -> Verification:
    """Learn two tasks with a unit map that `mutate` has spoiled."""
    units = deepcopy(unit_map(name))
    mutate(units)
    learner = Learner(ZOO[name].build(), method or Lively(), optimiser, epochs=2, batch_size=8)
    learner.model.__dict__["units"] = units
    for task in tasks(ZOO[name], count=2):
        learner.learn(task)
    assert alive(learner)
    return learner.verify()


@pytest.mark.parametrize("name", ["mlp-tanh", "vgg", "mobile", "resnet18", "vit", "by-hand", "lstm", "bare", "llama"])
def test_with_all_protections_nothing_drifts(name: str) -> None:
    assert verdict(name).ok


USES = {
    "mlp-tanh": ["1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"],
    "mobile": ["depthwise.weight", "depthwise.bias", "squeeze.up.weight", "squeeze.down.bias", "grouped.weight"],
    "resnet18": ["conv.weight", "stages.1.0.shortcut.0.weight", "stages.1.1.conv2.weight"],
    "vit": [
        "patches.bias", "token", "positions", "blocks.0.norm1.weight", "blocks.0.norm2.bias", "norm.weight",
        "blocks.0.attention.in_proj_weight", "blocks.0.attention.in_proj_bias", "blocks.1.attention.out_proj.weight",
        "blocks.1.fc1.bias",
    ],
    "lstm": ["rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_hh_l0"],
    "bare": ["kernel", "shift", "c", "d"],
    "llama": ["embed.weight", "q.weight", "norm2.scale", "up.weight"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "parameter"), [(name, p) for name, found in USES.items() for p in found])
def test_a_parameter_that_nothing_locks(name: str, parameter: str) -> None:
    def unlock(units: UnitMap) -> None:
        del units.uses[parameter]

    found = verdict(name, unlock)
    assert not found.ok
    assert found.tasks[0].changed_logits > 0


# In front of a layer, in a weight, in the weights that wrote queries and keys: there a gate on either factor of the
# product is enough, so both are taken away.
READS = {
    "mlp-tanh": ["3", "5"],
    "resnet18": ["stages.1.0.shortcut.0", "stages.2.1.conv1"],
    "vit": [
        "blocks.1.norm1",
        "blocks.0.fc1",
        "blocks.0.attention.in_proj_weight",
        "blocks.1.attention.out_proj.weight",
    ],
    "by-hand": ["3.qkv.weight 3.qkv.bias", "2"],
    "lstm": ["rnn", "rnn.weight_hh_l0"],
    "bare": ["a", "c", "e"],
    "llama": ["norm2", "q.weight k.weight"],
}


@pytest.mark.parametrize(("name", "place"), [(name, p) for name, found in READS.items() for p in found])
def test_a_read_that_nothing_gates(name: str, place: str) -> None:
    def open_up(units: UnitMap) -> None:
        places = place.split()
        gated = {read.module or read.parameter for read in units.reads}
        assert gated >= set(places)
        units.reads = [read for read in units.reads if (read.module or read.parameter) not in places]

    assert not verdict(name, open_up).ok


def test_heads_that_see_closed_units() -> None:
    def open_up(units: UnitMap) -> None:
        units.features = torch.full_like(units.features, ON)

    assert not verdict("mlp-tanh", open_up).ok


class OneNormShared(Lively):
    """HAT that forgets to keep one norm's tensors per task."""

    norm_layer = ""

    def private(self) -> Any:
        return {n: t for n, t in super().private().items() if not n.startswith(f"{self.norm_layer}.")}

    def finish(self, feed: Any) -> None:
        super().finish(feed)
        for name in [n for n in self.model.private[self.task] if n.startswith(f"{self.norm_layer}.")]:
            del self.model.private[self.task][name]


@pytest.mark.parametrize(("name", "layer"), [("vgg", "1"), ("vgg", "14"), ("resnet18", "stages.1.0.shortcut.1")])
def test_a_norm_that_tasks_share(name: str, layer: str) -> None:
    method = OneNormShared()
    method.norm_layer = layer
    assert not verdict(name, method=method).ok


def nothing(*_: object) -> None:
    """Protect nothing."""


def test_no_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner refuses to finish the task; did it not, verify would find out."""
    monkeypatch.setattr(Lock, "restore", nothing)
    with pytest.raises(HatrackError, match="has locked entries and was replaced"):
        verdict("mlp-tanh")
    monkeypatch.setattr(Lock, "refuse_lost", nothing)
    found = verdict("mlp-tanh")
    assert not found.ok
    assert found.tasks[0].drifts[0].layer == "1"


def test_no_mask_on_the_gradients_where_single_steps_rely_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain SGD is trusted to leave entries without gradient alone; then the gradient mask is all there is."""
    monkeypatch.setattr(Lock, "restore", nothing)
    assert verdict("mlp-tanh", optimiser=plain).ok
    monkeypatch.setattr(Lock, "refuse_lost", nothing)
    monkeypatch.setattr(Lock, "on_gradients", nothing)
    assert not verdict("mlp-tanh", optimiser=plain).ok
