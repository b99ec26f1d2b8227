"""Which sites of a network can be cut, found by trying; and the network cut there."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from hatrack.errors import HatrackError
from hatrack.features import Features
from hatrack.masks.attention import heads
from hatrack.masks.folding import put_gates, unread, without_unused
from hatrack.masks.grouped import balanced, coupled, grouped
from hatrack.masks.narrow_layers import slice_layers
from hatrack.masks.slicing import Uncuttable, extended, left, taken
from hatrack.masks.trace import derive
from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import Site, UnitMap
from hatrack.modes import untouched
from hatrack.nets.head import Head
from hatrack.nets.model import Model
from hatrack.ship.answered import Answered
from hatrack.ship.constants import fold_constants
from hatrack.swap import Slots, copied
from hatrack.targets import Target
from hatrack.tree import at, mapped

WITHIN = 1e-5  # of the largest logit: sums of other lengths are rounded otherwise
UNEVEN = "the groups of a convolution, or heads of attention, keep equal numbers"
WITHIN_STIRRED = 1e-9  # the same in float64, in which nothing else than rounding is so small


def close(answer: Tensor, reference: Tensor, within: float = WITHIN) -> bool:
    """Whether answers agree within rounding."""
    if answer.shape != reference.shape or not bool(answer.isfinite().all()):
        return False
    return bool((answer - reference).abs().max() <= within * reference.abs().max())


@dataclass
class Cut:
    """A network without some units, and its head.

    open_features  gates of features that the head could not take in
    sites          the number of units that are left, and that there were, by site
    notes          the sites that stayed whole though units of theirs are closed, and why
    """

    net: nn.Module
    head: Head
    open_features: Tensor | None
    sites: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def head_for(self, target: Target) -> nn.Linear:
        """Return the head as a plain layer whose outputs are answers: figures in the unit of the targets, say."""
        weight, bias = self.head.weight.detach(), self.head.bias.detach()
        at_zero, at_one = (target.answer(torch.full_like(bias, value)[None])[0] for value in (0.0, 1.0))
        if not (bool((at_zero == 0).all()) and bool((at_one == 1).all())):
            slope = at_one - at_zero
            weight, bias = weight * slope[:, None], bias * slope + at_zero
        plain = nn.Linear(weight.shape[1], weight.shape[0])
        plain.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
        plain.bias = nn.Parameter(bias.contiguous(), requires_grad=False)
        return plain


class Stirred(NamedTuple):
    """A network with other weights, inputs, its answers to them, and how near to these a cut must come."""

    net: nn.Module
    x: Any
    reference: Tensor
    within: float


class Knife:
    """Cuts a network at as many sites as bear it."""

    def __init__(self, model: Model, asked: Answered, head: Head, x: Any) -> None:
        self._pick, self._x, self._reference = model.picked.pick, x, asked.logits
        self._head, self._net = copy.deepcopy(head), copied(model.net).eval().requires_grad_(False)
        self._given, self._initial = asked.tensors, model.initial
        self._untraced: str | None = None
        self._stirred: Stirred | None = None
        Slots(self._net).put(_held(self._net, asked.tensors))
        self._forget()
        if asked.gates is not None:
            self._units: UnitMap | None = model.units
            self._gates = asked.gates.detach().clone()
        else:
            self._units = self._mapped()
            self._gates = torch.ones(self._units.size if self._units else 0, dtype=torch.bool)
        self._fold()
        self._fold_constants()

    def _forget(self) -> None:
        """Forget what forward() has kept of the samples that it met, in attributes that it writes anew every time."""
        with torch.no_grad(), untouched(self._net) as stored:
            Features(self._net, self._pick)(self._x)
        for module in self._net.modules():
            for name in stored:
                if isinstance(vars(module).get(name), Tensor):
                    setattr(module, name, None)

    def _mapped(self) -> UnitMap | None:
        """Return the unit map of the network as the task has it, for methods that need none; None without one."""
        net = copy.deepcopy(self._net)
        for p in net.parameters():
            p.requires_grad_(p.is_floating_point() and p.is_leaf)
        try:
            with Features(net, self._pick).as_output(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return derive(net, at(self._x, slice(1)))
        except HatrackError as error:
            self._untraced = str(error)
            return None

    # ---- folding

    def _fold(self) -> None:
        """Write what is closed, and what nobody reads any more, into the tensors as zeros."""
        if self._units is None:
            return
        for unused in ({}, self._initial):
            gates = self._gates
            while True:
                tensors = without_unused(self._net, self._units, gates, self._given, unused)
                Slots(self._net).put(_held(self._net, tensors))
                if gates.dtype != torch.bool:
                    break
                idle = unread(self._net, self._units, self._read_by_head(gates)).to(gates.device)
                if not bool((gates & idle).any()):
                    break
                gates = gates & ~idle
            previous, self._gates = self._gates, gates
            if close(self.answer(), self._reference):
                return
            self._gates = previous

    def _fold_constants(self) -> None:
        """Close open units that are the same for every input, again and again: others may follow from it."""
        if self._units is None or self._gates.dtype != torch.bool:
            return
        while True:
            gates, given, bias = self._gates, self._given, self._head.bias
            net = self._without(torch.zeros(len(gates), dtype=torch.bool)).net
            found = fold_constants(net, self._units, gates, self._head, self._features)
            if not found.units:
                return
            self._gates = gates.clone()
            self._gates[found.units] = False
            self._given = {**given, **{name: given[name] + more for name, more in found.biases.items()}}
            self._head.bias = nn.Parameter(bias.detach() + found.head, requires_grad=False)
            self._fold()
            if not close(self.answer(), self._reference):
                self._gates, self._given, self._head.bias = gates, given, bias
                self._fold()
                return

    def _read_by_head(self, gates: Tensor) -> Tensor:
        assert self._units is not None
        found = torch.zeros(self._units.size + 2, dtype=torch.bool)
        features = self._feature_units().cpu()
        columns = (self._head.weight != 0).any(0).cpu()
        axis = self._head.axis
        if axis is None:
            found[features.flatten()[columns]] = True
        else:
            found[features.movedim(0 if axis == 1 else -1, -1)[..., columns]] = True
        return found[: self._units.size]

    def _feature_units(self) -> Tensor:
        """Return the unit at every entry of the features that these inputs give."""
        assert self._units is not None
        shape = self._features(self._net).shape[1:]
        return compact(self._units.features).expand(shape)

    def _features(self, net: nn.Module, x: Any = None) -> Tensor:
        with torch.no_grad(), untouched(net):
            features = Features(net, self._pick)(self._x if x is None else x)
        return features if x is not None else features.to(self._head.weight.dtype)

    # ---- cutting

    def _without(self, gone: Tensor, source: nn.Module | None = None) -> Cut:
        """Return the network (or `source`) without the units in `gone`; all other closed ones are behind gates."""
        net, head = copy.deepcopy(source or self._net), copy.deepcopy(self._head)
        if self._units is None:
            return Cut(net, head, None)
        slice_layers(net, self._units, gone)
        put_gates(net, self._units, self._gates, gone)
        features = self._feature_units().cpu()
        gate = extended(self._gates.cpu(), 1)[features]
        keep = left([features], features.shape, gone)
        place = 0 if head.axis == 1 else -1
        per_column = gate[None] if head.axis is None else gate.movedim(place, -1)
        per_column = per_column.reshape(-1, head.in_features)
        gate, weight = taken(gate, keep), head.weight.detach()
        folds = bool((per_column == per_column[0]).all())
        if folds:
            factor = per_column[0].to(weight.device)
            weight = torch.where(factor != 0, weight * factor, torch.zeros_like(weight))
        stays = (~extended(gone, 0)[features].flatten()).nonzero().flatten()
        index = stays if head.axis is None else keep[place]
        head.weight = nn.Parameter(taken(weight, [None, index]), requires_grad=False)
        head.in_features = head.weight.shape[1]
        return Cut(net, head, None if folds else gate[None].to(weight))

    def answer(self, cut: Cut | None = None, x: Any = None) -> Tensor:
        """Return the logits that a cut gives; without one, those with nothing cut."""
        cut = cut if cut is not None else self._without(torch.zeros(len(self._gates), dtype=torch.bool))
        with torch.no_grad():
            features = self._features(cut.net, x)
            head = cut.head.to(features.dtype)
            logits: Tensor = head(features if cut.open_features is None else features * cut.open_features)
        return logits

    def _stir(self) -> None:
        """Take a second network to try cuts on, in float64: one whose weights, as far as they are not 0, are others.

        In the task's own a ReLU that is off may hide what a cut does, and rounding what is small.
        """
        numbers, net = torch.Generator().manual_seed(0), copy.deepcopy(self._net)
        for p in net.parameters():
            if p.is_floating_point():
                p.mul_(torch.randn(p.shape, generator=numbers).to(p))
        nothing = torch.zeros(len(self._gates), dtype=torch.bool)
        exact = mapped(lambda part: part.double() if part.is_floating_point() else part, self._x)
        for stirred, x, within in ((copy.deepcopy(net).double(), exact, WITHIN_STIRRED), (net, self._x, WITHIN)):
            try:
                answer = self.answer(self._without(nothing, stirred), x)
            except Exception:  # where forward() makes float32 of its own
                continue
            if bool(answer.isfinite().all()) and (within == WITHIN or answer.dtype == torch.float64):
                self._stirred = Stirred(stirred, x, answer, within)
                return

    def objection(self, gone: Tensor | None = None) -> str | None:
        """Return why the network cannot do without these units (None: with its gates folded in), or None."""
        gone = torch.zeros(len(self._gates), dtype=torch.bool) if gone is None else gone
        try:
            same = close(self.answer(self._without(gone)), self._reference)
            if same and (other := self._stirred) is not None:
                same = close(self.answer(self._without(gone, other.net), other.x), other.reference, other.within)
        except Uncuttable as reason:
            return str(reason)
        except Exception as error:  # whatever a network raises that knows its widths by heart
            lines = str(error).strip().splitlines()
            return lines[0] if lines else type(error).__name__
        return None if same else "its answers would change"

    def cut(self) -> Cut:
        """Return the network with every site cut that bears it."""
        self._stir()
        gone, why = self._bearable()
        cut = self._without(gone)
        _write_out(cut.net)
        notes = [] if self._untraced is None else [f"nothing is cut: {self._untraced}"]
        if self._units is not None:
            for site, part in self._units.by_site(gone):
                left = site.size - int(part.sum())
                cut.sites[site.name] = (left, site.size)
                closed = int((self._gates[site.start : site.start + site.size] == 0).sum())
                zeros = min(closed, site.size - 1) - int(part.sum())
                if zeros:
                    said = f"{left} of {site.size} units, {zeros} of them 0"
                    notes.append(f"{site.name} stays at {said}: {why[site.name]}")
        cut.notes = tuple(notes)
        return cut

    def _bearable(self) -> tuple[Tensor, dict[str, str]]:
        """Return the units that can go, and why sites with others stay: all at once, else site by site."""
        gone = torch.zeros(len(self._gates), dtype=torch.bool)
        why: dict[str, str] = {}
        if self._units is None:
            return gone, why
        layers = [*grouped(self._net, self._units), *heads(self._net, self._units).values()]
        wanted = self._wanted()
        together = coupled(layers, self._units, [site for site, _ in wanted])
        parts = [[pair for pair in wanted if pair[0] in sites] for sites in together]
        for some in (wanted, *(part for part in parts if len(part) > 1), *([pair] for pair in wanted)):
            more = gone
            for _, closed in some:
                more = more | closed
            more = balanced(layers, more)
            objection = self.objection(more) if bool((more & ~gone).any()) else None
            if objection is None:
                gone = more
            for site, closed in some:
                partly = objection is None and bool((gone & closed).any())
                why[site.name] = UNEVEN if partly else objection or why.get(site.name, UNEVEN)
        return gone, why

    def _wanted(self) -> list[tuple[Site, Tensor]]:
        """Return every site with closed units, and these; one unit is left of a site that is closed altogether."""
        if self._units is None:
            return []
        found = []
        for site in self._units.sites:
            closed = torch.zeros(self._units.size, dtype=torch.bool)
            inside = slice(site.start, site.start + site.size)
            closed[inside] = (self._gates[inside] == 0).cpu()
            if bool(closed[inside].all()):
                closed[site.start] = False
            if bool(closed.any()):
                found.append((site, closed))
        return found


def _write_out(net: nn.Module) -> None:
    """Turn parametrized weights into plain ones: with parametrizations no module can be pickled.

    Not by torch's own remove_parametrizations: that edits the class, which a copy has in common with its original.
    """
    for module in list(net.modules()):
        if parametrize.is_parametrized(module):
            names = list(module.parametrizations)  # type: ignore[arg-type]
            values = {name: getattr(module, name).detach() for name in names}
            del module._modules["parametrizations"]
            module._load_state_dict_pre_hooks.clear()  # those of torch's weight norm, for files of older versions
            module.__class__ = type(module).__bases__[0]
            for name, value in values.items():
                module.register_parameter(name, nn.Parameter(value, requires_grad=False))


def _held(net: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as a network holds them: its parameters as parameters."""
    parameters = dict(net.named_parameters())
    return {n: nn.Parameter(t, requires_grad=False) if n in parameters else t for n, t in tensors.items()}
