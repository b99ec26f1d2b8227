"""A class for every position of a sample: the pixels of a picture, the tokens of a text.

    loss    cross-entropy, the mean over all positions that are not `ignore_index`
    score   accuracy over these positions, or mean IoU: the mean over the classes that occur in targets or answers of
            |both| / |either|; by default mean IoU where positions have two axes or more, accuracy where they have one

The head is one linear map of the units, the same at every position: a 1×1 convolution. Positions of the features must
be those of the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hatrack.errors import HatrackError, unknown
from hatrack.targets.base import Score, Target, names_of, weights_of
from hatrack.targets.classification import constant
from hatrack.targets.scores import DenseAccuracy, MeanIoU

SCORES = ("accuracy", "iou")


@dataclass(frozen=True)
class Dense(Target):
    """`axis`: where the features have their units, 1 or −1; seen from the positions unless both would do."""

    name: ClassVar[str] = "dense"
    per_position: ClassVar[bool] = True

    classes: int | None = None
    names: Sequence[str] | None = None
    weights: Sequence[float] | None = None
    ignore_index: int = -100
    score: str | None = None
    axis: int | None = None

    def __post_init__(self) -> None:
        given = self.classes if self.classes is not None else len(self.names) if self.names is not None else None
        if given is not None and given < 1:
            raise HatrackError(f"classes must be a whole number, 1 or more, got {given!r}.")
        if self.score is not None and self.score not in SCORES:
            raise unknown("score of Dense", self.score, SCORES)
        if self.axis not in (None, 1, -1):
            raise HatrackError(f"axis of Dense must be 1 (batch, units, …) or -1 (batch, …, units), got {self.axis!r}.")
        object.__setattr__(self, "classes", given)
        object.__setattr__(self, "names", names_of(self.names, given, "classes"))
        object.__setattr__(self, "weights", weights_of(self.weights, given, "class"))

    @property
    def outputs(self) -> int:
        assert self.classes is not None
        return self.classes

    @property
    def score_name(self) -> str:  # type: ignore[override]
        return "mean IoU" if self.score == "iou" else "accuracy"

    def fitted(self, y: Tensor | None, where: str) -> Self:
        if y is None:
            if self.classes is None:
                raise HatrackError(
                    f"{where}: the number of classes cannot be seen in a Dataset; give Dense(classes=N)."
                )
            return replace(self, score=self.score or "accuracy")
        seen = y[y != self.ignore_index]
        counted = int(seen.max()) + 1 if len(seen) else 1
        score = self.score or ("accuracy" if y.ndim == 2 else "iou")
        return replace(self, classes=self.classes if self.classes is not None else counted, score=score)

    def read(self, y: Tensor, where: str) -> Tensor:
        if y.ndim < 2 or y.is_floating_point() or y.is_complex():
            raise HatrackError(f"{where} must be an integer for every position, got {tuple(y.shape)} {y.dtype}.")
        return y.long()

    def wrong(self, y: Tensor) -> tuple[int, str] | None:
        bad = ((y != self.ignore_index) & ((y < 0) | (y >= self.outputs))).nonzero()
        if not len(bad):
            return None
        place = tuple(bad[0].tolist())
        return place[0], f"{int(y[place])} is neither in 0..{self.outputs - 1} nor the ignored {self.ignore_index}"

    @property
    def units_axis(self) -> int | None:
        return self.axis

    def placed(self, features: tuple[int, ...], y: tuple[int, ...]) -> Self:
        fits = [axis for axis, rest in ((1, features[1:]), (-1, features[:-1])) if rest == y]
        if self.axis is not None:
            fits = [axis for axis in fits if axis == self.axis]
        if len(fits) == 1:
            return replace(self, axis=fits[0])
        if fits:
            raise HatrackError(
                f"features of shape {features} fit labels of shape {y} both ways; give Dense(axis=1) for units before "
                f"the positions or Dense(axis=-1) for units behind."
            )
        raise HatrackError(
            f"labels have positions {y}, features are of shape {features}; let the network return features for every "
            f"position of the labels, its units before or behind the positions."
        )

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        each, counted = self._each(output, y)
        return each.sum() / counted.sum().clamp(min=1)

    def losses(self, output: Tensor, y: Tensor) -> Tensor:
        each, counted = self._each(output, y)
        return each.flatten(1).sum(1) / counted.flatten(1).sum(1).clamp(min=1)

    def _each(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss at every position, and its weight."""
        weights = None if self.weights is None else constant(tuple(self.weights), output)
        by_class = output if self.axis != -1 else output.movedim(-1, 1)
        each = cross_entropy(by_class, y, weights, ignore_index=self.ignore_index, reduction="none")
        valid = y != self.ignore_index
        counted = valid.to(each.dtype) if weights is None else weights[torch.where(valid, y, 0)] * valid
        return each, counted

    def distance(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """The cross-entropy to the older answer's softmax over T, at every position."""
        axis = self.axis or 1
        old = torch.softmax(teacher / temperature, dim=axis)
        return -(old * torch.log_softmax(student / temperature, dim=axis)).sum(axis).mean()

    def decode(self, answer: Tensor) -> Any:
        found = answer.argmax(self.axis or 1)
        if not self.names:
            return found
        return [[self.names[label] for label in row.flatten().tolist()] for row in found]

    def new_score(self) -> Score:
        made = MeanIoU if self.score == "iou" else DenseAccuracy
        return made(self.outputs, self.ignore_index, self.axis or 1)

    def guess(self) -> float:
        """1/classes for accuracy; for the IoU of classes that are equally frequent, 1/(2·classes − 1)."""
        return 1 / (2 * self.outputs - 1) if self.score == "iou" else 1 / self.outputs
