"""What every target says.

One's own is a subclass with a `name`, a `score_name`, a number of outputs, a loss and a score:

    @dataclass(frozen=True)
    class Counts(Target):                                  # how many of something: a Poisson regression
        name = "counts"
        score_name = "1 − deviance"
        outputs = 1

        def loss(self, output, y):
            return torch.nn.functional.poisson_nll_loss(output[:, 0], y.float())

        def new_score(self):
            return Gathered(lambda output, y: …)

and is handed to a task: hatrack.Task(name, train=(x, y), target=Counts()).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

import torch
from torch import Tensor

from hatrack.errors import HatrackError

LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
TAKEN = ("accuracy", "average precision", "mean IoU", "R²")  # names of hatrack's own scores, whose bounds are known
LEAST = 1e-12  # that the weights of a batch are taken to sum to: all of them may be 0


class Score(Protocol):
    """Adds up over batches, and gives one figure; torchmetrics' metrics do."""

    def update(self, output: Tensor, y: Tensor, /) -> Any: ...
    def compute(self) -> Any: ...


class Judged(NamedTuple):
    """By what answers are judged; `guess`: what guessing scores, where that is known."""

    score: str
    larger_is_better: bool
    guess: float | None


class Gathered:
    """The score that a function (outputs, targets) → figure gives of all samples together, under a name of its own."""

    def __init__(
        self, function: Callable[[Tensor, Tensor], Any], name: str | None = None, larger_is_better: bool = True
    ) -> None:
        self._function, self._seen = function, list[tuple[Tensor, Tensor]]()
        self.name = name or str(getattr(function, "__name__", "score"))
        self.larger_is_better = larger_is_better

    def reset(self) -> None:
        self._seen = []

    def update(self, output: Tensor, y: Tensor) -> None:
        self._seen.append((output.detach().cpu(), y.cpu()))

    def compute(self) -> float:
        outputs, targets = zip(*self._seen, strict=True)
        return float(self._function(torch.cat(outputs), torch.cat(targets)))


class Theirs:
    """A copy of the user's metric, begun anew, where it lies: torchmetrics' ones are on one device."""

    def __init__(self, metric: Any) -> None:
        self._metric = copy.deepcopy(metric)
        if hasattr(self._metric, "reset"):
            self._metric.reset()
        where = getattr(metric, "device", None)
        self._device = where if isinstance(where, torch.device) else torch.device("cpu")

    def update(self, output: Tensor, y: Tensor) -> None:
        self._metric.update(output.detach().to(self._device), y.to(self._device))

    def compute(self) -> Any:
        return self._metric.compute()


