"""What cannot be traced is refused in one line that names the layer and the way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hatrack.errors import HatrackError, HatrackWarning
from hatrack.masks.trace import derive, trace


class Odd(nn.Module):
    """A layer with a forward of our choice."""

    def __init__(self, forward: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)
        self.chosen = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.chosen(self, x)


def branch(layer: nn.Module, x: Tensor) -> Tensor:
    return layer.linear(x) if float(x.mean()) > 0 else x


def autocast(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = layer.linear(x)
    return x.float()


def two(layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    return x, layer.linear(x)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (branch, ("layer '1' of Sequential", "a Python branch depends on the data", "needs no unit map")),
        (autocast, ("1 uses", "autocast", "take it out of forward")),
        (two, ("Sequential must map a batch to one tensor", "(2, 5), (2, 5)", "wrap it")),
        (lambda layer, x: layer.linear(x).sum(1), ("one tensor of features", "(2,)")),
    ],
)
def test_refusals(
    forward: Callable[[nn.Module, Tensor], Tensor], words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HatrackError) as caught:
        derive(nn.Sequential(nn.Linear(5, 5), Odd(forward)), torch.randn(1, 5))
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_forward_that_writes_its_own_parameters_is_refused() -> None:
    net = nn.Sequential(nn.Embedding(9, 4, max_norm=1.0), nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(HatrackError, match=r"0.weight is changed by .*max_norm.*switch that off"):
        derive(net, torch.zeros(1, 3, dtype=torch.long))


def test_a_buffer_that_forward_changes_is_noted() -> None:
    def count(layer: nn.Module, x: Tensor) -> Tensor:
        layer.calls += 1
        return layer.linear(x) * layer.calls

    layer = Odd(count)
    layer.register_buffer("calls", torch.zeros(1))
    with pytest.warns(HatrackWarning, match="Sequential: 0.calls is a buffer that forward"):
        trace(nn.Sequential(layer), torch.randn(1, 5))


def test_what_is_handled_with_caution_is_warned_of_by_name() -> None:
    net = nn.Sequential(nn.Linear(5, 5), Odd(lambda layer, x: torch.special.bessel_j0(layer.linear.weight.sum()) * x))
    with pytest.warns(HatrackWarning, match="Sequential: 1.linear.weight is frozen after the first task"):
        trace(net, torch.randn(1, 5))


def test_a_failed_trace_leaves_modes_and_hooks_as_they_were() -> None:
    net = nn.Sequential(nn.Linear(5, 5), nn.Dropout(), Odd(branch)).train()
    net[1].eval()
    with pytest.raises(HatrackError):
        derive(net, torch.randn(1, 5))
    assert [m.training for m in (net, *net)] == [True, True, False, True]
    assert not any(m._forward_pre_hooks for m in net.modules())


def test_a_forward_that_writes_its_own_weights_has_written_none_when_it_is_refused() -> None:
    def halve(layer: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad():
            layer.linear.weight.div_(2)
        return layer.linear(x)

    net = nn.Sequential(Odd(halve))
    before = net[0].linear.weight.clone()
    with pytest.raises(HatrackError, match=r"0\.linear\.weight is changed by the network's own forward pass"):
        derive(net, torch.randn(1, 5))
    assert torch.equal(net[0].linear.weight, before)
