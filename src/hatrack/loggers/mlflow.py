"""MLflow: a run in the database `mlflow.db` of the folder, or where MLFLOW_TRACKING_URI says.

MLflow's server need not run, and nothing is sent: its client writes to the database itself, and its telemetry is off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import time
from typing import Any, ClassVar

from hatrack.errors import HatrackError, one_line
from hatrack.loggers.logger import Logger

LONGEST = 500
"""Characters of a setting's value that every version of MLflow takes."""


class MLflow(Logger):
    """Writes a run of MLflow's through a client of its own: `mlflow.start_run` and its run stay untouched."""

    module = "mlflow"
    extra = "mlflow"
    environ: ClassVar[Mapping[str, str]] = {"MLFLOW_DISABLE_TELEMETRY": "true"}

    def open(self, step: int) -> None:
        with _quiet(), self._named():
            mlflow = self.required()
            where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.folder / 'mlflow.db'}"
            self._client: Any = mlflow.MlflowClient(where, registry_uri=where)
            if self.identity is None:
                self.identity = self._client.create_run(self._experiment(), run_name=self.name).info.run_id
            self._run = str(self.identity)
            self._known = dict(self._client.get_run(self._run).data.params)
            self._client.set_terminated(self._run, "RUNNING")

    def _experiment(self) -> str:
        known = self._client.get_experiment_by_name(self.project)
        return str(self._client.create_experiment(self.project) if known is None else known.experiment_id)

    def settings(self, values: Mapping[str, Any]) -> None:
        with self._named():
            for name, value in values.items():
                if name not in self._known:  # MLflow takes no second value
                    self._known[name] = str(value)[:LONGEST]
                    self._client.log_param(self._run, name, self._known[name])

    def figures(self, values: Mapping[str, float], step: int) -> None:
        kind = self.required().entities.Metric
        now = int(time() * 1000)
        with self._named():
            self._client.log_batch(self._run, metrics=[kind(name, value, now, step) for name, value in values.items()])

    def end(self, finished: bool) -> None:
        with self._named():
            self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say in one line what MLflow does not take."""
        try:
            yield
        except self.required().MlflowException as error:
            line = f"MLflow does not take the run of {str(self.folder)!r}: {one_line(error):.300}"
            raise HatrackError(line) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what MLflow tells of making a database off the terminal."""
    loggers = [logging.getLogger(name) for name in ("mlflow.store.db.utils", "alembic")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
