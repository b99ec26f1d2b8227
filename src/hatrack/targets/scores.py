"""Scores of a task's answers, added up batch by batch on the device."""

from __future__ import annotations

import torch
from torch import Tensor


class Accuracy:
    """The share of samples whose largest logit is the label's; of soft labels, the most probable one counts."""

    def __init__(self) -> None:
        self._right: Tensor | int = 0
        self._count = 0

    def update(self, output: Tensor, y: Tensor) -> None:
        labels = y if y.ndim == 1 else y.argmax(1)
        self._right = self._right + (output.argmax(1) == labels).sum()
        self._count += len(y)

    def compute(self) -> float:
        return int(self._right) / self._count


class AveragePrecision:
    """The mean over labels of Σ_n (R_n − R_{n−1})·P_n, n the thresholds in falling order; equal ones are one."""

    def __init__(self) -> None:
        self._seen: list[tuple[Tensor, Tensor]] = []

    def update(self, output: Tensor, y: Tensor) -> None:
        self._seen.append((output.detach().float(), y))

    def compute(self) -> float:
        outputs, labels = (torch.cat(parts).cpu() for parts in zip(*self._seen, strict=True))
        found = [
            _average_precision(o, y > 0.5) for o, y in zip(outputs.T, labels.T, strict=True) if bool((y > 0.5).any())
        ]
        return sum(found) / len(found) if found else 0.0


def _average_precision(output: Tensor, there: Tensor) -> float:
    order = output.argsort(descending=True, stable=True)
    values, hits = output[order], there[order].double().cumsum(0)
    last = torch.ones(len(values), dtype=torch.bool)
    last[:-1] = values[1:] != values[:-1]  # of equal values, the threshold lets in all
    hits, seen = hits[last], torch.arange(1, len(values) + 1, dtype=torch.float64)[last]
    gained = torch.diff(hits, prepend=hits.new_zeros(1))
    return float((gained / hits[-1] * hits / seen).sum())


class R2:
    """1 − Σ(y − ŷ)²/Σ(y − ȳ)², the mean over figures; of figures that are all equal, 1 if they are met and 0 if not."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None
        self._count = 0

    def update(self, output: Tensor, y: Tensor) -> None:
        y, off = y.double(), (output.double() - y.double())
        if self._sums is None:
            self._shift = y.mean(0)  # squares of figures far from 0 would cancel
        moved = y - self._shift
        sums = torch.stack([moved.sum(0), moved.square().sum(0), off.square().sum(0)])
        self._sums = sums if self._sums is None else self._sums + sums
        self._count += len(y)

    def compute(self) -> float:
        assert self._sums is not None
        total, squares, residual = self._sums
        spread = squares - total.square() / self._count
        equal = spread <= squares * 1e-12
        score = torch.where(equal, (residual == 0).double(), 1 - residual / torch.where(equal, 1.0, spread))
        return float(score.mean())


class _Confusion:
    """How often class i was answered as class j, positions that are ignored left out."""

    def __init__(self, classes: int, ignore_index: int, axis: int) -> None:
        self._classes, self._ignored, self._axis = classes, ignore_index, axis
        self._counts = torch.zeros(classes, classes, dtype=torch.long)

    def update(self, output: Tensor, y: Tensor) -> None:
        answered, valid = output.argmax(self._axis), y != self._ignored
        pairs = y[valid] * self._classes + answered[valid]
        counts = torch.bincount(pairs, minlength=self._classes**2).view(self._classes, self._classes)
        self._counts = self._counts.to(counts.device) + counts


class DenseAccuracy(_Confusion):
    """The share of positions whose class is answered."""

    def compute(self) -> float:
        return int(self._counts.diagonal().sum()) / max(int(self._counts.sum()), 1)


class MeanIoU(_Confusion):
    """The mean of |both|/|either| over classes that occur in targets or answers."""

    def compute(self) -> float:
        counts = self._counts.double().cpu()
        both, either = counts.diagonal(), counts.sum(0) + counts.sum(1) - counts.diagonal()
        occurs = either > 0
        return float((both[occurs] / either[occurs]).mean()) if bool(occurs.any()) else 0.0
