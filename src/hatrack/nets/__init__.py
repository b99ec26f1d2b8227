"""Backbones by name: each takes the shape of one input, if it asks for it, and returns x → features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from hatrack.errors import HatrackError, unknown
from hatrack.nets.alexnet import alexnet
from hatrack.nets.conv1d import conv1d
from hatrack.nets.mlp import mlp
from hatrack.nets.resnet import resnet18, resnet50
from hatrack.nets.vit import ViT
from hatrack.options import check_options, defaults, parameters
from hatrack.registry import Registry

# Options that give a method columns or modules with a size and a start of their own, out of the network of all methods.
OWN = ("part", "branches", "init")


def _net(found: Any, name: str, where: str) -> Callable[..., nn.Module]:
    """Return what makes a network: a function, or a class of modules, whose options can be settings."""
    if isinstance(found, nn.Module):
        raise HatrackError(f"{where} is a network already; give the function or class that makes it, from the seed.")
    if not callable(found) or (isinstance(found, type) and not issubclass(found, nn.Module)):
        raise HatrackError(f"{where} must be a function that makes a network, or a torch module, got {found!r:.99}.")
    check_options(found, ("shape",), where)
    makes: Callable[..., nn.Module] = found
    return makes


NETS: Registry[Callable[..., nn.Module]] = Registry(
    "net",
    {"alexnet": alexnet, "conv1d": conv1d, "mlp": mlp, "resnet18": resnet18, "resnet50": resnet50, "vit": ViT},
    _net,
)


def options(name: str) -> dict[str, Any]:
    """Return the options of a network with their defaults (None where one is required)."""
    return defaults(NETS.find(name), ("shape",))


def build(name: str, shape: Sequence[int], **chosen: Any) -> nn.Module:
    """Return a network for inputs of `shape`: a built-in one, file.py:Name or package.module:Name.

    The function or class that makes it is given the shape where it has a parameter of that name.
    """
    return make(NETS.named(name), shape, **chosen)


def make(name: str, shape: Sequence[int], **chosen: Any) -> nn.Module:
    """Return the same by a name that is known already."""
    accepted = options(name)
    for key in chosen:
        if key not in accepted:
            raise unknown(f"option of net {name!r}", key, accepted)
    net = NETS[name]
    made = net(shape, **chosen) if "shape" in parameters(net) else net(**chosen)
    if not isinstance(made, nn.Module):
        raise HatrackError(f"net {name!r} must return a torch module, got {made!r:.99}.")
    return made
