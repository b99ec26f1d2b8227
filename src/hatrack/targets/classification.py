"""One class a sample.

    loss    cross-entropy, the classes weighted where weights are given
    score   accuracy; guessing scores 1/classes

Labels are integers from 0, or soft: a row of probabilities a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from hatrack.errors import HatrackError
from hatrack.targets.base import Target, names_of, weights_of
from hatrack.targets.scores import Accuracy


@dataclass(frozen=True)
class Classification(Target):
    """`classes` are counted in the labels where they are not given; `names`: what they are called."""

    name: ClassVar[str] = "classification"
    score_name: ClassVar[str] = "accuracy"

    classes: int | None = None
    names: Sequence[str] | None = None
    weights: Sequence[float] | None = None
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        given = self.classes if self.classes is not None else len(self.names) if self.names is not None else None
        if given is not None and (isinstance(given, bool) or not isinstance(given, Integral) or given < 1):
            raise HatrackError(f"classes must be a whole number, 1 or more, got {given!r}.")
        if not 0 <= self.smoothing < 1:
            raise HatrackError(f"smoothing must be from 0 to below 1, got {self.smoothing!r}.")
        object.__setattr__(self, "classes", None if given is None else int(given))
        object.__setattr__(self, "names", names_of(self.names, self.classes, "classes"))
        object.__setattr__(self, "weights", weights_of(self.weights, self.classes, "class"))

    @property
    def outputs(self) -> int:
        assert self.classes is not None
        return self.classes

    @property
    def plain(self) -> bool:
        return self.own_loss is None and self.weights is None and not self.smoothing

    def fitted(self, y: Tensor | None, where: str) -> Self:
        if self.classes is not None:
            return self
        if y is None:
            raise HatrackError(
                f"{where}: the number of classes cannot be seen in a Dataset without `targets`; give "
                f"Task(..., classes=N), or Classification(N)."
            )
        return replace(self, classes=max(int(y.max()) + 1 if y.ndim == 1 else y.shape[1], 1))

    def read(self, y: Tensor, where: str) -> Tensor:
        if y.ndim == 2 and y.is_floating_point():
            super().read(y, where)
            sums = y.sum(1)
            if bool((y < 0).any()) or bool(((sums - 1).abs() > 1e-3).any()):
                row = int(((y < 0).any(1) | ((sums - 1).abs() > 1e-3)).int().argmax())
                raise HatrackError(f"{where}: row {row} is no list of probabilities that sum to 1: {y[row].tolist()}.")
            return y.float()
        if y.ndim != 1 or y.is_floating_point():
            raise HatrackError(f"{where} must be one integer a sample, got {tuple(y.shape)} {y.dtype}.")
        return y.long()

    def wrong(self, y: Tensor) -> tuple[int, str] | None:
        if y.ndim == 2:
            return None if y.shape[1] == self.outputs else (0, f"has {y.shape[1]} probabilities, not {self.outputs}")
        bad = ((y < 0) | (y >= self.outputs)).nonzero()
        return None if not len(bad) else (int(bad[0]), f"is outside 0..{self.outputs - 1}")

    def soft(self, y: Tensor) -> Tensor:
        return y if y.ndim == 2 else one_hot(y, self.outputs).float()

    def strata(self, y: Tensor) -> Tensor:
        return y if y.ndim == 1 else y.argmax(1)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(output, y, self._weights(output), label_smoothing=self.smoothing)

    def losses(self, output: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(output, y, self._weights(output), reduction="none", label_smoothing=self.smoothing)

    def _weights(self, like: Tensor) -> Tensor | None:
        return None if self.weights is None else constant(tuple(self.weights), like)

    def distance(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """−Σ_k p_k·log q_k; p and q are the softmax of the older answer and of the newer over T."""
        return cross_entropy(student / temperature, torch.softmax(teacher / temperature, dim=1))

    def decode(self, answer: Tensor) -> Any:
        found = answer.argmax(1).tolist()
        return [self.names[label] for label in found] if self.names else found

    def new_score(self) -> Accuracy:
        return Accuracy()

    def guess(self) -> float:
        return 1 / self.outputs


_CONSTANTS: dict[tuple[tuple[float, ...], torch.device, torch.dtype], Tensor] = {}


def constant(values: tuple[float, ...], like: Tensor) -> Tensor:
    """Return figures on the device of `like`, made once: a step that is recorded must not wait for the host."""
    key = values, like.device, like.dtype
    if key not in _CONSTANTS:
        _CONSTANTS[key] = torch.tensor(values, device=like.device, dtype=like.dtype)
    return _CONSTANTS[key]
