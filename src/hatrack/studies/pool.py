"""A pool of spawned processes that outlives their deaths.

Each worker takes one item at a time and may speak to the parent while it works; the parent answers. A worker that dies
(killed, out of memory) is replaced and its item is given out again, up to `ATTEMPTS` times; one whose GPU has failed
says so and is replaced. When the parent dies, its workers end at once; when the parent stops (Ctrl-C), it ends them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from hatrack.errors import HatrackError

ATTEMPTS = 3

T = TypeVar("T")
Tell = Callable[[Any], Any]
Work = Callable[[Any, Tell], Any]
_SPAWN = multiprocessing.get_context("spawn")  # a forked copy of a process with threads, such as torch's, may hang


@dataclass(frozen=True)
class Done(Generic[T]):
    """An item that is over: what the work returned, or why it failed in one line, and how in many."""

    item: T
    value: Any = None
    reason: str | None = None
    trace: str = ""


class Pool:
    """`size` workers; each has a number, by which the work may choose its device."""

    def __init__(self, size: int, initializer: Callable[[int], None] | None = None) -> None:
        if size < 1:
            raise HatrackError(f"workers must be at least 1, got {size}.")
        self._size = size
        self._initializer = initializer

    def run(self, items: Iterable[T], work: Work, hear: Callable[[T, Any], Any]) -> Iterator[Done[T]]:
        """Yield each item as it is over, in the order in which that happens.

        An item is drawn when a worker is free for it. `hear(item, message)` is called for what the work says, and what
        it returns is the work's answer. Work that consists of parts may say a `Done` of each, which is yielded too.
        """
        waiting, again = iter(items), deque[tuple[T, int]]()
        idle: list[_Worker] = []
        busy: dict[Connection, tuple[_Worker, T, int]] = {}
        numbers = deque(range(self._size))
        try:
            while True:
                while len(busy) < self._size and (given := _next(again, waiting)) is not None:
                    worker = self._hired(idle, numbers, work, given[0])
                    busy[worker.link] = (worker, *given)
                if not busy:
                    return
                for link in wait(list(busy)):
                    assert isinstance(link, Connection)
                    worker, item, attempt = busy[link]
                    try:
                        kind, content = link.recv()
                    except (EOFError, ConnectionError):
                        del busy[link]
                        numbers.append(worker.number)
                        if attempt < ATTEMPTS:
                            again.append((item, attempt + 1))
                        else:
                            yield Done(item, reason=worker.exit_reason(attempt))
                        continue
                    if kind == "says" and isinstance(content, Done):
                        _answer(link, None)
                        yield content
                        continue
                    if kind == "says":
                        _answer(link, hear(item, content))
                        continue
                    del busy[link]
                    idle.append(worker)
                    yield Done(item, **content)
        finally:
            for worker in [*idle, *(worker for worker, _, _ in busy.values())]:
                worker.end()

    def _hired(self, idle: list[_Worker], numbers: deque[int], work: Work, item: Any) -> _Worker:
        """Give the item to an idle worker that still lives, else to a new one."""
        while idle:
            worker = idle.pop()
            try:
                worker.link.send((work, item))
                return worker
            except ConnectionError:
                numbers.append(worker.number)
        worker = _Worker(numbers.popleft(), self._initializer)
        worker.link.send((work, item))
        return worker


class _Worker:
    """A process and this end of the line to it."""

    def __init__(self, number: int, initializer: Callable[[int], None] | None) -> None:
        self.number = number
        self.link, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, number, initializer), daemon=True)
        with _ctrl_c_ignored():  # a child inherits it, so that Ctrl-C in its first seconds is the parent's affair too
            self.process.start()
        theirs.close()  # so that the line breaks when the worker dies

    def exit_reason(self, attempts: int) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
        return f"its worker {how}, {attempts} times in a row; perhaps memory ran out: try fewer --workers."

    def end(self) -> None:
        self.link.close()
        self.process.kill()
        self.process.join()


def _next(again: deque[tuple[T, int]], waiting: Iterator[T]) -> tuple[T, int] | None:
    if again:
        return again.popleft()
    for item in waiting:
        return item, 1
    return None


def _answer(link: Connection, answer: Any) -> None:
    with suppress(ConnectionError):  # it died meanwhile; the next look at its line shows it
        link.send(answer)


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only there can a signal's handler be changed
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(link: Connection, number: int, initializer: Callable[[int], None] | None) -> None:
    """Be a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    if initializer is not None:
        initializer(number)

    def tell(message: Any) -> Any:
        link.send(("says", message))
        return link.recv()

    while True:
        try:
            work, item = link.recv()
        except EOFError:
            return
        useless = False
        try:
            over: dict[str, Any] = {"value": work(item, tell)}
        except (EOFError, BrokenPipeError):
            return  # nobody is left to work for
        except Exception as error:
            import torch

            over = dict(zip(("reason", "trace"), failed(error), strict=True))
            useless = isinstance(error, torch.AcceleratorError)  # the process can do nothing more on its GPU
        link.send(("over", over))
        if useless:
            return


def failed(error: Exception) -> tuple[str, str]:
    """Put an error into one line, and where it came from; one of ours needs no more than its text."""
    text = " ".join(str(error).split())
    if isinstance(error, HatrackError):
        return text, ""
    trace = "".join(traceback.format_exception(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__, trace


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
