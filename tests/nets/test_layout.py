"""Channels last is for training alone, for networks that take it, and changes nothing but the order of sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hatrack import Learner, Task
from hatrack.nets.layout import best_layout, laid_out
from hatrack.nets.model import Model

CPU = torch.device("cpu")
SEEN: list[tuple[bool, bool]] = []  # (training, channels last)


class Convolutions(nn.Module):
    """Notes how its inputs lie in memory."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        SEEN.append((self.training, y.stride(1) == 1))
        return y.relu().flatten(1)


class Views(Convolutions):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(len(x), -1).view(x.shape))


class ByMemory(Convolutions):
    """Reads the entries as they lie in memory, whatever they mean."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.as_strided(x.shape, torch.empty(x.shape).stride()))


def layout_of(net: nn.Module, shape: tuple[int, ...] = (3, 8, 8)) -> torch.memory_format:
    model = Model(net, CPU)
    model.look(torch.randn(1, *shape))
    return model._layout


def test_networks_of_convolutions_take_it_and_others_do_not() -> None:
    assert layout_of(Convolutions()) == torch.channels_last
    assert layout_of(nn.Sequential(nn.Flatten(), nn.Linear(192, 4))) == torch.contiguous_format
    assert layout_of(nn.Sequential(nn.Conv1d(3, 4, 2), nn.Flatten()), (3, 8)) == torch.contiguous_format
    assert layout_of(Views()) == torch.contiguous_format
    assert layout_of(ByMemory()) == torch.contiguous_format


class Shortcut(nn.Module):
    """A strided 1×1 convolution inside forward(), as of a residual network's shortcut."""

    def __init__(self, channels: int, stride: int = 2) -> None:
        super().__init__()
        self.conv, self.stride = nn.Conv2d(3, channels, 3), stride
        self.weight = nn.Parameter(torch.randn(8, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(self.conv(x), self.weight, stride=self.stride).flatten(1)


def test_convolutions_that_onednn_computes_beyond_their_memory_do_not_take_it() -> None:
    assert layout_of(Shortcut(7)) == torch.contiguous_format
    assert layout_of(Shortcut(8)) == torch.channels_last
    assert layout_of(Shortcut(7, stride=1)) == torch.channels_last


@pytest.mark.parametrize("channels", [1, 3])
def test_a_learner_trains_so_and_answers_from_inputs_as_they_come(channels: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, channels, 8, 8)
    y = torch.arange(40) % 2
    SEEN.clear()
    learner = Learner(Convolutions(channels), epochs=1, batch_size=10, device="cpu")
    learner.learn(Task("a", train=(x, y), valid=(x, y)))
    trained = [last for training, last in SEEN if training]
    SEEN.clear()
    learner.predict(x[:3], 0)
    answered = [last for training, last in SEEN if not training]
    assert trained
    assert all(trained)
    assert answered == [False]


def test_the_features_are_the_same_within_rounding() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 3, groups=2), nn.Flatten())
    x = torch.randn(5, 3, 12, 12)
    plain = net(x)
    assert best_layout(net, net, x, plain) == torch.channels_last
    torch.testing.assert_close(net(laid_out(x, torch.channels_last)), plain, rtol=1e-4, atol=1e-5)


def test_the_networks_own_tensors_keep_their_layout() -> None:
    net = Convolutions()
    learner = Learner(net, epochs=1, batch_size=10, device="cpu")
    x = torch.randn(40, 3, 8, 8)
    learner.learn(Task("a", train=(x, torch.arange(40) % 2), valid=(x, torch.arange(40) % 2)))
    assert all(p.is_contiguous() for p in net.parameters())
