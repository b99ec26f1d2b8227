"""The unit map of the built-in networks, entry by entry against tables made by hand."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from hatrack.masks.trace import trace
from hatrack.nets import build


def hand_made_lock(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """min(a_out, a_in) by two plain loops."""
    lock = np.zeros((len(above), len(below)))
    for i in range(len(above)):
        for j in range(len(below)):
            lock[i, j] = min(above[i], below[j])
    return lock


def test_mlp_lock_is_the_min_of_both_sides() -> None:
    units = trace(build("mlp", (1, 4, 4), widths=(5, 7)), torch.randn(1, 1, 4, 4))
    assert [(s.name, s.size, s.writers, s.readers) for s in units.sites] == [
        ("fc1", 5, ("fc1",), ("fc2",)),
        ("fc2", 7, ("fc2",), ("heads",)),
    ]
    a = np.random.default_rng(0).uniform(size=12)
    used = units.used(torch.from_numpy(a))
    first, second = a[:5], a[5:]
    np.testing.assert_array_equal(used["fc1.weight"].numpy(), np.repeat(first[:, None], 16, axis=1))
    np.testing.assert_array_equal(used["fc1.bias"].numpy(), first)
    np.testing.assert_array_equal(used["fc2.weight"].numpy(), hand_made_lock(second, first))
    np.testing.assert_array_equal(used["fc2.bias"].numpy(), second)


def test_alexnet_lock_repeats_filters_over_their_positions_after_the_flatten() -> None:
    units = trace(build("alexnet", (3, 32, 32), width=10), torch.randn(1, 3, 32, 32))
    sizes = {s.name: s.size for s in units.sites}
    assert sizes == {"conv1": 64, "conv2": 128, "conv3": 256, "fc1": 10, "fc2": 10}
    a = np.random.default_rng(1).uniform(size=units.size)
    gates = {s.name: a[s.start : s.start + s.size] for s in units.sites}
    used = {name: value.numpy() for name, value in units.used(torch.from_numpy(a)).items()}
    assert used["conv1.weight"].shape == (64, 3, 4, 4)
    first = np.broadcast_to(gates["conv1"][:, None, None, None], (64, 3, 4, 4))
    np.testing.assert_array_equal(used["conv1.weight"], first)
    conv2 = hand_made_lock(gates["conv2"], gates["conv1"])
    np.testing.assert_array_equal(used["conv2.weight"], np.broadcast_to(conv2[:, :, None, None], (128, 64, 3, 3)))
    per_position = np.array([gates["conv3"][channel] for channel in range(256) for _ in range(4)])
    np.testing.assert_array_equal(used["fc1.weight"], hand_made_lock(gates["fc1"], per_position))
    np.testing.assert_array_equal(used["fc2.bias"], gates["fc2"])


def test_tracing_leaves_the_network_as_it_was() -> None:
    net = build("alexnet", (3, 32, 32), width=8)
    net.train()
    next(m for m in net.modules() if isinstance(m, nn.Dropout)).eval()
    modes = [m.training for m in net.modules()]
    before = {name: p.clone() for name, p in net.named_parameters()}
    trace(net, torch.randn(1, 3, 32, 32))
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())
    assert not any(m._forward_pre_hooks for m in net.modules())
