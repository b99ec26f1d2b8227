"""A memory of fixed size over all that was trained on, every sample of it as likely to be there as any other.

    the n-th sample of the stream, counted from 0, is put    at n                                   for n < k
                                                             at r, uniform in 0 … n, if r < k       afterwards

(Vitter 1985, algorithm R): after n ≥ k samples each is held with probability k/n. A batch is placed in one piece, and
where two of its samples get one place, the later one has it, as if they had come one by one. All shapes are fixed and
no number is read back, so that a step can be recorded: what is not kept goes to a row behind the last, which is wiped.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from hatrack.data.feed import Batch
from hatrack.data.packing import Packing
from hatrack.errors import HatrackError
from hatrack.methods.parts.declared import Part, kept
from hatrack.tree import named, unnamed


@dataclass(init=False, eq=False)
class Reservoir(Part):
    """Prepared inputs (x/…), targets packed (y) and what they look like unpacked (form/<task>), task numbers (source),
    answers (z, filled up with zeros), and how many samples have come by (seen).
    """

    held: dict[str, Tensor] = kept("reservoir", progress=True)

    def __init__(self, device: torch.device, size: int) -> None:
        super().__init__()
        self._device, self.size = device, size
        self.empty = True  # known on the host, where nothing can be drawn yet

    def begin_task(self, task: int, example: Batch, z: Tensor) -> None:
        """Make room for samples like the one of `example`, with answers like those of `z`."""
        x = {f"x/{name}": part for name, part in named(example.x).items()}
        self._refuse_unlike(x)
        count = torch.zeros((), dtype=torch.long, device=self._device)
        self.held = {"seen": count, **self.held, f"form/{task}": example.y[:0]}
        room = {**x, "y": self._packing().packed(example.y), "source": count[None], "z": z}
        self.held |= {name: self._widened(name, part) for name, part in room.items()}

    def begin_epoch(self) -> None:
        """Look whether there is anything yet: also after a load, or a way back."""
        self.empty = not bool(self.held["seen"])

    @torch.no_grad()
    def add(self, batch: Batch, task: int, z: Tensor | None = None) -> None:
        """Offer samples of a task, in their order, each with its answer in a row of `z`."""
        source = torch.full((len(batch.y),), task, device=self._device)
        new = {f"x/{name}": part for name, part in named(batch.x).items()}
        new |= {"y": self._packing().packed(batch.y), "source": source}
        if z is not None:
            new["z"] = pad(z, (0, self.held["z"].shape[1] - z.shape[1])).to(self.held["z"].dtype)
        places = self._places(len(batch.y))
        for name, part in new.items():
            self.held[name][places] = part
            self.held[name][self.size] = 0
        self.held["seen"] += len(batch.y)
        self.empty = False

    def draw(self, count: int) -> tuple[Batch, Tensor]:
        """Return random samples, none twice, and their answers: so many, or the size where that is less.

        While fewer are held, all of them are returned, and again from the first.
        """
        count = min(count, self.size)
        filled = self.held["seen"].clamp(max=self.size)
        keys = torch.rand(self.size, device=self._device)
        keys = torch.where(torch.arange(self.size, device=self._device) < filled, keys, 2.0)
        mixed = keys.topk(count, largest=False).indices  # in order: those that are held come first
        rows = mixed[torch.arange(count, device=self._device) % filled.clamp(1, count)]
        chosen = {name: part[rows] for name, part in self.held.items() if not name.startswith(("form/", "seen"))}
        x = unnamed({name.removeprefix("x/"): part for name, part in chosen.items() if name.startswith("x/")})
        y, packing = chosen["y"], self._packing()
        if not packing.needed:
            return Batch(x, packing.unpacked(0, y), chosen["source"]), chosen["z"]
        return Batch(x, y, chosen["source"], packing=packing), chosen["z"]

    def _places(self, count: int) -> Tensor:
        """Return where the next samples go; what is not kept, and what a later one overwrites, goes behind the last."""
        number = self.held["seen"] + torch.arange(count, device=self._device)
        drawn = (torch.rand(count, dtype=torch.float64, device=self._device) * (number + 1)).long()
        places = torch.where(number < self.size, number, drawn).clamp(max=self.size)
        overwritten = (places[:, None] == places[None, :]).triu(1).any(1)
        return torch.where(overwritten, self.size, places)

    def _packing(self) -> Packing:
        forms = {int(name.removeprefix("form/")): y for name, y in self.held.items() if name.startswith("form/")}
        return Packing(forms)

    def _widened(self, name: str, part: Tensor) -> Tensor:
        """Return the tensor of that name with room for rows like those of `part`."""
        if name not in self.held:
            return torch.zeros(self.size + 1, *part.shape[1:], dtype=part.dtype, device=self._device)
        missing = part.shape[-1] - self.held[name].shape[-1] if name in ("y", "z") else 0
        return pad(self.held[name], (0, missing)) if missing > 0 else self.held[name]

    def _refuse_unlike(self, x: dict[str, Tensor]) -> None:
        known = {name: part for name, part in self.held.items() if name.startswith("x/")}
        forms = [{n: (tuple(p.shape[1:]), p.dtype) for n, p in parts.items()} for parts in (known, x) if parts]
        if len(forms) == 2 and forms[0] != forms[1]:
            then, now = (", ".join(f"{shape} {dtype}" for shape, dtype in form.values()) for form in forms)
            raise HatrackError(
                f"one memory for all tasks needs inputs of one shape and type, got {then} and then {now}; bring them "
                f"to one shape, or choose another method."
            )
