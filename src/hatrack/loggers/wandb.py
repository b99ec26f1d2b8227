"""Weights & Biases: offline, in `wandb/` of the folder, unless WANDB_MODE says otherwise.

Offline, every process that goes on begins an `offline-run-…` of its own with the run's id; `wandb sync` joins them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from hatrack.loggers.logger import Logger


class WandB(Logger):
    """Writes figures and settings alone: no code, no output, nothing about the machine."""

    module = "wandb"
    extra = "wandb"

    def open(self, step: int) -> None:
        wandb = self.required()
        if self.identity is None:
            self.identity = uuid4().hex[:8]
        off = ("disable_git", "disable_code", "disable_job_creation", "x_disable_meta", "x_disable_stats")
        plain: dict[str, Any] = {"silent": True, "console": "off", "host": "-", "x_save_requirements": False}
        self._run: Any = wandb.init(
            project=self.project,
            name=self.name,
            id=self.identity,
            dir=str(self.folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            resume="allow",
            reinit="create_new",  # others may have runs in this process
            settings=wandb.Settings(**plain, **dict.fromkeys(off, True)),
        )

    def settings(self, values: Mapping[str, Any]) -> None:
        self._run.config.update(dict(values), allow_val_change=True)

    def figures(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def end(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)
