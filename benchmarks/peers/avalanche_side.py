"""The peer's side. Run by the driver with Avalanche's own interpreter:

    .venv-avalanche/bin/python avalanche_side.py --jobs JOBS.json --tasks FOLDER --out FOLDER

Every method is Avalanche's own plugin on its own training loop; this file only hands over the exported arrays, first
weights and batches, and reads the accuracies.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import CLASSES, TASKS, WIDTHS, Budget, Job, arguments, read_jobs, write_outcome
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import torchvision_operators  # noqa: F401  # isort: skip
from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline, with_task_labels
from avalanche.benchmarks.utils import (
    ConstantSequence,
    DataAttribute,
    TaskAwareSupervisedClassificationDataset,
)
from avalanche.models import MultiHeadClassifier, MultiTaskModule, avalanche_forward
from avalanche.models.base_model import BaseModel
from avalanche.models.packnet import PackNetModel, PackNetPlugin
from avalanche.training import Naive
from avalanche.training.plugins import (
    AGEMPlugin,
    EWCPlugin,
    LFLPlugin,
    LwFPlugin,
    SupervisedPlugin,
    SynapticIntelligencePlugin,
)

EVALUATION_BATCH = 1000


class Ground:
    """The exported arrays of a seed."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as stored:
            self._arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}

    def samples(self, part: str, task: int) -> tuple[Tensor, Tensor]:
        """Return inputs and labels."""
        return self._arrays[f"{part}/x/{task}"], self._arrays[f"{part}/y/{task}"]

    def order(self, task: int, phase: int, epoch: int) -> Tensor:
        """Return the order of the samples in an epoch (counted from 0) of a phase."""
        return self._arrays[f"order/{phase}/{task}"][epoch]

    @torch.no_grad()
    def fill(self, module: nn.Module, prefix: str) -> None:
        """Give a module its first weights: parameters in the order in which they were exported."""
        values = [v for name, v in self._arrays.items() if name.startswith(prefix)]
        for parameter, value in zip(module.parameters(), values, strict=True):
            parameter.copy_(value)


def backbone(ground: Ground) -> nn.Sequential:
    """Return the common network with its first weights."""
    inputs = ground.samples("train", 0)[0][0].numel()
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, WIDTHS[0]), nn.ReLU(), nn.Linear(*WIDTHS), nn.ReLU()
    )  # fmt: skip
    ground.fill(net, "net/")
    return net


