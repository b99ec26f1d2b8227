"""hat-cl's HAT on the common MLP, in its second task, in a plain loop over tensors (its users write the loop).

What it computes differs from the paper: the regulariser is a mean of per-layer ratios, compensation has a factor of its
own (100), embeddings are clamped before the next forward pass, and nothing keeps |s·e| from anywhere but the hook.
"""

from __future__ import annotations

import torch
from hat import HATConfig, HATPayload
from hat.modules import HATLinear
from hat.utils import get_hat_mask_scale, get_hat_reg_term
from torch import nn
from torch.nn.functional import cross_entropy

from steps import BATCH, CLASSES, INPUTS, RATE, SAMPLES, WIDTHS, serve


class MLP(nn.Module):
    """Two gated layers and a head a task."""

    def __init__(self) -> None:
        super().__init__()
        config = HATConfig(num_tasks=2)
        self.first, self.second = HATLinear(INPUTS, WIDTHS[0], config), HATLinear(*WIDTHS, config)
        self.relu = nn.ReLU()
        self.heads = nn.ModuleList(nn.Linear(WIDTHS[1], CLASSES) for _ in range(2))

    def forward(self, x: torch.Tensor, task: int, scale: float | None) -> torch.Tensor:
        payload = HATPayload(x, task_id=task, mask_scale=scale)
        payload = self.first(payload).forward_by(self.relu)
        payload = self.second(payload).forward_by(self.relu)
        return self.heads[task](payload.data)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = MLP()
    x, y = torch.randn(SAMPLES, INPUTS), torch.arange(SAMPLES) % CLASSES
    steps = SAMPLES // BATCH
    done = 0
    task = 0
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def step() -> None:
        nonlocal done
        place = done % steps
        rows = slice(place * BATCH, (place + 1) * BATCH)
        scale = get_hat_mask_scale(strat="linear", progress=place / (steps - 1), max_trn_mask_scale=400.0)
        loss = cross_entropy(net(x[rows], task, scale), y[rows])
        loss = loss + 0.75 * get_hat_reg_term(net, strat="uniform", task_id=task, mask_scale=scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1

    for _ in range(5):
        step()
    task, optimizer = 1, torch.optim.SGD(net.parameters(), lr=RATE)
    serve(step)


if __name__ == "__main__":
    main()