@dataclass(frozen=True)
class Target:
    """What a task predicts.

    name                by which a saved learner knows it
    score_name          what its score is called
    larger_is_better    of the score
    per_position        an answer for every position of a sample (a pixel, a token), not one a sample
    outputs             how many numbers an answer has, a position if it is per position: the width of the head
    """

    name: ClassVar[str]
    score_name: ClassVar[str] = "score"
    larger_is_better: ClassVar[bool] = True
    per_position: ClassVar[bool] = False

    own_loss: LossFunction | None = field(default=None, kw_only=True, repr=False, compare=False)
    own_score: Any = field(default=None, kw_only=True, repr=False, compare=False)

    @property
    def outputs(self) -> int:
        """The width of the head."""
        raise HatrackError(f"target {type(self).__name__} does not say how many outputs it has.")

    @property
    def plain(self) -> bool:
        """Whether the loss is nothing but the cross-entropy of classes."""
        return False

    # ---- what is given

    def fitted(self, y: Tensor | None, where: str) -> Self:
        """Return this with what it takes from the training targets (a number of classes, a mean); None: not at hand."""
        return self

    def without_data(self, where: str) -> Self:
        """Return this for a loop of the user's, which shows no targets."""
        return self.fitted(None, where)

    def read(self, y: Tensor, where: str) -> Tensor:
        """Return targets of the shape and type that the loss takes; refuse others."""
        if y.is_floating_point() and not bool(y.isfinite().all()):
            raise HatrackError(f"{where} must be finite, got {y[~y.isfinite()][0].item()}.")
        return y

    def wrong(self, y: Tensor) -> tuple[int, str] | None:
        """Return the first row of targets that have been read that cannot be learned, and why; None if all can."""
        return None

    def soft(self, y: Tensor) -> Tensor:
        """Return targets of which the loss takes a mean of two, λ·y + (1 − λ)·y′, for mixup."""
        raise HatrackError(
            f"target {self.name!r} has no mean of two samples' targets, which mixup needs; leave it out."
        )

    def strata(self, y: Tensor) -> Tensor:
        """Return an integer a sample, by which a small memory is kept balanced."""
        return torch.zeros(len(y), dtype=torch.long, device=y.device)

    @property
    def units_axis(self) -> int | None:
        """Where features have the units that the head reads, 1 or −1; None: all of a sample's features are read."""
        return None

    def placed(self, features: tuple[int, ...], y: tuple[int, ...]) -> Self:
        """Return this for features and targets of these shapes, the batch left out."""
        return self

    # ---- learning

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        raise HatrackError(f"target {self.name!r} has no loss; give it one, or Task(..., loss=f).")

    def losses(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample, for samples that are weighted."""
        raise HatrackError(f"target {self.name!r} has no loss a sample, which weights of samples need; leave them out.")

    def trained(self, output: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss to train on: the user's where there is one; Σ w·loss / Σ w with weights of the samples."""
        if self.own_loss is None and weights is None:
            return self.loss(output, y)
        each = self.losses(output, y) if self.own_loss is None else self.own_loss(self.answer(output), y)
        if weights is None:
            return each.mean()
        if each.shape != weights.shape:
            raise HatrackError(
                f"weights of samples need a loss a sample, of shape {tuple(weights.shape)}; the loss that was given "
                f"returns {tuple(each.shape)}: give one that does not average (reduction='none')."
            )
        return (each * weights).sum() / weights.sum().clamp(min=LEAST)

    def distance(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Return how far one answer is from an older one, for distillation: the mean over the batch."""
        raise HatrackError(f"target {self.name!r} does not say how answers are distilled; choose another method.")

    # ---- answers

    def answer(self, output: Tensor) -> Tensor:
        """Return what `predict` gives: the head's output as it is, in the unit of the targets where they have one."""
        return output

    def decode(self, answer: Tensor) -> Any:
        """Return an answer in the user's words."""
        return answer

    # ---- the score

    def new_score(self) -> Score:
        """Return a fresh score."""
        raise HatrackError(f"target {self.name!r} has no score; give it one, or Task(..., score=f).")

    def scored(self) -> Score:
        """Return a fresh score: the user's where there is one."""
        if self.own_score is None:
            return self.new_score()
        whole = hasattr(self.own_score, "update") and hasattr(self.own_score, "compute")
        return Theirs(self.own_score) if whole else Gathered(self.own_score)

    def guess(self) -> float | None:
        """Return what guessing scores, where that can be said."""
        return None

    def judged(self) -> Judged:
        """Return by what answers are judged: the user's score where there is one."""
        own = self.own_score
        if own is None:
            return Judged(self.score_name, self.larger_is_better, self.guess())
        rises = getattr(own, "larger_is_better", getattr(own, "higher_is_better", None))
        name = getattr(own, "name", None) or getattr(own, "__name__", None) or type(own).__name__
        return Judged(f"{name} (own)" if name in TAKEN else str(name), rises is None or bool(rises), None)

    def facts(self) -> dict[str, Any]:
        """Return what result.json says of it; `guess` is None where nobody can say."""
        return {"target": self.name, **self.judged()._asdict()}

    # ---- on disk

    def described(self) -> dict[str, Any]:
        """Return it in JSON values; functions are not among them."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("own_loss", "own_score")}
        own = [what for what in ("loss", "score") if getattr(self, f"own_{what}") is not None]
        return {
            "name": self.name,
            "outputs": self.outputs,
            "per_position": self.per_position,
            "units_axis": self.units_axis,
            "judged": list(self.judged()[:2]),
            "translates": type(self).answer is not Target.answer,  # answers are not what the head gives
            "decodes": type(self).decode is not Target.decode,
            **({"own": own} if own else {}),
            **{key: list(value) if isinstance(value, tuple) else value for key, value in told.items()},
        }

    def with_own(self, loss: LossFunction | None, score: Any) -> Self:
        """Return this with the user's loss or score in place of its own."""
        if loss is not None and not callable(loss):
            raise HatrackError(f"loss must be a function (output, y) → loss, got {loss!r}.")
        known = callable(score) or (hasattr(score, "update") and hasattr(score, "compute"))
        if score is not None and not known:
            raise HatrackError(
                f"score must be a function (outputs, y) → figure, or have update and compute, got {score!r}."
            )
        if loss is None and score is None:
            return self
        return replace(self, own_loss=loss or self.own_loss, own_score=self.own_score if score is None else score)


def names_of(names: Sequence[str] | None, count: int | None, what: str) -> tuple[str, ...] | None:
    """Return names as a tuple; refuse some that are not texts, or not as many as there should be."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise HatrackError(f"names must be a list of texts, one {what}, got {names!r}.")
    if count is not None and len(names) != count:
        raise HatrackError(f"{count} of {what} need as many names, got {len(names)}.")
    return tuple(names)


def weights_of(weights: Sequence[float] | None, count: int | None, what: str) -> tuple[float, ...] | None:
    """Return weights as a tuple; refuse negative ones, or another number of them."""
    if weights is None:
        return None
    found = tuple(float(w) for w in weights)
    if (count is not None and len(found) != count) or not all(0 <= w < float("inf") for w in found) or not any(found):
        many = "one" if count is None else count
        raise HatrackError(f"weights must be {many} figures of 0 or more, one {what}, got {list(found)}.")
    return found
