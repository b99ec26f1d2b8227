"""Avalanche's Naive or EWC on the common MLP, in its second task, through its own training loop and loader.

The one argument is "naive" or "ewc".
"""

from __future__ import annotations

import sys
from typing import Any

from steps import BATCH, CLASSES, INPUTS, RATE, SAMPLES, WIDTHS, Gate

gate = Gate()

import torch  # noqa: E402
from avalanche_side import (  # noqa: E402
    BaseModel,
    ConstantSequence,
    DataAttribute,
    EWCPlugin,
    MultiHeadClassifier,
    MultiTaskModule,
    Naive,
    SupervisedPlugin,
    TaskAwareSupervisedClassificationDataset,
    benchmark_from_datasets,
    with_classes_timeline,
    with_task_labels,
)
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402


class Net(MultiTaskModule, BaseModel):
    """The common network with Avalanche's multi-head classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(INPUTS, WIDTHS[0]), nn.ReLU(), nn.Linear(*WIDTHS), nn.ReLU())
        self.classifier = MultiHeadClassifier(WIDTHS[1], initial_out_features=CLASSES, masking=False)

    def get_features(self, x: Tensor) -> Tensor:
        return self.net(x)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        return self.classifier.forward_single_task(self.net(x), task_label)


class Stopwatch(SupervisedPlugin):
    """Asks at the beginning of every batch of the second task whether it may go on."""

    def before_training_iteration(self, strategy: Any, **_: Any) -> None:
        if strategy.experience.current_experience == 1:
            gate.step()


def task(label: int, samples: int) -> Any:
    """Return noise as a task in Avalanche's own form."""
    x, y = torch.randn(samples, INPUTS), torch.arange(samples) % CLASSES
    attributes = [
        DataAttribute(y.tolist(), "targets"),
        DataAttribute(ConstantSequence(label, samples), "targets_task_labels", use_in_getitem=True),
    ]
    return TaskAwareSupervisedClassificationDataset([TensorDataset(x, y)], data_attributes=attributes)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = Net()
    plugins: list[Any] = [Stopwatch(), *([EWCPlugin(ewc_lambda=1.0)] if sys.argv[1] == "ewc" else [])]
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    options = {"train_mb_size": BATCH, "train_epochs": 10**6, "eval_every": -1, "evaluator": None}
    strategy = Naive(model=net, optimizer=optimizer, criterion=nn.CrossEntropyLoss(), plugins=plugins, **options)
    sets = [task(0, 10 * BATCH), task(1, SAMPLES)]
    stream = with_classes_timeline(with_task_labels(benchmark_from_datasets(train=sets))).train_stream
    for place, experience in enumerate(stream):
        strategy.train_epochs = 1 if place == 0 else 10**6
        strategy.train(experience)


if __name__ == "__main__":
    main()
