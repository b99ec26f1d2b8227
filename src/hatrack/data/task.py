"""A task: named train, validation and test samples, what is to be predicted, and how raw inputs are prepared."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from hatrack.data.inputs import Inputs, as_inputs, as_tensor
from hatrack.data.samples import Collate, Pair, Split, split_of
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.notebook import card, table
from hatrack.targets import Classification, Target
from hatrack.tree import form

SHOWN = 5  # labels that a message lists


class Task:
    """One thing to learn: samples in three parts, what is to be predicted, and how inputs are prepared.

    Each part is (inputs, targets) as tensors or arrays, a map-style Dataset of (input, target) pairs, or a
    `Split`. Inputs may be a tuple or a dict of tensors: the network is called as net(*x) or net(**x). Arrays of float64
    are read as float32; tensors keep their type. Without `valid`, the learner holds out a share of `train`; without
    `test`, nothing is measured.

    target    what is predicted: hatrack.targets.Classification() (also by `classes` alone), MultiLabel, Regression,
              Dense, or your own
    loss      a function (output, y) → loss in place of the target's; `score`: a function (outputs, y) → figure, or
              a metric with update and compute, in place of its score
    weights   how much each training sample counts
    collate   what makes a batch (inputs, targets) of a list of samples of a Dataset, by padding for example
    about     in JSON values, what the task is made of: counts and normalisation, and whatever was given
    probes    raw inputs of your own on which `verify` is to compare answers too; they are not stored, and have to be
              given to it again
    """

    def __init__(
        self,
        name: str,
        train: Pair | Dataset[Any] | Split,
        valid: Pair | Dataset[Any] | Split | None = None,
        test: Pair | Dataset[Any] | Split | None = None,
        *,
        target: Target | None = None,
        classes: int | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        score: Any = None,
        weights: Any = None,
        inputs: Inputs | None = None,
        collate: Collate | None = None,
        about: Mapping[str, Any] | None = None,
        probes: Any = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise HatrackError(f"a task's name must be a text that is not empty, got {name!r}.")
        self.name = name
        where = f"task {name!r}"
        if target is not None and not isinstance(target, Target):
            raise HatrackError(f"{where}: target must be one of hatrack.targets or your own Target, got {target!r}.")
        if target is not None and classes is not None:
            raise HatrackError(f"{where}: give target or classes, which stands for Classification(classes), not both.")
        with _of(where):
            target = Classification(classes) if target is None else target
        given = {"train": train, "valid": valid, "test": test}
        parts = {part: split_of(g, f"{where}, {part}", collate) for part, g in given.items() if g is not None}
        for part, split in parts.items():
            if len(split) == 0:
                raise HatrackError(f"{where}: its {part} part holds no sample.")
            if form(split._x) != form(parts["train"]._x) and split.resident and parts["train"].resident:
                raise HatrackError(
                    f"{where}: {part} inputs are {form(split._x)}, training inputs {form(parts['train']._x)}; give "
                    f"them alike."
                )
        parts = {part: split.read_by(target, f"{where}, {part}: labels") for part, split in parts.items()}
        labels = parts["train"].labels
        fitted = target.fitted(labels, where)
        if isinstance(target, Classification) and target.classes is None:
            _warn_of_gap(where, labels, fitted.outputs)
        with _of(where):
            self.target: Target = fitted.with_own(loss, score)
        self.train = parts["train"] if weights is None else parts["train"].weighted(_weights(weights, parts, where))
        self.valid = parts.get("valid")
        self.test = parts.get("test")
        self.inputs = inputs or Inputs()
        if not self.inputs.plain and self.train.resident and form(self.train._x) != "one tensor":
            raise HatrackError(
                f"{where}: mean, std and permutation are for inputs of one tensor, these are {form(self.train._x)}; "
                f"prepare them beforehand."
            )
        self._check_labels()
        self.probes = None if probes is None else as_inputs(probes, f"{where}: probes")
        facts: dict[str, Any] = {
            "classes": self.classes,
            **{part: len(split) for part, split in self._parts()},
            "mean": None if self.inputs.mean is None else list(self.inputs.mean),
            "std": None if self.inputs.std is None else list(self.inputs.std),
            "permuted": self.inputs.permutation is not None,
        }
        if not isinstance(self.target, Classification):
            facts |= {"target": self.target.name, "score": self.target.score_name}
        self.about: dict[str, Any] = {**facts, **(about or {})}

    @property
    def classes(self) -> int:
        """The number of outputs of the task's head: of classes, labels, figures."""
        return self.target.outputs

    @property
    def varies(self) -> bool:
        """Whether batches may differ in shape: those that a collate function makes, and parts of pictures in sizes."""
        return self.train.collate is not None

    def with_inputs(self, inputs: Inputs) -> Task:
        """Return the task with its inputs prepared otherwise."""
        other = copy(self)
        other.inputs = inputs
        return other

    def __repr__(self) -> str:
        sizes = ", ".join(f"{part}={len(split)}" for part, split in self._parts())
        kind = "" if isinstance(self.target, Classification) else f"{self.target.name}, "
        counted = "classes" if kind in ("", "dense, ") else "outputs"
        return f"Task({self.name!r}, {kind}{counted}={self.classes}, {sizes})"

    def _repr_html_(self) -> str:
        parts = [part for part, _ in self._parts()]
        sizes = [f"{len(split):,}" for _, split in self._parts()]
        counted = "classes" if isinstance(self.target, Classification) else f"{self.target.name}: outputs"
        return card(f"Task {self.name}", table([counted, *parts], [[self.classes, *sizes]]))

    def _parts(self) -> Sequence[tuple[str, Split]]:
        known = (("train", self.train), ("valid", self.valid), ("test", self.test))
        return [(name, part) for name, part in known if part is not None]

    def _check_labels(self) -> None:
        for part, split in self._parts():
            labels = split.labels
            found = None if labels is None else self.target.wrong(labels)
            if found is not None and labels is not None:
                row, why = found
                what = f"label {int(labels[row])} in row {row}" if labels.ndim == 1 else f"row {row}"
                raise HatrackError(f"task {self.name!r}: {what} of {part} {why}.")


@contextmanager
def _of(where: str) -> Iterator[None]:
    """Say of an error which task it is of."""
    try:
        yield
    except HatrackError as error:
        raise HatrackError(f"{where}: {error}") from None


def _warn_of_gap(where: str, labels: Tensor | None, classes: int) -> None:
    if labels is None or labels.ndim > 1 or not len(labels):
        return
    occurring = labels.unique().tolist()
    if occurring[0] > 0:  # a class may lack samples, but labels that begin above 0 were made for all tasks together
        said = ", ".join(map(str, occurring[:SHOWN])) + (", …" if len(occurring) > SHOWN else "")
        line = (
            f"{where} has labels {said}, so that its head gets {classes} outputs; labels count from 0 "
            f"within a task: map them, or give Task(..., classes={classes})."
        )
        warnings.warn(HatrackWarning(line), stacklevel=4)


def _weights(given: Any, parts: Mapping[str, Split], where: str) -> Tensor:
    weights = as_tensor(given, f"{where}: weights").float()
    wanted = len(parts["train"])
    if (
        weights.shape != (wanted,)
        or not bool((weights >= 0).all() & weights.isfinite().all())
        or not bool(weights.any())
    ):
        raise HatrackError(
            f"{where}: weights must be {wanted} figures of 0 or more, one a training sample, got "
            f"{tuple(weights.shape)}."
        )
    return weights
