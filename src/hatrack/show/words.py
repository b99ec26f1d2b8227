"""How figures read on a terminal."""

from __future__ import annotations

from hatrack.learn.fit import Epoch
from hatrack.runs.callback import TaskResult


def duration(seconds: float) -> str:
    """Return 0:07, 12:34 or 3:07:00."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def percent(share: float) -> str:
    """Return a share of 1 as per cent with one digit."""
    return f"{100 * share:.1f} %"


def count(number: int, noun: str) -> str:
    """Return `1 epoch`, `2 epochs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def facts(epoch: Epoch) -> list[str]:
    """Return what is worth showing of an epoch; what the method has no value for is left out."""
    said = [
        f"loss {epoch.train_loss:.4f}",
        f"{epoch.score} {epoch.valid_accuracy:.4f}",
        f"lr {epoch.lr:.2g}",
    ]
    if epoch.s is not None:
        said.append(f"s {epoch.s:g}")
    if epoch.capacity is not None:
        said.append(f"capacity {percent(epoch.capacity)}")
    return said


def task_facts(result: TaskResult) -> list[str]:
    """Return what is worth showing of a finished task."""
    tested = result.accuracy[-1]
    said = [] if tested is None else [f"test {result.scores[-1]} {tested:.4f}"]
    said.append(count(result.epochs, "epoch"))
    if result.capacity is not None:
        said.append(f"capacity {percent(result.capacity)}")
    return [*said, duration(result.seconds)]
