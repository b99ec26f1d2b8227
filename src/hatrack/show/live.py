"""Progress on a terminal: a line for each finished task, and below them the task being learned, redrawn."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hatrack.learn.fit import Epoch
from hatrack.runs.callback import RunPlan, TaskResult
from hatrack.show.progress import TimeLeft, headline
from hatrack.show.words import duration, facts, task_facts
from hatrack.visible import visible

INDENT, BAR = 6, 50
"""Columns before what belongs to the task above, and of the progress bar."""


class LiveProgress:
    """A callback that redraws; use it as a context, so that the terminal is left clean."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._plan: RunPlan | None = None
        self._epoch: Epoch | None = None
        self._left: float | None = None
        self._live = Live(console=console, transient=True, refresh_per_second=4, get_renderable=self._drawing)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._plan = None
        self._live.stop()

    def on_start(self, plan: RunPlan) -> None:
        self._plan = plan
        self._time = TimeLeft(plan.work, plan.epochs)
        self._task = plan.finished
        self._console.print(Text(visible(headline(plan)), style="bold"), soft_wrap=True)

    def on_epoch(self, epoch: Epoch) -> None:
        self._left = self._time.after(epoch.task, epoch.epoch)
        self._task, self._epoch = epoch.task, epoch

    def on_task(self, result: TaskResult) -> None:
        assert self._plan is not None
        name = Text(f"{result.task + 1:>3}/{len(self._plan.names)} {visible(result.name)}", style="green")
        line = Text.assemble(name, "  ", "  ".join(task_facts(result)))
        self._console.print(line, overflow="ellipsis", no_wrap=True)
        self._task, self._epoch = result.task + 1, None

    def _drawing(self) -> Table:
        drawing = Table.grid()
        plan, epoch = self._plan, self._epoch
        if plan is None or self._task >= len(plan.names):
            return drawing
        done, bound = (epoch.epoch, epoch.epochs) if epoch else (0, plan.epochs)
        place = f"{self._task + 1:>3}/{len(plan.names)} {plan.names[self._task]}"
        times = f"{duration(self._time.elapsed())} so far"
        if self._left is not None:
            times += f", at most {duration(self._left)} left"
        drawing.add_row(_line(f"{place}  epoch {done} of at most {bound}"))
        drawing.add_row(Padding(ProgressBar(total=bound, completed=done, width=BAR), (0, 0, 0, INDENT)))
        for words in ("  ".join(facts(epoch) if epoch else ["learning …"]), times):
            drawing.add_row(_line(" " * INDENT + words))
        return drawing


def _line(words: str) -> Text:
    return Text(visible(words), overflow="ellipsis", no_wrap=True)
