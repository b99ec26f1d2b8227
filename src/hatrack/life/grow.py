"""Growing: more units for a network that has little left, between two tasks.

    sites     a share of all that can be widened, or so many units at some; what is tied to them comes along
    new       entries are drawn as their layers draw them, from the seed
    old       tasks are answered at the width that they were learned with (nets/generation.py)

It is tried before it is done, on a copy; then every finished task answers its probes once more, and unless it does so
to the last bit all is put back.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import torch

from hatrack.errors import CapacityWarning, HatrackError, unknown
from hatrack.learn.capacity import taken_weights
from hatrack.learn.growth import Growth
from hatrack.learn.proof import verification as proof
from hatrack.learn.seeds import generator, stream
from hatrack.methods.base import Method
from hatrack.methods.parts.growing import Growing, short_sites
from hatrack.modes import undisturbed
from hatrack.nets.widening import Plan, Widening

if TYPE_CHECKING:
    from hatrack.learn.core import Core


@dataclass(frozen=True)
class Grown:
    """What growing was.

    sites       the number of units before and after, of every site that was widened
    left        sites that were asked for and stayed as they are, and why
    parameters  of the network, before and after
    free        the share of weights that later tasks may change; None where nothing is locked
    """

    sites: dict[str, tuple[int, int]]
    left: dict[str, str]
    parameters: tuple[int, int]
    free: float | None

    def __str__(self) -> str:
        before, after = self.parameters
        widened = ", ".join(f"{site} {was}→{now}" for site, (was, now) in self.sites.items())
        said = f"{before:,} parameters became {after:,} ({after / before - 1:+.0%}): {widened}"
        if self.free is not None:
            said += f"; {self.free:.1%} of the weights are free"
        if self.left:
            said += "; as they were: " + ", ".join(f"{site} ({why})" for site, why in self.left.items())
        return said + "."

    __repr__ = __str__


def grow(core: Core, more: float | Mapping[str, int]) -> Grown:
    """Widen the network, or leave all as it was."""
    with core.model.alone(), undisturbed():
        core._refuse_if_learning()
        core._refuse_if_broken()
        if len(core.tasks) > core.finished:
            raise HatrackError(
                f"the learner is in the middle of task {core.tasks[-1].name!r}; grow between two tasks: go on with it, "
                f"or give it up with learner.abandon()."
            )
        core.model.refuse_altered()
        if type(core.method).grown is Method.grown:
            core.method.grown(None, torch.Generator())  # type: ignore[arg-type]  # which says why not
        plan = planned(core, more)
        return carried_out(core, plan)[0]


def planned(core: Core, more: float | Mapping[str, int]) -> Plan:
    """Return what would be widened, tried on a copy."""
    model = core.model
    if model.example is None:
        raise HatrackError("a network can grow once it has met an input; learn a task first, or make it wider.")
    if isinstance(more, Mapping):
        wanted = _wanted(core, more)
    elif isinstance(more, bool) or not isinstance(more, int | float) or not 0 < more < float("inf"):
        raise HatrackError(f"grow takes a share, 0.25 for a quarter more units, or units by site, got {more!r}.")
    else:
        wanted = {site.name: ceil(more * site.size) for site in model.units.sites}
    return Widening(model, _seed(core)).plan(wanted)


def _seed(core: Core) -> int:
    return stream(core.seed, "grow", len(core.growths), 0)


def _wanted(core: Core, more: Mapping[str, int]) -> dict[str, int]:
    names = [site.name for site in core.model.units.sites]
    for site, count in more.items():
        if site not in names:
            raise unknown("site", site, names)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise HatrackError(f"site {site!r} can get 1 unit or more, a whole number, got {count!r}.")
    if not more:
        raise HatrackError("no site is named; give units by site, as explain names them, or a share of all.")
    return dict(more)


def carried_out(core: Core, plan: Plan) -> tuple[Grown, Callable[[], None]]:
    """Widen the network as it was planned, and return what undoes it; put all back where a task answers otherwise."""
    model, method = core.model, core.method
    sizes, before, answers = {site.name: site.size for site in model.units.sites}, _parameters(core), _answers(core)
    state = {name: tensor.detach().clone() for name, tensor in method.state().items()}
    locked = core.locked_values
    values, held, known = dict(locked.values), dict(locked.held), list(core.growths)
    relied = [probe.relied for probe in core.probes]
    undo_model = model.widen(plan, core.finished)

    def undo() -> None:
        undo_model()
        method.load_state(state, core.finished, model.device)
        locked.values, locked.held = values, held
        core.growths[:] = known
        for probe, told in zip(core.probes, relied, strict=True):
            probe.relied = told

    try:
        method.grown(plan.places, generator(core.seed, "grow", len(known), 1))
        locked.widen(plan.places, dict(model.net.named_parameters()))
        for probe in core.probes:
            probe.relied = None  # entries have other places now: noted anew when the learner is saved
        for task, then, now in zip(core._compared(), answers, _answers(core), strict=True):
            if then.shape != now.shape or not bool(proof.same_bits(then, now).all()):
                raise HatrackError(
                    f"{type(model.net).__name__} cannot grow: task {core.tasks[task].name!r} would give other answers "
                    f"at its old width; all is as it was."
                )
        sites = {site: (sizes[site], sizes[site] + count) for site, count in plan.sites.items() if count}
        parameters, taken = (before, _parameters(core)), taken_weights(method)
        told = {site: list(sizes) for site, sizes in sites.items()}
        core.growths.append(Growth(core.finished, plan.counts, told, list(parameters), taken))
    except BaseException:
        undo()
        raise
    return Grown(sites, plan.left, parameters, None if taken is None else 1 - taken["total"]), undo


def make_room(core: Core) -> Callable[[], None] | None:
    """Widen the sites that are short of free weights, within the method's budget (methods/parts/growing.py)."""
    method = core.method
    assert isinstance(method, Growing)
    with core.model.alone(), undisturbed():
        short = short_sites(core.model.units.sites, taken_weights(method), method.grow_below)
        share, most = method.grow, method.budget or float("inf")
        while short and share * max(site.size for site in short) > 0.5:
            try:
                plan = Widening(core.model, _seed(core)).plan({site.name: ceil(share * site.size) for site in short})
            except HatrackError as error:
                warnings.warn(CapacityWarning(f"no room can be made: {error}"), stacklevel=6)
                return None
            if _parameters(core) + plan.added <= most:
                return carried_out(core, plan)[1]
            share /= 2
    return None


def _parameters(core: Core) -> int:
    return sum(p.numel() for p in core.model.net.parameters())


def _answers(core: Core) -> list[torch.Tensor]:
    """Return what every finished task answers to its probes."""
    return [proof.probe_logits(core.method, core._drawn(task), task) for task in core._compared()]
