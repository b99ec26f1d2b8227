"""CAT. Ke, Liu & Huang 2020, "Continual learning of a mixed sequence of similar and dissimilar tasks".

    masks        HAT's gates, annealing, compensation and regulariser
    similarity   task k < t is similar to t when a transfer model (k's masked network, frozen, and a new linear
                 readout) does better on t's validation samples than a reference network trained from scratch
    lock         g ← [1 − min(a_out, a_in)]·g with a the largest gate over dissimilar tasks only: what similar tasks
                 use may be updated, so that they, too, may gain
    transfer     attention from a query of task t over the features of all similar tasks, with a head of its own;
                 loss = HAT's + cross-entropy of the attention's logits; whichever of the two answers is better on
                 the validation samples is the one the task gives from then on

Reference, transfer models and the task itself are phases with the full number of epochs each, so that learning time
grows with the square of the number of tasks. The risks are compared by accuracy, of what has no classes by the loss;
equal is not similar. Where answers are given by position, attention looks at each by itself. Constants as in the
published scripts (lr 0.025, patience 10, 5 attention heads; HAT's for the rest).

Deviations. The published code reads a transfer model's prediction off the old task's logits; we read the features,
which do not depend on how many classes the old task had. There the attention is one for all tasks, so that later
tasks change earlier ones' answers; here it belongs to its task, and has no feed-forward block behind it. Old tasks'
features are computed without dropout. There is no promise: a task that is taken for similar by mistake is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.errors import HatrackError
from hatrack.masks.lock import Lock
from hatrack.methods.base import Method, ScheduleState
from hatrack.methods.hat import HAT
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.attention import attend, new_attention, xavier
from hatrack.methods.parts.declared import kept, progress, scratch
from hatrack.methods.parts.validation import Scores
from hatrack.modes import evaluating
from hatrack.nets.model import Model


@dataclass
class CAT(HAT):
    """HAT that finds similar tasks, lets them be updated and attends to their features."""

    name: ClassVar[str] = "cat"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Ke, Liu & Huang 2020"
    summary: ClassVar[str] = "HAT's masks; similar tasks are found, unlocked and attended to"
    stores: ClassVar[str] = "U bytes and an attention layer"
    guarantee: ClassVar[bool] = False

    lr: float = hyper(0.025, "learning rate at the start of every task", low=0.0, search=(0.005, 0.5, "log"))
    lr_patience: int = hyper(10, "epochs without a lower validation loss before it is divided", low=1)
    heads: int = hyper(5, "heads of the knowledge-transfer attention", low=1, search=(1, 5, 10))

    attention: list[dict[str, Tensor]] = kept("attention", answers=True)  # empty for a task that answers by its mask
    similar: dict[str, Tensor] = kept("similar", bits=True)  # of a task's number, whether each earlier one is
    accuracies: Tensor = progress("accuracies")
    reference: dict[str, Tensor] = progress("reference")
    readout: dict[str, Tensor] = scratch()
    attending: dict[str, Tensor] = scratch()
    _start: dict[str, Tensor] = scratch()
    _attended: Tensor | None = scratch()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fixed:
            raise HatrackError(f"cat has phases of its own, and cannot start {self.start}; use hat, or start = normal.")
        if self.grow:
            raise HatrackError("cat looks at the features of all tasks, which must be of one width; leave grow out.")

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.scores = Scores(model.device, rivals=2)
        self._asked = -1

    # ---- the phases: 0 the reference, 1 … t the transfer models, then the task itself

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        device, head = self.model.device, self.model.heads[task]
        self.scores.reset()
        self.accuracies = torch.zeros(task + 1, dtype=torch.float64, device=device)
        self.reference, self.readout, self.attending = {}, {}, {}
        if task == 0:
            return
        trained = self.model.parameters()
        self.reference = {n: t.clone().requires_grad_(n in trained) for n, t in self.model.initial.items()}
        start = xavier((head.out_features, head.in_features), generator)
        self._start = {"weight": start.to(head.weight), "bias": torch.zeros_like(head.bias)}
        self.readout = {name: t.clone().requires_grad_() for name, t in self._start.items()}
        made = new_attention(head.in_features, head.out_features, self.heads, generator)
        self.attending = {name: t.to(head.weight).requires_grad_() for name, t in made.items()}

    grown = Method.grown  # it attends to the features of all tasks, which would be of several widths

    def phases(self, epochs: int) -> Sequence[int]:
        return (epochs,) if self.task == 0 else (epochs,) * (self.task + 2)

    def begin_phase(self, phase: int) -> None:
        self.phase = phase
        self.learning = self.task == 0 or phase > self.task
        self.scores.reset()
        for name, tensor in self.readout.items():
            tensor.data.copy_(self._start[name])
        if self.learning:
            self._protect()

    def trainable(self) -> dict[str, Tensor]:
        if self.learning:
            return {**super().trainable(), **{f"attention/{n}": t for n, t in self.attending.items()}}
        readout = {f"readout/{n}": t for n, t in self.readout.items()}
        if self.phase > 0:
            return readout
        return {**readout, **{f"reference/{n}": t for n, t in self.reference.items() if t.requires_grad}}

    def end_phase(self, phase: int, feed: Feed, state: ScheduleState) -> None:
        found = self.scores.result()
        if not self.learning and found is not None:
            self.accuracies[phase] = found[1][0]

    def similar_now(self) -> list[int]:
        """Return the tasks whose transfer model does better than the reference."""
        reference, *transfer = self.accuracies.tolist()
        return [k for k, accuracy in enumerate(transfer) if accuracy > reference]

    # ---- the step

    def begin_epoch(self) -> None:
        super().begin_epoch()
        self.scores.start_epoch()

    def _protect(self) -> None:
        self._friends = self.similar_now() if self.task else []
        others = [mask.float() for k, mask in enumerate(self.masks) if k not in self._friends]
        taken = torch.stack(others).amax(0) if others else None
        self.lock = None if taken is None else Lock(self.model.parameters(), self._used(taken))

    def _model_logits(self, x: Tensor) -> Tensor:
        """Return what the reference or the transfer model of the phase says."""
        if self.phase == 0:
            features = self.model.features(x, self.task, weights=self.reference)
        else:
            with torch.no_grad():
                features = self._old_features(x, self.phase - 1)
        return self.model.heads[self.task].computed(features, self.readout["weight"], self.readout["bias"])

    def _old_features(self, x: Tensor, task: int) -> Tensor:
        with evaluating(self.model.net):
            return self.model.features(x, task, self.masks[task])

    def _attend(self, x: Tensor, task: int, attention: Mapping[str, Tensor], friends: Sequence[int]) -> Tensor:
        head = self.model.heads[task]
        features = torch.stack([head.units_last(self._old_features(x, k)) for k in friends], -2)
        places = features.shape[:-2]  # samples; of a head a position, also these
        return head.placed(attend(attention, features.flatten(0, -3), self.heads).unflatten(0, places))

    def loss(self, batch: Batch) -> Tensor:
        if not self.learning:
            return self.task_loss(self._model_logits(batch.x), batch)
        loss = super().loss(batch)
        if self._friends:
            loss = loss + self.task_loss(self._attend(batch.x, self.task, self.attending, self._friends), batch)
        return loss

    def after_backward(self) -> None:
        if self.learning:
            super().after_backward()

    def after_step(self) -> None:
        if self.learning:
            super().after_step()

    # ---- answers

    def predict(self, x: Tensor, task: int) -> Tensor:
        self._asked, self._attended = task, None
        if task < len(self.masks):
            if self.attention[task]:
                friends = self.similar[str(task)].nonzero().flatten().tolist()
                return self._attend(x, task, self.attention[task], friends)
            return super().predict(x, task)
        if not self.learning:
            return self._model_logits(x)
        if self._friends:
            self._attended = self._attend(x, task, self.attending, self._friends)
        return super().predict(x, task)

    def valid_loss(self, logits: Tensor, y: Tensor, task: int) -> Tensor:
        target = self.model.targets[task]
        if self._asked < len(self.masks) or not self.learning:
            loss = target.trained(logits, y)
        else:
            loss = super().valid_loss(logits, y, task)
            if self._attended is not None:
                loss = loss + target.trained(self._attended, y)
        if self._asked == len(self.masks):
            self.scores.add(loss, target, y, logits, logits if self._attended is None else self._attended)
        return loss

    def end_task(self, feed: Feed) -> None:
        super().end_task(feed)
        found = self.scores.result()
        attends = found is not None and found[1][1] > found[1][0]
        if self.task:
            friends = self.similar_now()
            self.similar[str(self.task)] = torch.tensor([k in friends for k in range(self.task)])
        self.attention.append({n: t.detach().clone() for n, t in self.attending.items()} if attends else {})

    def use(self, task: int) -> None:  # type: ignore[override]  # HAT promises, CAT does not
        return None
