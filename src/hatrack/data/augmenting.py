"""What `augment=` may be, made one thing: a function of a batch (x, y) → (x, y).

    names                     "crop,flip": the built-in ones (augment.py), in this order
    torchvision's transforms  of one sample each: on a batch, all pictures would be flipped or none
    albumentations            of one picture each, as an array (height, width, channels), called with image=
    kornia's modules          of a batch
    any other function        of a batch, where it takes one and returns one; else of one sample, which `each(f)` says.
                              Where it takes two values they are inputs and targets, and it returns both

Inputs come as numbers, bytes from 0 to 1, and are normalised afterwards. No library is imported: whose a transform is,
its classes say. Whatever it draws from, torch, NumPy or Python, comes from the epoch's stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn

from hatrack.data.augment import BUILT_IN
from hatrack.data.draws import drawn_from, new_seed
from hatrack.data.inputs import Inputs, as_tensor
from hatrack.errors import HatrackError, one_line, unknown
from hatrack.options import places
from hatrack.tree import at, count, form, leaves, mapped, repeated, sample

if TYPE_CHECKING:
    from hatrack.data.feed import Part
    from hatrack.data.packing import Packing

WAYS = {"torchvision": "sample", "albumentations": "picture", "kornia": "batch"}


@dataclass(frozen=True)
class BuiltIns:
    """Built-in ones by name, one after the other.

    `mixes`: targets too, which must be soft; `recordable`: it asks a device for nothing.
    """

    names: tuple[str, ...]

    recordable = True
    takes_targets = False

    @property
    def mixes(self) -> bool:
        return any(BUILT_IN[name].mixes for name in self.names)

    @property
    def moves(self) -> str | None:
        """The first one that moves pixels, and not the targets of positions."""
        return next((name for name in self.names if BUILT_IN[name].moves), None)

    def __str__(self) -> str:
        return ",".join(self.names)

    def __call__(self, x: Any, y: Tensor) -> tuple[Any, Tensor]:
        for name in self.names:
            step = BUILT_IN[name]
            drawn = step.draw(x)
            x = step.apply(x, drawn)
            y = step.apply(y, drawn) if step.mixes else y
        return x, y

    def settle(self, x: Any, y: Tensor) -> None:
        """Look at a first batch, and refuse what cannot be augmented."""
        self.check(x)

    def check(self, x: Any) -> None:
        """Refuse what is no picture, or one on another scale."""
        if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point():
            raise HatrackError(
                f"augment {self} is for pictures (channels, height, width), got {sample(x)}; give a function."
            )
        bounded = next((name for name in self.names if BUILT_IN[name].bounded), None)
        if bounded is not None and (float(x.min()) < 0 or float(x.max()) > 1):
            raise HatrackError(
                f"augment {bounded} needs bytes, or floats from 0 to 1, got floats from {float(x.min()):g} to "
                f"{float(x.max()):g}; leave normalising to Task(..., inputs=Inputs(mean, std))."
            )


@dataclass(frozen=True)
class Each:
    """A function of one sample."""

    function: Callable[..., Any]


def each(function: Callable[..., Any]) -> Each:
    """Say that a function augments one sample, not a batch: hatrack.Task(..., augment=each(f))."""
    return Each(function)


@dataclass(eq=False)
class Own:
    """The user's function, in the way that fits it."""

    function: Callable[..., Any]
    way: str | None = field(default=None)  # batch, sample or picture; None until a batch has been tried

    mixes = False
    moves = None  # as far as can be seen
    recordable = False  # it may ask for numbers, or draw them on the host

    def __post_init__(self) -> None:
        if isinstance(self.function, Each):
            self.function, self.way = self.function.function, "sample"
        parts = self.function.modules() if isinstance(self.function, nn.Module) else [self.function]
        homes = {kind.__module__.partition(".")[0] for part in parts for kind in type(part).__mro__}
        self.way = next((way for home, way in WAYS.items() if home in homes), self.way)
        called = self.function.forward if isinstance(self.function, nn.Module) else self.function
        self.takes_targets = places(called) == 2

    def __str__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, x: Any, y: Tensor) -> tuple[Any, Tensor]:
        seed = new_seed()
        with drawn_from(seed):
            return self._applied(x, y, seed)

    def settle(self, x: Any, y: Tensor) -> None:
        """Where nothing says which it is: of a batch if it takes one and returns as many samples, else of a sample."""
        if self.way is None:
            if count(x) == 1:  # of which a sample could not be told
                x, y = repeated(x, 2), y[:1].expand(2, *y.shape[1:])
            self.way = "batch"
            try:
                self(x, y)
            except HatrackError as error:
                self.way = "sample"
                try:
                    self(x, y)
                except HatrackError:
                    raise error from None
        self(x, y)

    def _applied(self, x: Any, y: Tensor, seed: int) -> tuple[Any, Tensor]:
        try:
            if self.way == "batch":
                made, targets = self._called(x, y)
            else:
                if callable(seeded := getattr(self.function, "set_random_seed", None)):
                    seeded(seed % 2**32)
                one = self._picture if self.way == "picture" else self._called
                pairs = [one(at(x, row), y[row]) for row in range(count(x))]
                made = mapped(lambda *parts: torch.stack(parts), *(inputs for inputs, _ in pairs))
                targets = torch.stack([target for _, target in pairs])
            like = dict(x) if isinstance(x, Mapping) else x
            ranks = [[part.ndim for part in leaves(given)] for given in (made, x)]
            if form(made) != form(like) or ranks[0] != ranks[1] or count(made) != count(x) or len(targets) != len(y):
                raise HatrackError(f"it returned {form(made)} of {sample(made)}")
            return mapped(lambda new, old: new.to(old.device, old.dtype), made, x), targets.to(y.device)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            given = "a sample" if self.way == "sample" else f"a {self.way}"
            raise HatrackError(
                f"augment {self} does not work on {given} of {sample(x)} ({one_line(error).rstrip('.')}); it must "
                f"return inputs of that form, as many, and targets where it takes them."
            ) from error

    def _called(self, x: Any, y: Tensor) -> tuple[Any, Tensor]:
        if not self.takes_targets:
            return self.function(x), y
        made, targets = self.function(x, y)
        return made, torch.as_tensor(targets)

    def _picture(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        made = self.function(image=x.movedim(0, -1).cpu().numpy())["image"]
        if isinstance(made, np.ndarray):
            made = np.ascontiguousarray(made if made.ndim == x.ndim else made[..., None])
            return as_tensor(made, "augment").movedim(-1, 0), y
        return made, y


Augmentation: TypeAlias = BuiltIns | Own


def augmentation(given: Any, where: str) -> Augmentation:
    """Return what `augment=` stands for."""
    if isinstance(given, Augmentation):
        return given
    if isinstance(given, str):
        names = tuple(name.strip() for name in given.split(","))
        for name in names:
            if name not in BUILT_IN:
                raise unknown(f"augmentation of {where}", name, BUILT_IN)
        if len(set(names)) < len(names):
            raise HatrackError(f"{where}: augment names one twice: {given!r}.")
        return BuiltIns(names)
    if not callable(given) and not isinstance(given, Each):
        raise HatrackError(
            f"{where}: augment must be names ({', '.join(BUILT_IN)}) or a function of a batch or of a sample, "
            f"got {given!r:.99}."
        )
    return Own(cast(Callable[..., Any], given))


class Augmenting:
    """Augments the batches of a feed, the samples of every task in its own way."""

    def __init__(self, parts: Sequence[Part], packing: Packing | None) -> None:
        self._own = {part.task: part.augment for part in parts}
        self._inputs = Inputs(ids=any(part.inputs.ids for part in parts))
        self._packing = packing
        given = list(self._own.values())
        alike = all(one == given[0] for one in given)
        apart = given[0] is None or given[0].mixes or given[0].takes_targets
        self._common = given[0] if len(parts) == 1 or (alike and not apart) else None
        self.recordable = self._common is not None and self._common.recordable

    def __call__(self, x: Any, y: Tensor, source: Tensor | None) -> tuple[Any, Tensor]:
        x = mapped(self._inputs.as_numbers, x)
        if self._common is not None:
            return self._common(x, y)
        assert source is not None
        for task, augment in self._own.items():
            rows = (source == task).nonzero()[:, 0]
            if augment is not None and len(rows):
                x, y = self._some(augment, task, rows, x, y)
        return x, y

    def _some(self, augment: Augmentation, task: int, rows: Tensor, x: Any, y: Tensor) -> tuple[Any, Tensor]:
        own = y[rows] if self._packing is None else self._packing.unpacked(task, y[rows])
        made, targets = augment(at(x, rows), own)
        if [part.shape[1:] for part in leaves(made)] != [part.shape[1:] for part in leaves(x)] or (
            targets.shape != own.shape
        ):
            raise HatrackError(
                f"augment {augment} of task number {task} changes shapes, and its samples are learned together with "
                f"other tasks'; give one that keeps them."
            )
        packed = targets.to(own.dtype) if self._packing is None else self._packing.packed(targets)
        put = lambda whole, part: whole.index_copy(0, rows, part)  # noqa: E731 - used at once
        return mapped(put, x, made), y.index_copy(0, rows, packed)


def augmenting(parts: Sequence[Part], packing: Packing | None) -> Augmenting | None:
    """Return what augments a feed's batches, if there is anything."""
    return None if all(part.augment is None for part in parts) else Augmenting(parts, packing)
