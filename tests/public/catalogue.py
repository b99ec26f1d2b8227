"""All networks by name, "package/network"."""

from __future__ import annotations

from importlib import import_module

from . import by_hand, timm_nets, transformers_nets, vit_pytorch_nets, x_transformers_nets
from .architectures import Public

PACKAGES = {
    "timm": timm_nets,
    "transformers": transformers_nets,
    "vit-pytorch": vit_pytorch_nets,
    "x-transformers": x_transformers_nets,
    "by-hand": by_hand,
}
NETS: dict[str, Public] = {
    f"{package}/{name}": net for package, module in PACKAGES.items() for name, net in module.NETS.items()
}


def prepare() -> None:
    """Import the packages, once for all networks."""
    from . import torchvision_operators  # noqa: F401  timm and others import torchvision

    for package in PACKAGES.keys() - {"by-hand"}:
        import_module(package.replace("-", "_"))
    import_module("transformers").logging.set_verbosity_error()
