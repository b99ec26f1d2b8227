"""Samples of one task that wait at the same time are computed together; those of two tasks never are.

A batch is what has come while the one before was computed; and WAIT seconds longer where that one was shared, so that
who asks alone never waits for others. Where a batch fails, its requests are computed one by one, so that only the one
at fault is told of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hatrack.errors import one_line
from hatrack.serve.inputs import MOST, Arrays
from hatrack.serve.metrics import Metrics
from hatrack.serve.network import Network
from hatrack.serve.refused import crowded

log = logging.getLogger("hatrack.serve")
WAIT = 0.002


class _Part(NamedTuple):
    inputs: Arrays
    size: int
    answer: asyncio.Future[NDArray[Any]]


class Batches:
    """The queue of one task, worked off as long as the event loop runs."""

    def __init__(self, task: str, network: Network, cores: Executor, metrics: Metrics) -> None:
        self._task, self._network, self._cores, self._metrics = task, network, cores, metrics
        self._queue: deque[_Part] = deque()
        self._waiting, self._come = 0, asyncio.Event()

    async def ask(self, inputs: Arrays) -> NDArray[Any]:
        """Return the answers to some samples, in their order."""
        size = len(next(iter(inputs.values())))
        if self._waiting + size > MOST:
            raise crowded()
        step = self._network.together
        loop = asyncio.get_running_loop()
        parts = [
            _Part({name: x[i : i + step] for name, x in inputs.items()}, min(step, size - i), loop.create_future())
            for i in range(0, size, step)
        ]
        self._queue += parts
        self._waiting += size
        self._come.set()
        return np.concatenate(await asyncio.gather(*(part.answer for part in parts)))

    async def work(self) -> None:
        """Compute batch after batch."""
        shared = False
        while True:
            await self._come.wait()
            if shared and self._waiting < self._network.together:
                await asyncio.sleep(WAIT)
            batch = self._next()
            shared = len(batch) > 1
            if batch:
                await self._compute(batch)

    def _next(self) -> list[_Part]:
        """Take from the queue what fits into a batch, and drop what nobody waits for any more."""
        batch: list[_Part] = []
        room = self._network.together
        while self._queue and self._queue[0].size <= room:
            part = self._queue.popleft()
            self._waiting -= part.size
            if not part.answer.done():
                batch.append(part)
                room -= part.size
        if not self._queue:
            self._come.clear()
        return batch

    async def _compute(self, batch: Sequence[_Part]) -> None:
        sizes = [part.size for part in batch]
        try:  # whatever fails here must not end the queue
            together = {name: np.concatenate([part.inputs[name] for part in batch]) for name in batch[0].inputs}
            answers = await asyncio.get_running_loop().run_in_executor(self._cores, self._network.run, together)
        except Exception as error:
            if len(batch) > 1:
                for part in batch:
                    await self._compute([part])
                return
            log.error("task %r could not compute a request: %s", self._task, one_line(error))
            if not batch[0].answer.done():
                batch[0].answer.set_exception(self._network.failure())
            return
        self._metrics.computed(self._task, sum(sizes))
        for part, rows in zip(batch, np.split(answers, np.cumsum(sizes)[:-1]), strict=True):
            if not part.answer.done():
                part.answer.set_result(rows)
