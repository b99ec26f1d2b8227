"""A classifier's own last layer, left on the network that is handed over: heads would then read its classes.

It is the layer whose output the features are, as it is, and which is called as such layers are, or is as wide as there
are classes. A network whose features come out of an activation, a norm or a pooling is never meant.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from hatrack.errors import HatrackWarning
from hatrack.modes import evaluating, untouched
from hatrack.nets.model import Model

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NAMES = {"fc", "classifier", "head", "heads", "logits", "cls"}
USUAL = (10, 100, 1000, 21841, 21843)  # classes of the sets that networks are trained on beforehand


def own_last_layer(model: Model, x: Any) -> str | None:
    """Name the linear layer whose output the features of `x` are; None where something else comes out."""
    seen: list[tuple[str, Tensor, int]] = []

    def note(name: str) -> Any:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            if isinstance(out, Tensor):
                seen.append((name, out, out._version))

        return hook

    layers = [(name, module) for name, module in model.net.named_modules() if isinstance(module, LAYERS) and name]
    hooks = [module.register_forward_hook(note(name)) for name, module in layers]
    try:
        with evaluating(model.net), torch.no_grad(), untouched(model.net):
            features = model.picked(x)
    finally:
        for hook in hooks:
            hook.remove()
    for name, out, version in seen:
        same = out.data_ptr() == features.data_ptr() and out.numel() == features.numel()
        if same and out._version == version:  # nothing was written into it since, as an activation in place does
            return name
    return None


def notice_last_layer(model: Model, x: Any, task: str, outputs: int) -> None:
    """Say, before the first task, how a classifier's own last layer is taken off or adopted."""
    name = own_last_layer(model, x)
    if name is None:
        return
    weight = model.net.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    width, reads = weight.shape[:2]
    counted = width < reads and (width == outputs or width in USUAL)
    if NAMES & set(name.split(".")) or counted:
        warnings.warn(
            HatrackWarning(
                f"before {task!r}: the network ends in {name}, {width} wide, which looks like a classifier's own last "
                f"layer: new heads would read its {width} outputs. Take it off ({taken_off(name)}) before the learner "
                f"is made; to keep what it can do, learner.adopt(task, head=head) before all other tasks."
            ),
            stacklevel=6,
        )


def taken_off(name: str) -> str:
    """Return the line of Python that takes a layer off a network."""
    place = "net" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in name.split("."))
    return f"head, {place} = {place}, torch.nn.Identity()"
