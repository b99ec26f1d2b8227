"""A finished task as a module of its own: the network without the units that the task has closed.

What is closed is removed where that can be done (masks/slicing.py), and is zeros where it cannot. Nothing is believed:
every cut is tried on inputs such as the task learned, and a site whose cut changes an answer by more than rounding
stays whole. All this depends on nothing but the task's own tensors, so that a cut-out which is taken after later tasks
is the same byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from hatrack.errors import HatrackError
from hatrack.features import Features
from hatrack.masks.cutting import close
from hatrack.modes import one_thread, untouched
from hatrack.ship.answered import answered
from hatrack.ship.knife import Knife
from hatrack.ship.plain import whole, without_ours
from hatrack.tree import at, call, named

if TYPE_CHECKING:
    from hatrack.learn.core import Core
    from hatrack.learn.learned import Learned


def cut_out(core: Core, task: int) -> fx.GraphModule:
    """Return a finished task, given by number, as a module from raw inputs to answers."""
    learned, model = core.tasks[task], core.model.at(task)
    raw = learned.probes(core.seed, task, core.device)
    x = learned.prepared(raw, core.device)
    with one_thread():
        asked = answered(core.method, x, task, learned.name)
        knife = Knife(model, asked, model.heads[task], x)
        objection = knife.objection()
        if objection is not None:
            raise HatrackError(
                f"task {learned.name!r} cannot be cut out of {type(model.net).__name__}: its gates cannot be written "
                f"into a copy of the network ({objection})."
            )
        cut = knife.cut()
        net, notes = _without_ours(cut.net)
        with untouched(net):
            output = call(net, at(x, slice(2)))
        module = whole(
            net,
            cut.head_for(learned.target),
            inputs=learned.inputs,
            like=at(x, slice(1)),
            from_bytes=_from_bytes(learned, raw),
            pick=_reader(model.picked, output),
            gate=cut.open_features,
            axis=model.heads[task].axis,
        ).eval()
        with untouched(module):
            same = close(call(module, raw), learned.target.answer(asked.logits))
        if not same:
            raise HatrackError(
                f"task {learned.name!r} cannot be cut out of {type(model.net).__name__}: written down as a module of "
                f"its own, it gives other answers than predict."
            )
    target = learned.target
    module.task, module.classes = learned.name, tuple(getattr(target, "names", None) or range(target.outputs))  # type: ignore[assignment]
    module.sites, module.notes = cut.sites, (*cut.notes, *notes)  # type: ignore[assignment]
    return module


def _without_ours(net: Any) -> tuple[Any, tuple[str, ...]]:
    try:
        return without_ours(net), ()
    except Exception as error:  # what torch.fx cannot trace fails in any way
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return net, (f"{type(net).__name__} has layers of hatrack's, and a pickle of it needs hatrack ({first})",)


def _from_bytes(learned: Learned, raw: Any) -> set[str]:
    """Name the inputs that may be bytes: those that were, and what was looked at when it was prepared already."""
    looked = getattr(learned.kind, "raw", True)
    parts = named(raw).items()
    return {name for name, part in parts if part.dtype == torch.uint8 or (not looked and part.is_floating_point())}


def _reader(features: Features, output: Any) -> Callable[[Any, Any], Any]:
    """Return what takes the features out of an output of this kind, in a way that can be written down."""
    pick = features.pick
    if isinstance(pick, str | int) and (isinstance(pick, int) or isinstance(output, Mapping)):
        return lambda out, x: out[pick]
    return features.taken
