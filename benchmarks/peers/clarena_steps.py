"""CLArena's HAT on the common MLP, in its second task, through its own LightningModule and Lightning's Trainer.

The Trainer is stopped at the beginning of every batch by a callback. Its pipeline's metrics, loggers and progress bar
are left out, and batches come from a DataLoader over tensors, made as CLArena makes its own; its pictures, which are
decoded one by one, would be slower. What it computes differently from the paper: clarena_side.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from steps import BATCH, CLASSES, INPUTS, RATE, SAMPLES, WIDTHS, Gate

gate = Gate()

import torch  # noqa: E402

from clarena_side import QUIET, SETTINGS  # noqa: E402  # isort: skip
from clarena.backbones import HATMaskMLP  # noqa: E402
from clarena.cl_algorithms import HAT  # noqa: E402
from clarena.heads import HeadsTIL  # noqa: E402
from lightning import Callback, Trainer  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


class Stopwatch(Callback):
    """Asks at the beginning of every batch whether it may go on."""

    def on_train_batch_start(self, *_: Any) -> None:
        gate.step()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = HATMaskMLP(input_dim=INPUTS, hidden_dims=[WIDTHS[0]], output_dim=WIDTHS[1], gate="sigmoid")
    algorithm = HAT(net, HeadsTIL(WIDTHS[1]), **SETTINGS)
    samples = TensorDataset(torch.randn(SAMPLES, INPUTS), torch.arange(SAMPLES) % CLASSES)
    loader = DataLoader(samples, BATCH, shuffle=True, drop_last=True)
    for task, extent in ((1, {"max_steps": 5}), (2, {"max_epochs": -1})):
        algorithm.setup_task_id(task, CLASSES, partial(torch.optim.SGD, lr=RATE), None)
        callbacks = [Stopwatch()] if task == 2 else []
        Trainer(accelerator="cpu", logger=False, callbacks=callbacks, **QUIET, **extent).fit(algorithm, loader)


if __name__ == "__main__":
    main()