class MultiHead(MultiTaskModule, BaseModel):
    """The network with Avalanche's own multi-head classifier: a head appears when its task does."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.net = backbone(ground)
        # without masking of unseen classes: every task has all of its two from the start
        self.classifier = MultiHeadClassifier(WIDTHS[-1], initial_out_features=CLASSES, masking=False)

    def get_features(self, x: Tensor) -> Tensor:
        """Return what the heads read; LFL asks for it."""
        return self.net(x)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        return self.classifier.forward_single_task(self.net(x), task_label)

    def head(self, task: int) -> nn.Module:
        """Return the head of a task that has begun."""
        return self.classifier.classifiers[str(task)].classifier


class PackNetMultiHead(PackNetModel):
    """Avalanche's PackNet around the network, with one dense head a task outside the pruned part.

    PackNetModel alone has a single head, which it prunes and divides among the tasks.
    """

    def __init__(self, ground: Ground) -> None:
        super().__init__(backbone(ground))
        self.heads = nn.ModuleList(nn.Linear(WIDTHS[-1], CLASSES) for _ in range(TASKS))

    def forward(self, input: Tensor, task_id: Tensor) -> Tensor:
        return self.heads[int(task_id[0])](super().forward(input, task_id))

    def head(self, task: int) -> nn.Module:
        """Return the head of a task."""
        return self.heads[task]


class CommonGround(SupervisedPlugin):
    """Gives every task its exported first head and every epoch its exported batches."""

    def __init__(self, ground: Ground, budget: Budget, phases: Sequence[int]) -> None:
        super().__init__()
        self.ground, self.budget = ground, budget
        self.places = [(phase, epoch) for phase, epochs in enumerate(phases) for epoch in range(epochs)]

    def before_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        task = strategy.experience.current_experience
        self.ground.fill(strategy.model.head(task), f"head/{task}/")

    def before_training_epoch(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        task = strategy.experience.current_experience
        x, y = self.ground.samples("train", task)
        order = self.ground.order(task, *self.places[strategy.clock.train_exp_epochs])
        strategy.dataloader = [
            [x[rows], y[rows], torch.full_like(rows, task)] for rows in order.split(self.budget.batch)
        ]  # fmt: skip


class CopyingSI(SynapticIntelligencePlugin):
    """SI whose notes of the weights are copies, as they are on a GPU.

    On a CPU, Avalanche 0.6.0 keeps views of the live weights: those before a step, those after it and the anchor are
    then the same memory, the path integral and the penalty are 0, and SI is plain fine-tuning.
    """

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        super().before_training_exp(strategy, **kwargs)
        copy_notes(self.ewc_data[0])

    def before_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        super().before_training_iteration(strategy, **kwargs)
        copy_notes(self.syn_data["old_theta"])


def copy_notes(notes: dict[str, Any]) -> None:
    """Cut tensors off from the memory that they share with the network."""
    for note in notes.values():
        note.data = note.data.clone()


PLUGINS: dict[str, Callable[..., SupervisedPlugin]] = {
    "EWC": EWCPlugin,
    "SI": CopyingSI,
    "SI as released": SynapticIntelligencePlugin,
    "LwF": LwFPlugin,
    "AGEM": AGEMPlugin,
    "LFL": LFLPlugin,
    "PackNet": PackNetPlugin,
}


def strategy_for(job: Job, ground: Ground) -> Naive:
    """Return Avalanche's training loop with the method's plugin (none for plain fine-tuning)."""
    budget, packs = job.budget, job.name == "PackNet"
    settings = {**job.settings, "post_prune_epochs": budget.retrain} if packs else job.settings
    own = [PLUGINS[job.name](**settings)] if job.name in PLUGINS else []
    phases = (budget.epochs - budget.retrain, budget.retrain) if packs else (budget.epochs,)
    model = PackNetMultiHead(ground) if packs else MultiHead(ground)
    return Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=budget.lr),
        train_mb_size=budget.batch,
        train_epochs=budget.epochs,
        plugins=[CommonGround(ground, budget, phases), *own],
        evaluator=None,
    )


@torch.no_grad()
def accuracy(model: nn.Module, ground: Ground, part: str, task: int) -> float:
    """Return the share of a task's samples that its own head classifies rightly."""
    model.eval()
    x, y = ground.samples(part, task)
    right = 0
    for images, labels in zip(x.split(EVALUATION_BATCH), y.split(EVALUATION_BATCH), strict=True):
        right += int((avalanche_forward(model, images, torch.full_like(labels, task)).argmax(1) == labels).sum())
    return right / len(y)


def labelled(ground: Ground, task: int) -> TaskAwareSupervisedClassificationDataset:
    """Return a task's training samples with their task label; plugins read their Fisher or memory from it."""
    x, y = ground.samples("train", task)
    attributes = [
        DataAttribute(y.tolist(), "targets"),
        DataAttribute(ConstantSequence(task, len(y)), "targets_task_labels", use_in_getitem=True),
    ]
    return TaskAwareSupervisedClassificationDataset([TensorDataset(x, y)], data_attributes=attributes)


def run(job: Job, ground: Ground) -> tuple[list[list[float]], list[float]]:
    """Train all tasks; return the test accuracies after each and the final validation accuracies."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):  # what the plugins draw from
        seed(job.seed)
    sets = [labelled(ground, task) for task in range(TASKS)]
    benchmark = with_classes_timeline(with_task_labels(benchmark_from_datasets(train=sets)))
    strategy, matrix = strategy_for(job, ground), []
    for task, experience in enumerate(benchmark.train_stream):
        strategy.train(experience)
        matrix.append([accuracy(strategy.model, ground, "test", earlier) for earlier in range(task + 1)])
    return matrix, [accuracy(strategy.model, ground, "valid", task) for task in range(TASKS)]


def main() -> None:
    """Run the listed jobs."""
    given = arguments(__doc__)
    warnings.filterwarnings("ignore")  # Avalanche's own notices of what it will deprecate
    torch.set_num_threads(1)
    for job in read_jobs(given.jobs):
        start = time.perf_counter()
        test, valid = run(job, Ground(job.budget.tasks_file(given.tasks, job.seed)))
        write_outcome(job, given.out, test, valid, time.perf_counter() - start)
        print(f"Avalanche {job.name} {job.settings} seed {job.seed}: {sum(test[-1]) / TASKS:.4f}", flush=True)


if __name__ == "__main__":
    main()
