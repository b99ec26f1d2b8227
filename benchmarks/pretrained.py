"""What is kept of a pretrained network that learns from few samples, and how much of it a task takes.

An MLP 64-200-200 is trained on the digits 0 to 4, then learns 5 to 9 from 60 samples, of which the learner itself holds
out 15 %; it is tested on the rest, less 400 that settings were chosen on (`--part valid`).

    python benchmarks/pretrained.py --seeds 5-10 --batch-size 64
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hatrack import HAT, Learner, Method, PMask, Task
from hatrack.methods import METHODS

FEW, CHOSEN_ON, EPOCHS, BATCH = 60, 400, 30, 64
ADAM = partial(torch.optim.Adam, lr=1e-3)
WAYS: dict[str, tuple[Callable[[], Method], Callable[..., torch.optim.Optimizer] | None]] = {
    "fine-tuning, SGD": (METHODS["sgd"], None),
    "fine-tuning, Adam": (METHODS["sgd"], ADAM),
    "hat": (HAT, None),
    "hat, Adam": (HAT, ADAM),
    "hat open, Adam": (partial(HAT, start="open"), ADAM),
    "hat pretrained": (partial(HAT, start="pretrained"), None),
    "pmask pretrained": (partial(PMask, start="pretrained"), None),
}


def digits() -> tuple[Tensor, Tensor]:
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)


def pretrained(seed: int) -> tuple[nn.Module, nn.Linear]:
    """Return a network and its last layer, trained on the digits 0 to 4."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
    head = nn.Linear(200, 5)
    x, y = digits()
    x, y = x[y < 5], y[y < 5]
    optimizer = ADAM([*net.parameters(), *head.parameters()])
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(head(net(x[rows])), y[rows]).backward()
            optimizer.step()
    return net, head


def few(seed: int, part: str = "test") -> Task:
    """Return 60 samples of the digits 5 to 9, and those that they are tested on."""
    x, y = digits()
    rows = (y >= 5).nonzero()[:, 0]
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]
    train, valid, test = rows[:FEW], rows[FEW : FEW + CHOSEN_ON], rows[FEW + CHOSEN_ON :]
    tested = test if part == "test" else valid
    return Task("5-9", train=(x[train], y[train] - 5), test=(x[tested], y[tested] - 5), classes=5)


def kept(way: str, seed: int, batch_size: int, part: str = "test") -> tuple[float, float]:
    """Return the accuracy, and the share of weights that is left free."""
    method, optimizer = WAYS[way]
    learner = Learner(pretrained(seed)[0], method(), optimizer, batch_size=batch_size, seed=seed, device="cpu")
    learner.learn(few(seed, part), progress=False)
    taken = learner.capacity()
    return learner.matrix()[0][0] or 0.0, 1.0 if taken is None else 1 - taken[0]["total"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="5-10", help="first-last")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--part", choices=("valid", "test"), default="test")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"batch size {given.batch_size}, seeds {given.seeds}, {given.part}: accuracy mean (least), free mean (least)")
    for way in given.ways:
        found = [kept(way, seed, given.batch_size, given.part) for seed in range(first, last + 1)]
        accuracy, free = zip(*found, strict=True)
        shown = [f"{sum(v) / len(v):.3f} ({min(v):.3f})" for v in (accuracy, free)]
        print(f"{way:20} {shown[0]}   {shown[1]}", flush=True)


if __name__ == "__main__":
    main()
