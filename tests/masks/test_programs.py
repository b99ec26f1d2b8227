"""Random forward passes: whatever the map says about them, numbers must agree."""

from __future__ import annotations

import pytest
import torch

from hatrack.masks.trace import derive
from oracle import dependence, garbage_findings, gated_features, random_gates
from programs import Program


def check(seed: int) -> None:
    torch.manual_seed(seed)
    net = Program(seed, length=3 + seed % 6)
    units = derive(net, torch.randn(1, 4, 6))
    x = torch.randn(3, 4, 6)
    assert garbage_findings(net, units, x, seed) == [], net.text
    for name, (claimed, real) in dependence(net, units, x, seed=seed).items():
        assert not bool((real & ~claimed).any()), (name, net.text)
    gates = random_gates(units, 0.6, seed)
    with torch.no_grad():
        whole = gated_features(net, units, gates, x)
        alone = torch.cat([gated_features(net, units, gates, x[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(alone, whole, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", [*range(16), 443])  # 443 once found a gate that left a constant behind
def test_the_map_of_a_random_program_holds(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_the_maps_of_many_random_programs_hold(seed: int) -> None:
    check(seed)
