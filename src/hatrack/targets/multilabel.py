"""Several labels a sample, each there or not.

loss    binary cross-entropy, the mean over labels; a label that is there counts `weights` times
score   macro average precision: the mean over the labels of Σ (R_n − R_{n−1})·P_n; labels that no sample has are
left out; guessing scores the share of samples that have a label
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from hatrack.errors import HatrackError
from hatrack.targets.base import Target, names_of, weights_of
from hatrack.targets.classification import constant
from hatrack.targets.scores import AveragePrecision


@dataclass(frozen=True)
class MultiLabel(Target):
    """`labels` are counted in what is given; `names`: what they are called; `share`: how many samples have each."""

    name: ClassVar[str] = "multilabel"
    score_name: ClassVar[str] = "average precision"

    labels: int | None = None
    names: Sequence[str] | None = None
    weights: Sequence[float] | None = None
    share: Sequence[float] | None = None

    def __post_init__(self) -> None:
        given = self.labels if self.labels is not None else len(self.names) if self.names is not None else None
        if given is not None and given < 1:
            raise HatrackError(f"labels must be a whole number, 1 or more, got {given!r}.")
        object.__setattr__(self, "labels", given)
        object.__setattr__(self, "names", names_of(self.names, given, "labels"))
        object.__setattr__(self, "weights", weights_of(self.weights, given, "label"))
        object.__setattr__(self, "share", None if self.share is None else tuple(self.share))

    @property
    def outputs(self) -> int:
        assert self.labels is not None
        return self.labels

    def fitted(self, y: Tensor | None, where: str) -> Self:
        if y is None:
            if self.labels is None:
                raise HatrackError(
                    f"{where}: the number of labels cannot be seen in a Dataset; give MultiLabel(labels=N)."
                )
            return self
        return replace(self, labels=y.shape[1] if self.labels is None else self.labels, share=tuple(y.mean(0).tolist()))

    def read(self, y: Tensor, where: str) -> Tensor:
        if y.ndim != 2 or y.is_complex():
            raise HatrackError(f"{where} must be a row of 0 and 1 a sample, got {tuple(y.shape)} {y.dtype}.")
        return super().read(y.float(), where)

    def wrong(self, y: Tensor) -> tuple[int, str] | None:
        if y.shape[1] != self.outputs:
            return 0, f"has {y.shape[1]} labels, not {self.outputs}"
        bad = ((y < 0) | (y > 1)).any(1).nonzero()
        return None if not len(bad) else (int(bad[0]), "has a figure outside 0..1")

    def soft(self, y: Tensor) -> Tensor:
        return y

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(output, y, pos_weight=self._weights(output))

    def losses(self, output: Tensor, y: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(output, y, pos_weight=self._weights(output), reduction="none").mean(1)

    def _weights(self, like: Tensor) -> Tensor | None:
        return None if self.weights is None else constant(tuple(self.weights), like)

    def distance(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """The binary cross-entropy to the older answer's probabilities at temperature T."""
        return binary_cross_entropy_with_logits(student / temperature, torch.sigmoid(teacher / temperature))

    def decode(self, answer: Tensor) -> Any:
        there = [row.nonzero().flatten().tolist() for row in answer > 0]
        return [[self.names[label] for label in row] for row in there] if self.names else there

    def new_score(self) -> AveragePrecision:
        return AveragePrecision()

    def guess(self) -> float | None:
        had = [share for share in self.share or () if share > 0]
        return sum(had) / len(had) if had else None
