"""What the proof compares: entries that a task relied on, and no others."""

from __future__ import annotations

import torch

from hatrack.learn.proof import Vault


def test_only_what_the_vault_holds_can_drift() -> None:
    parameters = {"a.weight": torch.ones(2, 2), "b.weight": torch.ones(3)}
    vault = Vault()
    vault.add(parameters, {"a.weight": torch.tensor([[1.0, 0.0], [1.0, 0.0]])})
    everything = {name: torch.ones_like(p) for name, p in parameters.items()}
    assert not list(vault.drifts(parameters, everything))
    moved = {"a.weight": torch.tensor([[1.0, 5.0], [4.0, 5.0]]), "b.weight": torch.zeros(3)}
    [drift] = vault.drifts(moved, everything)
    assert (drift.layer, drift.entries, drift.largest) == ("a", 1, 3.0)
