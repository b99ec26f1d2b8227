"""Each trial in a process of its own, so that a crash or a hang harms no other.

It is forked from this one, which has imported everything: importing takes longer than most trials.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection, wait

import torch

from .catalogue import NETS, prepare
from .trial import CRASHED, Outcome, trial

SLACK = 5  # how many times its seconds of processor time a trial may take by the clock: other things run, too


class Apart:
    """A trial under way."""

    def __init__(self, name: str, limit: int) -> None:
        context = multiprocessing.get_context("fork")
        self.name = name
        self.limit = limit
        self.answer, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_report, args=(name, limit, theirs))
        self.began = time.monotonic()
        self.process.start()
        theirs.close()

    @property
    def over(self) -> bool:
        """Whether it has answered, died, or taken too long."""
        return self.answer.poll() or not self.process.is_alive() or self._late

    @property
    def _late(self) -> bool:
        return time.monotonic() - self.began > SLACK * self.limit

    def outcome(self) -> Outcome:
        """Return what became of it."""
        if not self.answer.poll() and self._late:
            self.process.kill()
        try:
            return Outcome(**json.loads(self.answer.recv()))
        except EOFError:
            self.process.join()
            line = f"ended without an answer, exit code {self.process.exitcode}; its limit is {self.limit} s"
            return Outcome(self.name, CRASHED, line, seconds=round(time.monotonic() - self.began, 1))
        finally:
            self.process.join()


def put_through(names: Sequence[str], workers: int, limit: int) -> Iterator[Outcome]:
    """Yield the outcome of each network as it comes, `workers` at a time, `limit` seconds of processor time each."""
    prepare()
    waiting, running = list(names), list[Apart]()
    while waiting or running:
        while waiting and len(running) < workers:
            running.append(Apart(waiting.pop(0), limit))
        wait([each.answer for each in running], timeout=1.0)
        for each in [each for each in running if each.over]:
            running.remove(each)
            yield each.outcome()


def _report(name: str, limit: int, answer: Connection) -> None:
    torch.set_num_threads(1)  # the threads of a process that has computed do not survive fork, and would be waited for
    resource.setrlimit(resource.RLIMIT_CPU, (_used() + limit, resource.RLIM_INFINITY))
    answer.send(json.dumps(asdict(trial(name, NETS[name]))))


def _used() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int(usage.ru_utime + usage.ru_stime) + 1
