"""hat-cl's whole run: its layers in a plain loop over tensors in memory (its users write the loop), no files.

The arrays are those of hatrack's tasks, already normalised, so loading costs it next to nothing. Like the others it
looks at the validation part after every epoch. Its compensation's factor is set to s_max, which makes it the paper's
(it would be 100); what else differs from the paper:

- The regulariser is the mean over layers of each layer's own ratio, and leaves a task 1/tasks of the units for free.
- Embeddings are clamped to ±6 before a forward pass, not after a step; no gradient norm is clipped.
- A unit is used when its embedding is above 0; evaluation takes the binary mask.
"""

from __future__ import annotations

import numpy as np
import torch
from hat import HATConfig, HATPayload
from hat.modules import HATLinear
from hat.utils import get_hat_mask_scale, get_hat_reg_term
from run_side import BATCH, CLASSES, INPUTS, RATE, S_MAX, TASKS, WIDTHS, C, answer, told
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

EVALUATION_BATCH = 1000
Samples = tuple[Tensor, Tensor]


class MLP(nn.Module):
    """Two gated layers and a head a task."""

    def __init__(self) -> None:
        super().__init__()
        config = HATConfig(num_tasks=TASKS, max_trn_mask_scale=S_MAX, grad_comp_factor=S_MAX)
        self.first, self.second = HATLinear(INPUTS, WIDTHS[0], config), HATLinear(*WIDTHS, config)
        self.relu = nn.ReLU()
        self.heads = nn.ModuleList(nn.Linear(WIDTHS[1], CLASSES) for _ in range(TASKS))

    def forward(self, x: Tensor, task: int, scale: float | None) -> Tensor:
        payload = HATPayload(x, task_id=task, mask_scale=scale)
        payload = self.first(payload).forward_by(self.relu)
        payload = self.second(payload).forward_by(self.relu)
        return self.heads[task](payload.data)


def train(net: MLP, samples: Samples, task: int, optimizer: torch.optim.Optimizer) -> None:
    """Run one epoch."""
    x, y = samples
    net.train()
    batches = torch.randperm(len(y)).split(BATCH)
    for place, rows in enumerate(batches):
        scale = get_hat_mask_scale(strat="linear", progress=place / (len(batches) - 1), max_trn_mask_scale=S_MAX)
        loss = cross_entropy(net(x[rows], task, scale), y[rows])
        loss = loss + C * get_hat_reg_term(net, strat="uniform", task_id=task, mask_scale=scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(net: MLP, samples: Samples, task: int) -> float:
    """Return the accuracy with binary masks."""
    x, y = samples
    net.eval()
    parts = zip(x.split(EVALUATION_BATCH), y.split(EVALUATION_BATCH), strict=True)
    return sum(int((net(a, task, None).argmax(1) == b).sum()) for a, b in parts) / len(y)


def main() -> None:
    """Learn all tasks; after each evaluate those so far."""
    given = told()
    torch.manual_seed(given.seed)
    with np.load(given.work / "tasks.npz") as stored:
        parts = {
            part: [tuple(torch.from_numpy(stored[f"{part}/{axis}/{t}"]) for axis in "xy") for t in range(TASKS)]
            for part in ("train", "valid", "test")
        }
    net = MLP()
    scores: list[float] = []
    for task in range(TASKS):
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        for _ in range(given.epochs):
            train(net, parts["train"][task], task, optimizer)
            accuracy(net, parts["valid"][task], task)
        scores = [accuracy(net, parts["test"][t], t) for t in range(task + 1)]
    answer(scores)


if __name__ == "__main__":
    main()
