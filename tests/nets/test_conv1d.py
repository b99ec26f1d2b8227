"""The network for time series: its size by hand, what it computes, its refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hatrack.errors import HatrackError
from hatrack.nets import build


def test_size() -> None:
    net = build("conv1d", (12, 128))
    by_hand = 7 * (12 * 32 + 32 * 64 + 64 * 64) + 2 * (32 + 64 + 64)
    assert sum(p.numel() for p in net.parameters()) == by_hand
    with torch.no_grad():
        assert net.eval()(torch.zeros(2, 12, 128)).shape == (2, 4 * 64)
        assert net(torch.zeros(2, 12, 29)).shape == (2, 4 * 64)  # of any length


def test_features_against_plain_loops() -> None:
    torch.manual_seed(0)
    net = build("conv1d", (2, 8), widths=(3, 2), kernel=3, stretches=2).double().eval()
    x = torch.randn(1, 2, 8, dtype=torch.float64)

    def conv(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        padded = np.pad(rows, ((0, 0), (1, 1)))
        steps = range(rows.shape[1])
        sums = [[(kernel * padded[:, t : t + 3]).sum() for t in steps] for kernel in weight]
        return np.maximum(np.array(sums) / np.sqrt(1 + 1e-5), 0)  # the norm as it begins: mean 0, variance 1

    first, second = (layer.weight.detach().numpy() for layer in (net.conv1, net.conv2))
    rows = conv(x[0].numpy(), first).reshape(3, 4, 2).max(2)
    wanted = conv(rows, second).reshape(2, 2, 2).mean(2).reshape(-1)
    np.testing.assert_allclose(net(x)[0].detach(), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "options", "says"),
    [
        ((3, 32, 32), {}, r"series of at least 4 values as \(channels, length\), got \(3, 32, 32\); for other"),
        ((3, 3), {}, r"series of at least 4 values as \(channels, length\), got \(3, 3\)"),
        ((3, 16), {"kernel": 4}, "an odd kernel .*, got .*kernel=4"),
        ((3, 16), {"kernel": -1}, "an odd kernel .*, got .*kernel=-1"),
        ((3, 16), {"widths": []}, r"at least one width, .*, got widths=\[\]"),
        ((3, 16), {"stretches": 0}, "at least one stretch, got .*stretches=0"),
    ],
)
def test_refusals(shape: tuple[int, ...], options: dict[str, object], says: str) -> None:
    with pytest.raises(HatrackError, match=f"conv1d takes .*{says}"):
        build("conv1d", shape, **options)
