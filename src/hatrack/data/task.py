"""A task: named train, validation and test samples, what is to be predicted, and how raw inputs are prepared."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils.data import Dataset, Sampler

from hatrack.data.augmenting import Augmentation, BuiltIns, Each, augmentation
from hatrack.data.inputs import Inputs, as_inputs, as_tensor
from hatrack.data.order import sampling
from hatrack.data.samples import Collate, Pair, Split, split_of
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.notebook import card, table
from hatrack.targets import Classification, Target
from hatrack.targets.stored import OURS
from hatrack.tree import form, mapped

SHOWN = 5  # labels that a message lists


class Task:
    """One thing to learn: samples in three parts, what is to be predicted, and how inputs are prepared.

    Each part is (inputs, targets) as tensors or arrays, a Dataset of (input, target) pairs, map-style or iterable, or a
    `Split`. Inputs may be a tuple or a dict of tensors: the network is called as net(*x) or net(**x). Arrays of float64
    are read as float32; tensors keep their type. Without `valid`, the learner holds out a share of `train`; without
    `test`, nothing is measured. See docs/inputs.md.

    target    what is predicted: hatrack.targets.Classification() (also by `classes` alone), MultiLabel, Regression,
              Dense, or your own
    loss      a function (output, y) → loss in place of the target's; `score`: a function (outputs, y) → figure, or
              a metric with update and compute, in place of its score
    weights   how much each training sample counts in the loss
    sampler   which samples an epoch takes: "balanced" (classes equally often), a torch Sampler, or a function of the
              epoch's generator that returns rows
    augment   what is done to training samples, and to no others: names of built-in ones ("crop,flip"; also colour,
              cutout, mixup), or a function of a batch or of a sample: torchvision's transforms, albumentations,
              kornia's modules and your own (data/augmenting.py)
    length    how many samples of an iterable training part an epoch takes; without it, one pass
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
        sampler: Sampler[Any] | str | Callable[[Generator], Any] | None = None,
        augment: str | Callable[..., Any] | Each | Augmentation | None = None,
        length: int | None = None,
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
        if target is not None and OURS.get(getattr(target, "name", ""), type(target)) is not type(target):
            raise HatrackError(
                f"{where}: {type(target).__name__} calls itself {target.name!r}, which is hatrack's own; give it "
                f"another name."
            )
        if target is not None and classes is not None:
            raise HatrackError(f"{where}: give target or classes, which stands for Classification(classes), not both.")
        with _of(where):
            target = Classification(classes) if target is None else target
        given = {"train": train, "valid": valid, "test": test}
        parts = {
            part: split_of(g, f"{where}, {part}", collate, length if part == "train" else None)
            for part, g in given.items()
            if g is not None
        }
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
            self.target: Target = _whole(fitted.with_own(loss, score))
        self.train = parts["train"] if weights is None else parts["train"].weighted(_weights(weights, parts, where))
        self.sampler = None if sampler is None else sampling(sampler, where, name)
        self.augment = None if augment is None else augmentation(augment, where)
        self.valid = parts.get("valid")
        self.test = parts.get("test")
        self.inputs = inputs or Inputs()
        if not self.inputs.plain and self.train.resident and form(self.train._x) != "one tensor":
            raise HatrackError(
                f"{where}: mean, std and permutation are for inputs of one tensor, these are {form(self.train._x)}; "
                f"prepare them beforehand."
            )
        self._check_labels()
        self._check_training(where)
        self.probes = None if probes is None else as_inputs(probes, f"{where}: probes")
        facts: dict[str, Any] = {
            "classes": self.classes,
            **{part: len(split) for part, split in self._parts()},
            "mean": None if self.inputs.mean is None else list(self.inputs.mean),
            "std": None if self.inputs.std is None else list(self.inputs.std),
            "permuted": self.inputs.permutation is not None,
        }
        if self.augment is not None:
            facts["augment"] = str(self.augment)
        if not isinstance(self.target, Classification):
            facts |= {"target": self.target.name, "score": self.target.judged().score}
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

    def with_augment(self, augment: Augmentation) -> Task:
        """Return the task with its training samples augmented."""
        other = copy(self)
        other.augment, other.about = augment, {**self.about, "augment": str(augment)}
        other._check_training(f"task {self.name!r}")
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

    def _check_training(self, where: str) -> None:
        """Refuse samplers, weights and augmentations that do not fit the training part."""
        weighted = self.train.weights is not None
        if self.train.streams and (weighted or self.sampler is not None):
            what = "weights are" if weighted else "a sampler is"
            raise HatrackError(
                f"{where}: {what} for samples that have numbers, those of an iterable Dataset have none."
            )
        if self.sampler is not None and self.sampler.needs_all and self.valid is None:
            raise HatrackError(
                f"{where}: a sampler draws from the whole training part, and without valid a share of it is held out; "
                f"give Task(..., valid=…)."
            )
        if self.sampler is not None and not self.sampler.needs_all:
            if type(self.target).strata is Target.strata:
                raise HatrackError(f"{where}: a balanced sampler needs classes, {self.target.name} has none.")
            if self.train.labels is None:
                raise HatrackError(f"{where}: a balanced sampler needs labels; give the Dataset targets.")
        if self.augment is not None and self.augment.moves is not None and self.target.per_position:
            raise HatrackError(
                f"{where}: {self.augment.moves} moves pixels and would leave their labels ({self.target.name}) where "
                f"they are; give augment= a function of inputs and targets."
            )
        if self.augment is not None and self.augment.mixes:
            with _of(where):
                labels = self.train.labels
                self.target.soft(torch.zeros(1, dtype=torch.long) if labels is None else labels[:1])
            if weighted:
                raise HatrackError(f"{where}: mixup makes one sample of two, which have a weight each; leave one out.")
        if isinstance(self.augment, BuiltIns) and self.train.resident:
            with _of(where):
                self.augment.check(mapped(self.inputs.as_numbers, self.train.first(1)))

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


def _whole(target: Target) -> Target:
    """Return a target that says what it must."""
    name, outputs = getattr(target, "name", None), target.outputs
    if not isinstance(name, str) or not name or isinstance(outputs, bool) or not isinstance(outputs, int):
        raise HatrackError(
            f"target {type(target).__name__} must have a name and a whole number of outputs, got {name!r} and "
            f"{outputs!r}."
        )
    try:
        json.dumps(target.described(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise HatrackError(
            f"target {name!r} has a field that a saved learner cannot hold ({error}); let its fields be numbers, "
            f"texts or lists of them."
        ) from None
    return target


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
        wrong = weights[~((weights >= 0) & weights.isfinite())]
        got = f"{wrong[0].item():g} among them" if len(wrong) else "none above 0"
        raise HatrackError(
            f"{where}: weights must be {wanted} figures of 0 or more, one a training sample, got "
            f"{got if weights.shape == (wanted,) else tuple(weights.shape)}."
        )
    return weights
