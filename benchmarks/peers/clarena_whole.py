"""CLArena's whole run: its own pipeline CLMainExperiment, SplitMNIST, loaders and accuracy metric.

Left out, to its advantage: checkpoints, progress bar, plots, the other metrics. It reads MNIST's idx files, which
whole.py writes, and decodes every picture anew in every epoch, and all of MNIST once a task to find its two digits.
Its accuracy is a mean over batches. What it computes differently from the paper: clarena_side.py.
"""

from __future__ import annotations

import csv

from clarena_side import QUIET, SETTINGS  # isort: skip
from clarena.pipelines import CLMainExperiment
from omegaconf import OmegaConf
from run_side import BATCH, CLASSES, INPUTS, RATE, S_MAX, TASKS, WIDTHS, C, answer, told


def main() -> None:
    """Build the configuration, run it, read the accuracies that it has written."""
    given = told()
    assert (SETTINGS["s_max"], SETTINGS["mask_sparsity_reg_factor"]) == (S_MAX, C)
    cfg = {
        "pipeline": "CL_MAIN_EXPR",
        "expr_name": "whole",
        "cl_paradigm": "TIL",
        "train_tasks": TASKS,
        "eval_after_tasks": TASKS,
        "global_seed": given.seed,  # its check takes 0 for a missing field
        "output_dir": str(given.out),
        "cl_dataset": {
            "_target_": "clarena.cl_datasets.SplitMNIST",
            "root": str(given.work),
            "class_split": {t + 1: list(range(CLASSES * t, CLASSES * (t + 1))) for t in range(TASKS)},
            "validation_percentage": 0.1,
            "batch_size": BATCH,
        },
        "backbone": {
            "_target_": "clarena.backbones.HATMaskMLP",
            "input_dim": INPUTS,
            "hidden_dims": [WIDTHS[0]],
            "output_dim": WIDTHS[1],
            "gate": "sigmoid",
        },
        "cl_algorithm": {"_target_": "clarena.cl_algorithms.HAT", **SETTINGS},
        "optimizer": {"_target_": "torch.optim.SGD", "_partial_": True, "lr": RATE},
        # without one the pipeline raises; this one changes nothing
        "lr_scheduler": {"_target_": "torch.optim.lr_scheduler.ConstantLR", "_partial_": True, "factor": 1.0},
        "trainer": {"_target_": "lightning.Trainer", "accelerator": "cpu", "max_epochs": given.epochs, **QUIET},
        "metrics": [{"_target_": "clarena.metrics.CLAccuracy", "save_dir": str(given.out)}],
        "lightning_loggers": {
            "csv": {"_target_": "lightning.pytorch.loggers.CSVLogger", "save_dir": str(given.out)},
        },
        "callbacks": [{"_target_": "lightning.Callback"}],  # may not be empty; this one does nothing
        "misc": {"note": "may not be empty"},
    }
    CLMainExperiment(OmegaConf.create(cfg)).run()
    with (given.out / "acc.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    answer([float(last[f"test_on_task_{t + 1}"]) for t in range(TASKS)])


if __name__ == "__main__":
    main()
