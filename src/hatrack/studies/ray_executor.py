"""The runs of a study on a Ray cluster (extra `ray`).

A run is one Ray task on one core, or on a share of a GPU. Its folder must be where every node can write it: on one
machine any folder, on several a shared file system. A task whose worker dies is started again by Ray, up to twice, and
goes on from its last epoch.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from hatrack.errors import HatrackError
from hatrack.studies.executor import Hear, init_worker, work
from hatrack.studies.job import Job
from hatrack.studies.pool import ATTEMPTS, Done, failed

TOGETHER_ON_A_GPU = 4  # runs that share one: the networks are small
PATIENCE = 10.0  # seconds that a cluster has to answer


class Ray:
    """A cluster at `address`, or without one a new cluster of `workers` cores on this machine."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        try:
            self._ray: Any = import_module("ray")
        except ImportError:
            raise HatrackError("--on ray needs Ray: pip install 'hatrack[ray]'.") from None
        self._address, self._workers = address, workers

    def run(self, jobs: Sequence[Job], hear: Hear) -> Iterator[Done[Job]]:
        """Carry the jobs out; what they say of themselves on the way stays on their nodes."""
        ray = self._ray
        started = not ray.is_initialized()
        if started:
            _require_answer(self._address)
            size = {} if self._address else {"num_cpus": self._workers, "include_dashboard": False}
            try:
                ray.init(address=self._address, log_to_driver=False, logging_level="ERROR", **size)
            except Exception as error:  # a bare one too: "The current node timed out during startup"
                ray.shutdown()
                reason = str(error).strip().partition("\n")[0]
                raise HatrackError(f"Ray did not start ({reason}); the same command tries it again.") from error
        try:
            share = 1 / TOGETHER_ON_A_GPU if jobs[0].spec.device.startswith("cuda") else 0
            remote = ray.remote(num_cpus=1, num_gpus=share, max_retries=ATTEMPTS - 1)(_carry_out)
            waiting = {remote.remote(job): job for job in jobs}
            while waiting:
                for ready in ray.wait(list(waiting))[0]:
                    yield self._over(waiting.pop(ready), ready)
        finally:
            if started:
                ray.shutdown()

    def _over(self, job: Job, ready: Any) -> Done[Job]:
        try:
            reason, trace = self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0]
            return Done(job, reason=f"Ray gave it up after {ATTEMPTS} attempts ({type(error).__name__}: {first}).")
        return Done(job, reason=reason, trace=trace)


def _require_answer(address: str | None) -> None:
    """Raise where nobody listens at an address: Ray itself would go on trying for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon:  # none, or a word such as auto
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, ValueError) as error:
        raise HatrackError(
            f"no Ray cluster answers at {address!r} ({error}); check the address, or leave it out to use this machine."
        ) from None


def _carry_out(job: Job) -> tuple[str | None, str]:
    """Carry out a job on a node; return why it failed, if so, in one line and in many."""
    init_worker(0)
    try:
        work(job, lambda message: None)
    except Exception as error:
        return failed(error)
    return None, ""
