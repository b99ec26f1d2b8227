"""The order of an epoch: all samples once, shuffled, or what a sampler draws.

"balanced"     every class equally often, as many samples as there are; none of a class again before all of it were
a Sampler      of torch's: what iterating it gives, in its order
a function     of the epoch's generator: the rows, in their order
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import Sampler

from hatrack.data.draws import drawn_from, new_seed
from hatrack.errors import HatrackError, one_line

BALANCED = "balanced"
Draw: TypeAlias = Callable[[torch.Generator], Any]
Given: TypeAlias = "str | Sampler[Any] | Draw"


@dataclass(frozen=True, eq=False)
class Order:
    """An epoch to come: its rows (None: as a stream gives them), how many samples, and a seed for what they draw."""

    rows: Tensor | None
    samples: int
    seed: int

    def __len__(self) -> int:
        return self.samples

    def steps(self, size: int) -> int:
        """Return the number of batches of `size`; the last one may be smaller."""
        return -(-self.samples // size)


def balanced(strata: Tensor, generator: torch.Generator) -> Tensor:
    """Return as many rows as there are, every class equally often (±1), mixed."""
    classes = strata.unique()
    each, more = divmod(len(strata), len(classes))
    luckier = set(torch.randperm(len(classes), generator=generator)[:more].tolist())
    drawn = []
    for place, label in enumerate(classes):
        own, wanted = (strata == label).nonzero()[:, 0], each + (place in luckier)
        rounds = [own[torch.randperm(len(own), generator=generator)] for _ in range(-(-wanted // len(own)))]
        drawn += [torch.cat(rounds)[:wanted]] if rounds else []
    rows = torch.cat(drawn)
    return rows[torch.randperm(len(rows), generator=generator)]


@dataclass(frozen=True)
class Sampling:
    """What `sampler=` gives, made to depend on the epoch's generator alone; `task`: whose it is."""

    task: str
    given: Any

    @property
    def needs_all(self) -> bool:
        """Whether the rows it draws are those of the whole training part."""
        return not isinstance(self.given, str)

    def rows(self, generator: torch.Generator, count: int, strata: Tensor | None) -> Tensor:
        """Return the rows of an epoch, from 0 to `count` − 1."""
        if strata is not None:
            return balanced(strata, generator)
        seed = new_seed(generator)
        try:
            with drawn_from(seed):
                drawn = self._iterated(seed) if isinstance(self.given, Sampler) else self.given(generator)
                rows = torch.as_tensor(drawn if isinstance(drawn, Tensor) else list(drawn))
        except HatrackError:
            raise
        except Exception as error:
            raise HatrackError(f"task {self.task!r}: its sampler fails ({one_line(error)}).") from error
        whole = rows.ndim == 1 and len(rows) > 0 and not (rows.is_floating_point() or rows.dtype == torch.bool)
        if not whole or int(rows.min()) < 0 or int(rows.max()) >= count:
            got = f"{rows.dtype} {tuple(rows.shape)}" if not whole else f"{int(rows.min())} to {int(rows.max())}"
            raise HatrackError(
                f"task {self.task!r}: its sampler must give the numbers of samples, from 0 to {count - 1}, got {got}."
            )
        return rows.long()

    def _iterated(self, seed: int) -> list[Any]:
        own = getattr(self.given, "generator", None)
        if isinstance(own, torch.Generator):
            own.manual_seed(seed)
        tell_epoch(self.given, seed)
        return list(self.given)


def tell_epoch(data: Any, seed: int) -> None:
    """Let what shuffles by the number of an epoch (a DistributedSampler, a stream) know another one."""
    if callable(told := getattr(data, "set_epoch", None)):
        told(seed % 2**31)


def sampling(given: Any, where: str, task: str) -> Sampling:
    """Return what `sampler=` stands for."""
    if given != BALANCED if isinstance(given, str) else not (isinstance(given, Sampler) or callable(given)):
        raise HatrackError(
            f"{where}: sampler must be 'balanced', a torch Sampler, or a function of a generator that returns rows, "
            f"got {given!r:.99}."
        )
    return Sampling(task, given)
