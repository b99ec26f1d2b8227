"""TensorBoard: events in `tensorboard/` of the folder; `tensorboard --logdir FOLDER` shows all that are in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatrack.loggers.logger import Logger


class TensorBoard(Logger):
    """Writes events; what a resumed run repeats replaces what was there."""

    module = "torch.utils.tensorboard"
    extra = "tensorboard"

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)

    def open(self, step: int) -> None:
        self._step = step
        self._writer: Any = self.required().SummaryWriter(str(self.folder / "tensorboard"), purge_step=step)

    def settings(self, values: Mapping[str, Any]) -> None:
        rows = [f"| {name} | {value} |" for name, value in values.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *rows]), self._step)

    def figures(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
        self._step = step

    def end(self, finished: bool) -> None:
        self._writer.close()
