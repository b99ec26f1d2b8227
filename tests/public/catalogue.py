"""All networks by name, "package/network"."""

from __future__ import annotations

from importlib import import_module

from . import by_hand, padded_nets, peft_nets, timm_nets, transformers_nets, vit_pytorch_nets, x_transformers_nets
from .architectures import Public

PACKAGES = {
    "timm": timm_nets.NETS,
    "transformers": transformers_nets.NETS | padded_nets.NETS,
    "peft": peft_nets.NETS,
    "vit-pytorch": vit_pytorch_nets.NETS,
    "x-transformers": x_transformers_nets.NETS,
    "by-hand": by_hand.NETS,
}
NETS: dict[str, Public] = {f"{package}/{name}": net for package, nets in PACKAGES.items() for name, net in nets.items()}


def prepare(*packages: str) -> None:
    """Import packages, by default all, once for all their networks."""
    for package in packages or PACKAGES.keys() - {"by-hand"}:
        module = import_module(package.replace("-", "_"))
        if package == "transformers":
            module.logging.set_verbosity_error()
