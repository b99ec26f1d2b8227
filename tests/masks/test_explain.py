"""The unit map in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hatrack
from hatrack.cli import explain_net
from hatrack.errors import HatrackError
from hatrack.nets import build
from zoo import ZOO


def test_a_page_for_a_small_network() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    net.register_parameter("extra", nn.Parameter(torch.zeros(2)))
    assert str(hatrack.explain(net, torch.zeros(1, 1, 8, 8))) == "\n".join(
        [
            "Sequential: 9 units at 2 sites, 775 parameters",
            "",
            "site  units  written by                                  read by",
            "0         4  0                                           4",
            "4         5  4                                           heads",
            "",
            "Locked by unit, entry by entry, once a task uses the units an entry connects:",
            "  0.weight, 0.bias, 4.weight, 4.bias",
            "",
            "Kept per task (norms with running statistics):",
            "  1",
            "",
            "Never used by forward():",
            "  extra",
            "",
            "Checked on this network: with units closed at random, noise in every entry that the map calls unused",
            "left the features bit-identical.",
        ]
    )


def test_what_is_no_network_or_no_example_is_refused() -> None:
    with pytest.raises(HatrackError, match=r"a batch such as torch\.zeros\(1, 3, 32, 32\), got tuple \(1, 4\)"):
        hatrack.explain(nn.Linear(4, 2), (1, 4))  # type: ignore[arg-type]
    with pytest.raises(HatrackError, match=r"got Tensor of shape \(\)"):
        hatrack.explain(nn.Linear(4, 2), torch.tensor(1.0))
    with pytest.raises(HatrackError, match=r"got Tensor of shape \(0, 4\)"):
        hatrack.explain(nn.Linear(4, 2), torch.zeros(0, 4))
    with pytest.raises(HatrackError, match=r"got ndarray of shape \(1, 4\)"):
        hatrack.explain(nn.Linear(4, 2), np.zeros((1, 4)))  # type: ignore[arg-type]
    with pytest.raises(HatrackError, match=r"takes a torch module, got str; hatrack\.nets\.build makes some"):
        hatrack.explain("mlp", torch.zeros(1, 4))  # type: ignore[arg-type]


def test_pictures_may_be_bytes_as_tasks_hold_them() -> None:
    task = hatrack.tasks("split-digits", seed=0)[0]
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    assert str(hatrack.explain(net, task.test.first(2))) == str(hatrack.explain(net, torch.zeros(2, 1, 8, 8)))


def test_every_parameter_of_the_zoo_has_its_place_and_what_is_frozen_a_reason() -> None:
    for name in ("mixer", "spectrum", "transformed", "tied-bare", "vgg", "bare-batch-norm", "vit", "low-rank"):
        kept = ZOO[name]
        net = kept.build()
        found = hatrack.explain(net, kept.batch(1))
        placed = {*found.by_unit, *found.by_task, *found.frozen, *found.untrained, *found.unused}
        assert placed >= set(dict(net.named_parameters()))
        whole = [n for n, why in found.frozen.items() if why.startswith("whole: ")]
        assert {*whole, *found.untrained} == set(kept.frozen)
        for where in kept.notes:
            assert where in str(found)


def test_parts_of_a_parameter_can_be_frozen() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.tanh(self.a(x))
            return self.b(x[:, 3:]) * torch.fft.fft(x[:, :3]).real.sum(1, keepdim=True)

    found = hatrack.explain(Half(), torch.zeros(1, 4))
    assert found.frozen["a.bias"] == "50% of it: the units it serves are always on"
    assert "a.bias" in found.by_unit


def test_inputs_that_the_network_cannot_take_are_not_blamed_on_its_code() -> None:
    with pytest.raises(HatrackError, match=r"Sequential cannot take inputs of shape \(11,\).* layer '1' of") as caught:
        hatrack.explain(nn.Sequential(nn.Flatten(), nn.Linear(10, 3)), torch.zeros(1, 11))
    assert "branch" not in str(caught.value)


def test_lines_fit_the_width() -> None:
    text = hatrack.explain(build("resnet18", (3, 8, 8), width=2), torch.zeros(1, 3, 8, 8)).text(width=90)
    assert max(map(len, text.splitlines())) <= 90
    assert "stages.3.1.conv2" in text


def test_built_in_networks_by_name() -> None:
    assert explain_net("mlp", "1,4,4").startswith("Sequential: 4,000 units at 2 sites, 4,036,000 parameters")
    with pytest.raises(HatrackError, match="unknown net 'resnet'"):
        explain_net("resnet", "3,32,32")
