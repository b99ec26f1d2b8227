"""Counts and times as Prometheus reads them, in its text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    """How many observations were at most each bound, and what they sum to."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Add one."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> Iterable[str]:
        """Yield it as Prometheus has it: counts add up from bound to bound."""
        below = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            below += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {below}'
        yield f"{name}_sum{{{labels}}} {self._sum}"
        yield f"{name}_count{{{labels}}} {below}"


class Metrics:
    """What has been asked so far; the event loop alone writes it. A name that is no task's counts as no task."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self._sizes: dict[str, Histogram] = defaultdict(lambda: Histogram(SIZES))

    def answered(self, task: str, status: int, seconds: float) -> None:
        """Count one request, or one item of a list."""
        self._requests[task, status] += 1
        self._seconds[task].observe(seconds)

    def computed(self, task: str, samples: int) -> None:
        """Count one batch."""
        self._sizes[task].observe(samples)

    def text(self) -> str:
        """Return all of it."""
        lines = _head("hatrack_requests_total", "counter", "Requests, and items of lists, by task and status.")
        lines += [
            f'hatrack_requests_total{{{_task(task)},code="{status}"}} {count}'
            for (task, status), count in sorted(self._requests.items())
        ]
        lines += _head("hatrack_request_seconds", "histogram", "Time from a request's arrival to its answer.")
        for task, seconds in sorted(self._seconds.items()):
            lines += seconds.lines("hatrack_request_seconds", _task(task))
        lines += _head("hatrack_batch_size", "histogram", "Samples that were computed together.")
        for task, sizes in sorted(self._sizes.items()):
            lines += sizes.lines("hatrack_batch_size", _task(task))
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _task(name: str) -> str:
    escaped = name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'task="{escaped}"'
