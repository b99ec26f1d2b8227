"""A cohort: several learners on one device at once, each with its own stream, graphs and random numbers.

A small network leaves most of a GPU idle, and processes that share one take turns on it. Here one process gives every
learner its turn: a turn submits a few steps to the learner's own stream and returns before they are done, so that the
device works on all streams together. The next turn is due when they are done: a small network gets more turns than a
large one, and nobody waits for a single stream while the others run dry. A turn sees the random numbers of its own
learner only, so that each ends where it would have ended alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from time import sleep
from traceback import clear_frames

import torch

NAP = 1e-4  # seconds between two looks at streams that are all busy: far less than a turn's steps take


class OwnStream:
    """A stream and random numbers of its own, in force inside the context."""

    def __init__(self, device: torch.device) -> None:
        self._numbers = torch.get_rng_state()
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))
            self._generator = torch.cuda.default_generators[self._stream.device_index]
            self._state = self._generator.clone_state()
            self._submitted = torch.cuda.Event()

    @property
    def busy(self) -> bool:
        """Whether the device is still at work on what the last turn submitted."""
        return self._stream is not None and not self._submitted.query()

    def __enter__(self) -> None:
        self._outer_numbers = torch.get_rng_state()
        torch.set_rng_state(self._numbers)
        if self._stream is not None:
            # A recorded step remembers which state it draws from, so that swapping states keeps runs apart.
            self._outer_state = self._generator.graphsafe_get_state()
            self._generator.graphsafe_set_state(self._state)
            self._outer_device = torch.cuda.current_device()
            self._outer_stream = torch.cuda.current_stream(self._stream.device)
            torch.cuda.set_stream(self._stream)

    def __exit__(self, *_: object) -> None:
        self._numbers = torch.get_rng_state()
        torch.set_rng_state(self._outer_numbers)
        if self._stream is not None:
            self._state = self._generator.graphsafe_get_state()  # another one, after a recording that failed
            self._generator.graphsafe_set_state(self._outer_state)
            torch.cuda.set_stream(self._outer_stream)
            torch.cuda.set_device(self._outer_device)
            self._submitted.record(self._stream)


def take_turns(
    members: Iterable[tuple[OwnStream, Iterator[None]]], at_once: int | None = None
) -> Iterator[tuple[int, Exception | None]]:
    """Give every member its turns in its stream, `at_once` of them side by side (all, without a number).

    Yield each one's number when it ends, and what stopped it, None where nothing did; then the next one starts.
    """
    waiting = enumerate(members)
    active = dict(islice(waiting, at_once))
    while active:
        due = [number for number, (stream, _) in active.items() if len(active) == 1 or not stream.busy]
        if not due:
            sleep(NAP)
        for number in due:
            stream, member = active[number]
            stopped: Exception | None = None
            with stream:
                try:
                    next(member)
                    continue
                except StopIteration:
                    pass
                except Exception as error:
                    stopped = error
                    let_go(error)
            del active[number]
            active.update(islice(waiting, 1))
            yield number, stopped


def let_go(error: BaseException | None) -> None:
    """Empty the frames that an error holds on to, a whole learner in them: the next member needs the memory."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def together(members: Sequence[Iterator[None]], device: torch.device) -> list[Exception | None]:
    """Give every member its turns until all are done; return what stopped each, None where nothing did."""
    outcomes = dict(take_turns([(OwnStream(device), member) for member in members]))
    return [outcomes[number] for number in range(len(members))]
