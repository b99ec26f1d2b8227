"""The user's network with one head a task: how features and logits are computed, with or without gates.

The network itself is never changed: gates go onto its layers' inputs by hooks that last for one forward pass, and
tensors that a task keeps for itself (batch norm, say) are swapped in for as long (see swap.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from hatrack.errors import HatrackError
from hatrack.features import Features
from hatrack.masks.check import correct
from hatrack.masks.gates import Gating
from hatrack.masks.trace import trace
from hatrack.masks.unitmap import UnitMap, layer_of
from hatrack.masks.widen import fill, observing, remembered, resize
from hatrack.modes import evaluating, untouched
from hatrack.nets.generation import Generation, as_it_is
from hatrack.nets.head import Head, new_head, no_head, width_of
from hatrack.nets.layout import best_layout, laid_out
from hatrack.nets.precision import Precision
from hatrack.nets.turn import Turn
from hatrack.swap import Slots
from hatrack.targets import Classification, Target
from hatrack.tree import mapped, reordered, same_form, sample, shapes

if TYPE_CHECKING:
    from hatrack.nets.widening import Plan


class Model:
    """A backbone x → features, its heads, and what each task keeps for itself."""

    def __init__(
        self,
        net: nn.Module,
        device: torch.device,
        precision: str = "float32",
        features: str | int | Callable[..., Tensor] | None = None,
    ) -> None:
        self.net = net.to(device)
        self.picked = Features(net, features)
        self.device = device
        self.precision = Precision(precision, device)
        self.answers = self.precision.answers
        self.heads: list[Head] = []
        self.targets: list[Target] = []  # what each head predicts
        self.private: list[dict[str, Tensor]] = []
        self.copies: dict[
            int, dict[str, Tensor]
        ] = {}  # of the network, of versions of tasks that share nothing any more
        self.released: set[int] = set()  # the numbers of tasks that are gone: nothing stands in their places above
        self._buffers = {name for name, _ in self.net.named_buffers()}
        self.initial = {name: tensor.detach().clone() for name, tensor in self.tensors().items()}
        self.example: Any = None
        self._stores = False
        self._layout = torch.contiguous_format  # of inputs while it is trained
        self.corrected: list[str] = []  # parameters that the unit map was wrong about, in a saved learner
        self.turn = Turn()
        self.generations: list[Generation] = []  # the widths that the network has had, less that of now
        self.first_shapes: dict[str, list[int]] = {}  # of tensors that have been widened
        self._slots = Slots(self.net)

    # ---- what there is

    def tensors(self) -> dict[str, Tensor]:
        """Return the network's parameters and buffers by name."""
        return {**dict(self.net.named_parameters()), **self.buffers()}

    def buffers(self) -> dict[str, Tensor]:
        """Return the network's buffers by name, less those that forward() itself makes: they are no part of it."""
        return {name: buffer for name, buffer in self.net.named_buffers() if name in self._buffers}

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the network's trainable parameters by name."""
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad}

    @cached_property
    def units(self) -> UnitMap:
        """The unit map, traced when first needed."""
        if self.example is None:
            raise HatrackError("the unit map needs one example input: learn a task first.")
        with self.picked.as_output():
            units = trace(self.net, self.example)
        # The check sees the weights as they are: what it found when the first task began holds for good.
        correct(units, [name for name in self.corrected if name not in units.corrected])
        self.gating = Gating(self.net, units)  # at once: no step must wait for what making it looks up
        return units

    def corrections(self) -> list[str]:
        """Return the parameters that the unit map was found to be wrong about."""
        return list(self.units.corrected) if "units" in self.__dict__ else self.corrected

    @cached_property
    def gating(self) -> Gating:
        """Where gates are applied, from the unit map."""
        return Gating(self.net, self.units)

    def look(self, example: Any) -> None:
        """Take an example to trace with; see whether forward() keeps things in the network from call to call."""
        self.example = mapped(lambda part: part[:1].detach().clone(), example)
        copies = {name: tensor.clone() for name, tensor in self.tensors().items()}
        with evaluating(self.net), torch.no_grad(), self._slots.holding(copies), untouched(self.net) as stored:
            features = self.picked(self.example)
            if self.device.type == "cpu" and isinstance(self.example, Tensor):
                self._layout = best_layout(self.net, self.picked, self.example, features)
        self._stores = bool(stored)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the network to oneself, in evaluation mode; its modules get their modes back afterwards."""
        with self.turn, evaluating(self.net):
            yield

    def refuse_altered(self) -> None:
        """Refuse a network that was pruned, parametrized, converted or moved since the learner was made."""
        with self.turn:
            found = self._slots.altered()
        if found is None:
            return
        (name, how), kind = found, type(self.net).__name__
        if how is None:
            raise HatrackError(
                f"{name} of {kind} is not the one that the learner was made with: it was pruned, parametrized or "
                f"replaced; undo that (prune.remove, remove_parametrizations), or make a learner of the network as it "
                f"is now."
            )
        raise HatrackError(
            f"{name} of {kind} is {how} when the learner was made; convert the network back, or make a learner of the "
            f"network as it is now."
        )

    @property
    def remaining(self) -> list[int]:
        """The numbers of the tasks that rely on the network, the one in progress included."""
        return [t for t in range(len(self.private)) if t not in self.released and t not in self.copies]

    def own(self, task: int) -> dict[str, Tensor]:
        """Return the tensors of the network that a task has for itself."""
        return {**self.copies.get(task, {}), **self.private[task]}

    def release(self, task: int) -> None:
        """Let go of what a task has for itself, or put nothing in the place of a new one: its number stays taken."""
        self.heads[task : task + 1] = [no_head(self.device)]
        self.targets[task : task + 1] = [Classification(1)]
        self.private[task : task + 1] = [{}]
        self.copies.pop(task, None)
        self.released.add(task)

    # ---- widths

    def generation(self, task: int) -> Generation | None:
        """Return the width at which a task was learned; None for that of now."""
        return next((each for each in self.generations if task < each.tasks), None)

    def width(self, task: int) -> Model:
        """Return a model of the width at which a task was learned, whatever values its tensors have."""
        generation = self.generation(task)
        return self if generation is None else generation.model

    def at(self, task: int) -> Model:
        """Return the model at the width at which a task was learned."""
        generation = self.generation(task)
        return self if generation is None else generation.follow(self)

    def spread_units(self, task: int, values: Tensor) -> Tensor:
        """Return a vector over a task's units as one over those of now; what came later is 0, or closed."""
        generation = self.generation(task)
        return values if generation is None else generation.places.spread_units(values)

    def spread(self, task: int, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values at a task's entries as ones at the entries of now; what came later is 0, or False."""
        generation = self.generation(task)
        return dict(values) if generation is None else generation.spread(self.tensors(), values)

    def observe(self, example: Any) -> None:
        """Let norms without parameters find out how wide the network is now."""
        with observing(self.net), evaluating(self.net), torch.no_grad(), untouched(self.net):
            self.picked(example)

    def taken(self, task: int, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return of values at the entries of now those at a task's entries."""
        generation = self.generation(task)
        return dict(values) if generation is None else generation.taken(values)

    def widen(self, plan: Plan, tasks: int) -> Callable[[], None]:
        """Widen the network in place, after so many finished tasks; return what undoes it."""
        narrow, held = as_it_is(self), dict(self.__dict__)
        undo_net = remembered(self.net, plan.tensors)

        def undo() -> None:
            undo_net()
            self.__dict__.update(held)

        def wide(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: plan.places.spread(name, values[name].detach(), new) for name, new in plan.tensors.items()}

        try:
            resize(self.net, {name: new.shape for name, new in plan.tensors.items()})
            fill(self.net, wide(narrow.tensors()))
            self.initial = {**self.initial, **wide(narrow.initial)}
            self.generations = [Generation(g.tasks, g.model, g.places.then(plan.places)) for g in self.generations]
            if tasks > max((g.tasks for g in self.generations), default=0):
                self.generations.append(Generation(tasks, narrow, plan.places))
            self.first_shapes = {**{n: list(narrow.initial[n].shape) for n in plan.tensors}, **self.first_shapes}
            self.units, self.gating = plan.units, Gating(self.net, plan.units)
            self.observe(self.example)
            self.look(self.example)
        except BaseException:
            undo()
            raise
        return undo

    # ---- growing

    def meet(self, example: Any) -> None:
        """Remember one prepared input; the first one is what the unit map is traced with."""
        if self.example is None:
            self.look(example)
            return
        if not same_form(self.example, example):
            reordered(example, self.example, "this network has learned inputs of another form")
        if shapes(self.example) != shapes(example):
            self._refuse_other_features(example)

    def _refuse_other_features(self, example: Any) -> None:
        """Refuse inputs of another shape where the units of the features are then not the same."""
        known, new = (tuple(self.tried(x).shape[1:]) for x in (self.example, example))
        if known != new and not (len(known) == len(new) and self._free_positions(known, new)):
            raise HatrackError(
                f"this network has learned inputs of shape {sample(self.example)} and features of shape {known}; the "
                f"new task's inputs of shape {sample(example)} give {new}: bring them to one shape, or let the network "
                f"pool."
            )

    def _free_positions(self, known: tuple[int, ...], new: tuple[int, ...]) -> bool:
        """Whether two shapes of features differ only along axes on which no unit stands."""
        changed = {axis for axis, (a, b) in enumerate(zip(known, new, strict=True)) if a != b}
        return not changed & set(self.unit_axes()) if "units" in self.__dict__ else len(changed) < len(known)

    def unit_axes(self) -> list[int]:
        """Return the axes of the features, the batch left out, along which different units stand."""
        units = self.units.features
        return [axis for axis in range(units.ndim) if bool((units != units.narrow(axis, 0, 1)).any())]

    def add_task(
        self,
        target: Target,
        generator: torch.Generator,
        private: Mapping[str, Tensor] | None = None,
        features: tuple[int, ...] | None = None,
    ) -> None:
        """Add a head (Xavier uniform, zero bias) and the task's own copies of the tensors in `private`.

        `features`: their shape, a sample's; that of the example's where it is not given.
        """
        shape = features if features is not None else tuple(self.tried(self.example).shape[1:])
        width, outputs = width_of(shape, target.units_axis), target.outputs
        head = new_head(width, outputs, self.device, target.units_axis)
        with torch.no_grad():
            bound = (6 / (width + outputs)) ** 0.5
            head.weight.copy_(torch.empty(outputs, width).uniform_(-bound, bound, generator=generator))
            head.bias.zero_()
        self.heads.append(head)
        self.targets.append(target)
        trained = self.parameters()
        own = {name: value.detach().clone() for name, value in (private or {}).items()}
        self.private.append({name: t.requires_grad_(name in trained) for name, t in own.items()})

    def tried(self, example: Any) -> Tensor:
        """Return the features of `example`, computed with copies of all tensors: nothing is changed by it.

        Whatever still depends on a parameter itself is out of reach for masks, locks and copies, and is refused.
        """
        with evaluating(self.net):
            copies = {n: t.detach().clone().requires_grad_(t.requires_grad) for n, t in self.tensors().items()}
            with torch.enable_grad(), self._slots.holding(copies), untouched(self.net):
                features = self.picked(example)
        if features.requires_grad:
            trained = self.parameters()
            sum_ = torch.view_as_real(features).sum() if features.is_complex() else features.sum()
            found = torch.autograd.grad(sum_, list(trained.values()), allow_unused=True)
            for name, gradient in zip(trained, found, strict=True):
                if gradient is not None:
                    raise HatrackError(
                        f"{type(self.net).__name__} uses {name} from where it was put aside when the network was made "
                        f"(a list, a partial, a view), where no mask or lock reaches it; read it from its module in "
                        f"forward."
                    )
        return features

    @torch.no_grad()
    def try_out(self, x: Any) -> tuple[int, ...]:
        """Let the network go through a batch, its own tensors as they are; return the shape of a sample's features."""
        copies = {name: tensor.clone() for name, tensor in self.tensors().items()}
        products, casts = self.precision.products(), self.precision.casts()
        with evaluating(self.net), products, casts, self._slots.holding(copies), untouched(self.net):
            return tuple(self.picked(x).shape[1:])

    def trains_on_one(self) -> bool:
        """Whether one sample is enough for a step; a batch norm in training mode needs two values a channel."""
        assert self.example is not None
        outs: list[Tensor] = []
        norms = [m for m in self.net.modules() if isinstance(m, _BatchNorm) and m.training]
        with ExitStack() as hooks:
            for norm in norms:
                hooks.enter_context(norm.register_forward_hook(lambda norm, args, out: outs.append(out)))
            if norms:
                self.tried(self.example)
        return all(out.numel() > out.shape[1] for out in outs)

    # ---- computing

    def features(
        self, x: Any, task: int, gates: Tensor | None = None, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return the (gated) features of x for a task; `weights` replaces tensors of the network by name.

        Gates and weights are those of the width at which the task was learned, and so are the features.
        """
        if self.generation(task) is not None:
            return self.at(task).features(x, task, gates, weights)
        # Buffers hold their own place while they may move: see _take_over.
        moving = self.buffers() if self._buffers and self.net.training else {}
        swapped = {**moving, **self.own(task), **(weights or {})}
        if gates is not None and self.gating.gated:
            swapped |= self.gating.weights(gates, {**self.tensors(), **swapped})
        gated = nullcontext() if gates is None else self.gating.on_inputs(gates)
        # What one task's answer leaves behind (a cache, a state) must not get into another's.
        alone = untouched(self.net) if not self.net.training and self._stores else nullcontext()
        precision = self.precision if self.net.training else self.answers
        if self.net.training and isinstance(x, Tensor) and x.dim() == 4:
            x = laid_out(x, self._layout)
        with alone, gated, precision.products(), precision.casts(), self._slots.holding(swapped) as left:
            features = self.picked(x)
        if self.net.training:
            self._take_over(left, swapped)
        features = features.to(self.heads[task].weight.dtype)
        return features if gates is None else self.gating.features(gates, features)

    def logits(
        self, x: Any, task: int, gates: Tensor | None = None, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return the logits of a task's own head."""
        with self.precision.products():
            logits: Tensor = self.heads[task](self.features(x, task, gates, weights))
        return logits

    @contextmanager
    def unrounded(self) -> Iterator[None]:
        """Compute in float32 inside the context, whatever the precision is otherwise."""
        usual = self.precision, self.answers
        self.precision = self.answers = Precision("float32", self.device)
        try:
            yield
        finally:
            self.precision, self.answers = usual

    @torch.no_grad()
    def _take_over(self, left: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
        """Write into a buffer what forward() put in its place (`self.mean = …`): others hold on to the buffer."""
        for name in self._buffers & given.keys():
            if left[name] is not given[name] and left[name].shape == given[name].shape:  # else it is of this batch
                given[name].copy_(left[name])

    def norm_tensors(self) -> list[str]:
        """Name the parameters and buffers of all norms with running statistics."""
        return [name for name in self.tensors() if isinstance(self.net.get_submodule(layer_of(name)), _NormBase)]

    def freeze_statistics(self) -> None:
        """Stop counting data into running statistics until the network is switched to training again."""
        for module in self.net.modules():
            if isinstance(module, _NormBase) or next(module.buffers(recurse=False), None) is not None:
                module.training = False  # of this module alone: dropout inside it goes on

    def keep_moved_buffers(self, task: int) -> None:
        """Let a finished task keep its own copy of every buffer that its training changed, and earlier ones theirs."""
        for name, buffer in self.buffers().items():
            if name not in self.private[task] and not torch.equal(buffer, self.initial[name]):
                self.private[task][name] = buffer.detach().clone()
                for earlier in self.remaining[:-1]:  # it had not moved then
                    self.private[earlier].setdefault(name, self.width(earlier).initial[name].clone())

    def reset(self) -> None:
        """Put the network back to the state in which it was handed over."""
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                tensor.copy_(self.initial[name])
