"""Figures, one or several a sample.

loss    squared error, in units of the training targets' deviation: (f(x) − (y − mean)/std)², so that a learning
rate need not know whether y is in metres or in millimetres
score   R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)², the mean over several figures; the mean as an answer scores 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor
from torch.nn.functional import mse_loss

from hatrack.errors import HatrackError
from hatrack.targets.base import Target
from hatrack.targets.classification import constant
from hatrack.targets.scores import R2


@dataclass(frozen=True)
class Regression(Target):
    """`values` a sample, their `mean` and `std`: taken from the training targets where they are not given."""

    name: ClassVar[str] = "regression"
    score_name: ClassVar[str] = "R²"

    values: int | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def __post_init__(self) -> None:
        mean, std = (None if given is None else tuple(map(float, given)) for given in (self.mean, self.std))
        counts = {len(given) for given in (mean, std) if given is not None}
        counts |= set() if self.values is None else {self.values}
        if len(counts) > 1 or (mean is None) != (std is None) or not all(s > 0 for s in std or ()):
            raise HatrackError(
                f"Regression takes as many means and deviations above 0 as there are values, got {self.values} values, "
                f"mean {self.mean} and std {self.std}."
            )
        object.__setattr__(self, "values", next(iter(counts), None))
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)

    @property
    def outputs(self) -> int:
        assert self.values is not None
        return self.values

    def fitted(self, y: Tensor | None, where: str) -> Self:
        if self.mean is not None:
            return self
        if y is None:
            raise HatrackError(
                f"{where}: mean and deviation cannot be seen in a Dataset; give Regression(mean=[…], std=[…])."
            )
        if self.values not in (None, y.shape[1]):
            raise HatrackError(f"{where}: its targets have {y.shape[1]} figures a sample, not {self.values}.")
        exact = y.double()
        std = exact.std(0, correction=0)
        return replace(
            self,
            values=y.shape[1] if self.values is None else self.values,
            mean=tuple(exact.mean(0).tolist()),
            std=tuple(s if s > 0 else 1.0 for s in std.tolist()),
        )

    def without_data(self, where: str) -> Self:
        """In the unit of the targets themselves, where no mean and deviation are given."""
        values = self.values or 1
        return self if self.mean is not None else replace(self, mean=(0.0,) * values, std=(1.0,) * values)

    def read(self, y: Tensor, where: str) -> Tensor:
        if y.ndim not in (1, 2) or y.is_complex():
            raise HatrackError(
                f"{where} must be one figure a sample, or a row of them, got {tuple(y.shape)} {y.dtype}."
            )
        return super().read((y if y.ndim == 2 else y[:, None]).float(), where)

    def wrong(self, y: Tensor) -> tuple[int, str] | None:
        return None if y.shape[1] == self.outputs else (0, f"has {y.shape[1]} figures, not {self.outputs}")

    def soft(self, y: Tensor) -> Tensor:
        return y

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return mse_loss(output, self._scaled(y))

    def losses(self, output: Tensor, y: Tensor) -> Tensor:
        return (output - self._scaled(y)).square().mean(1)

    def distance(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """The squared error to the older answer; there is nothing that a temperature could soften."""
        return mse_loss(student, teacher)

    def _scaled(self, y: Tensor) -> Tensor:
        mean, std = self._units(y)
        return (y - mean) / std

    def answer(self, output: Tensor) -> Tensor:
        mean, std = self._units(output)
        return output * std + mean

    def _units(self, like: Tensor) -> tuple[Tensor, Tensor]:
        assert self.mean is not None
        assert self.std is not None
        return constant(tuple(self.mean), like), constant(tuple(self.std), like)

    def new_score(self) -> R2:
        return R2()

    def guess(self) -> float:
        return 0.0
