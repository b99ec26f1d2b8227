"""trackio: where trackio keeps all runs of this machine (TRACKIO_DIR); `trackio show --project hatrack` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

from hatrack.loggers.logger import Logger


class Trackio(Logger):
    """Writes to this machine alone, whatever TRACKIO_SPACE_ID says, and leaves `trackio.init` and its run untouched."""

    module = "trackio"
    extra = "trackio"

    def __init__(self, folder: str | Path, name: str | None = None, project: str = "hatrack") -> None:
        super().__init__(folder, name, project)
        self._config: dict[str, Any] = {}
        self._run: Any = None

    def open(self, step: int) -> None:
        trackio = self.required()

        class Local(trackio.Run):  # type: ignore[misc, name-defined]
            def _get_username(self) -> None:
                """Ask no Hub who is logged in."""

        if self.identity is None:
            self.identity = uuid4().hex
        self._kind: Any = Local

    def settings(self, values: Mapping[str, Any]) -> None:
        self.end(finished=False)  # a run takes settings with its first figures only
        self._config |= values

    def figures(self, values: Mapping[str, float], step: int) -> None:
        if self._run is None:
            names = {"project": self.project, "name": self.name, "run_id": self.identity}
            self._run = self._kind(url=None, client=None, config=dict(self._config), **names)
        self._run.log(dict(values), step=step)

    def end(self, finished: bool) -> None:
        if self._run is not None:
            with redirect_stdout(StringIO()):
                self._run.finish()
            self._run = None
