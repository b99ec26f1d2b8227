"""Built-in backbones by name: each takes the shape of one input and returns x → features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

from torch import nn

from hatrack.errors import unknown
from hatrack.nets.alexnet import alexnet
from hatrack.nets.mlp import mlp
from hatrack.nets.resnet import resnet18, resnet50
from hatrack.nets.vit import vit

NETS: dict[str, Callable[..., nn.Module]] = {
    "alexnet": alexnet, "mlp": mlp, "resnet18": resnet18, "resnet50": resnet50, "vit": vit,
}  # fmt: skip
# Options that give a method columns or modules of a size of its own, out of the network that all methods have.
OWN_SIZE = ("width_scale", "branches")


def options(name: str) -> dict[str, Any]:
    """Return the options of a built-in network with their defaults."""
    if name not in NETS:
        raise unknown("net", name, NETS)
    given = list(signature(NETS[name]).parameters.values())[1:]
    return {p.name: p.default for p in given if p.default is not Parameter.empty}


def build(name: str, shape: Sequence[int], **chosen: Any) -> nn.Module:
    """Return the built-in network `name` for inputs of `shape`."""
    accepted = options(name)
    for key in chosen:
        if key not in accepted:
            raise unknown(f"option of net {name!r}", key, accepted)
    return NETS[name](shape, **chosen)
