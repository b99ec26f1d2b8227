"""DER++, dark experience replay. Buzzega et al. 2020, "Dark experience for general continual learning".

    loss     L(x, y) + α·mean (h(x′) − z′)² + β·L(x″, y″)

(x, y) is the new batch; (x′, z′) and (x″, y″) are two draws from the memory, independent of each other, each with a
pass of its own; z′ is what the network answered when x′ was trained on and put into the memory, in training mode.
Stream, memory and the settings they share are those of `replay`, and so are the deviations.

h and z are logits, or what else the head gives. heads="own": of the sample's own task's head. heads="all": of all heads
that there were when it was put into the memory, side by side; later heads are not held to anything. (The paper has
one head of all classes from the start, so that z there holds logits of classes still unseen.) The squares are averaged
over the answers of a sample, then over samples, as in their code; the paper writes the sum. Their scripts have α from
0.1 to 1 and β from 0.5 to 1, by data set and size of the memory; 0.1 and 0.5 are those of 200 samples of CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Batch
from hatrack.methods.hyper import hyper
from hatrack.methods.replay import Replay


@dataclass
class DERPP(Replay):
    """Learn from a memory, and answer its samples as once."""

    name: ClassVar[str] = "der++"
    source: ClassVar[str] = "Buzzega et al. 2020"
    summary: ClassVar[str] = "a small memory is learned, and answered as when it was put there"
    stores: ClassVar[str] = "200 samples in all and their logits"

    alpha: float = hyper(0.1, "α: weight of keeping a memory's answers", low=0.0, search=(0.1, 0.2, 0.5, 1.0))
    beta: float = hyper(0.5, "β: weight of learning a memory's targets", low=0.0, search=(0.5, 1.0))

    @torch.no_grad()
    def _answers(self, example: Batch) -> Tensor:
        like = self.model.heads[self.task].weight
        return self._heads.answers(like.new_zeros(1, *self.model.try_out(example.x)))[self.task]

    def loss(self, batch: Batch) -> Tensor:
        features = self.model.features(batch.x, self.task)
        self._seen = batch, self._heads.answers(features)[self.task].detach()
        loss = self._heads.loss(features, batch, self.task)
        if self.memory.empty:
            return loss
        drawn, z = self.memory.draw(self.memory_batch)
        assert drawn.source is not None
        strayed = distance(self._heads.answers(self.model.features(drawn.x, self.task)), z, drawn.source)
        again, _ = self.memory.draw(self.memory_batch)
        relearned = self._heads.loss(self.model.features(again.x, self.task), again, self.task)
        return loss + self.alpha * strayed + self.beta * relearned


def distance(answers: Sequence[Tensor], z: Tensor, source: Tensor) -> Tensor:
    """Return mean (h − z)², h those of the `answers` that are of the sample's own task."""
    each = z.new_zeros(len(z))
    for task, now in enumerate(answers):
        square = (now - z[:, : now.shape[1]]).square().mean(1)
        each = torch.where(source == task, square, each)
    return each.mean()
