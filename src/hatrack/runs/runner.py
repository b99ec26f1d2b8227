"""Carry a run out: for each task learn, evaluate all tasks so far, record, checkpoint; then the result.

Why a run killed at any moment ends like an undisturbed one: three things are written as it goes, each in one
step: a line of metrics.jsonl, then the checkpoint that covers it, and at the end result.json. Resuming starts
from the checkpoint; lines that it does not cover are written again over the old ones (see `records`). All of
result.json but its times follows from the checkpoint and the lines of the finished tasks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

from safetensors.torch import save

from hatrack import atomic
from hatrack.errors import HatrackError
from hatrack.learn.callbacks import tell
from hatrack.learn.capacity import blocked_parameters
from hatrack.learn.fit import Epoch
from hatrack.learn.machine.parallel import process_group
from hatrack.learn.state import PAGE, of_run
from hatrack.report import get_ready
from hatrack.report import write as write_report
from hatrack.runs.callback import RunPlan, TaskResult
from hatrack.runs.folder import Folder
from hatrack.runs.peak import Peak
from hatrack.runs.records import Records
from hatrack.runs.references import completed, read_result
from hatrack.runs.result import assemble, dumps, facts_of, masks_of
from hatrack.runs.setup import Setup
from hatrack.runs.writer import Writer
from hatrack.seal import digest


def execute(setup: Setup, folder: Folder, *callbacks: object) -> dict[str, Any]:
    """Do what is left of the run, leave its files in `folder` and return what result.json holds."""
    _meet()
    run = executing(setup, folder, callbacks)
    while True:
        try:
            next(run)
        except StopIteration as end:
            result: dict[str, Any] = end.value
            return result


def learn_along(setup: Setup) -> None:
    """Do what a rank other than the first does: the same training, without a folder, a report or a word."""
    _meet()
    for task in setup.tasks[setup.learner.finished :]:
        setup.learner.learn(task, progress=False)


def _meet() -> None:
    """Wait until every rank has read what it needs, before the first one writes."""
    group = process_group()
    if group is not None:
        group.barrier()


def executing(
    setup: Setup, folder: Folder, callbacks: Sequence[object], against: Sequence[Path] = ()
) -> Generator[None, None, dict[str, Any]]:
    """Do the same bit by bit, so that several runs can take turns; `against`: runs that measures may be taken from."""
    page = folder.checkpoint / PAGE
    known, _ = of_run(folder.checkpoint) if page.exists() else (None, True)
    records = Records(folder.metrics, known[folder.metrics.name] if known else None)
    spec = digest(folder.spec.read_bytes())

    def about() -> dict[str, Any]:
        return {folder.spec.name: spec, folder.metrics.name: records.mark()}

    if setup.learner.device.type == "cuda":
        get_ready()
    done = False
    try:
        writing = Writer(setup.learner, folder.checkpoint, records.sync, about)
        with writing as writer, Peak(setup.learner.device) as peak:
            yield from _learn(setup, folder, callbacks, records, writer, peak)
        result = _finish(setup, folder, records, against)
        done = True
    finally:
        records.close()
        tell(callbacks, "on_end", done)
    return result


def finished(folder: Folder) -> dict[str, Any] | None:
    """Return what result.json holds, or None while there is none; a missing report is made good."""
    if not folder.result.exists():
        return None
    result = read_result(folder.path)
    if not folder.report.exists():
        write_report(folder.path)
    return result


def _learn(
    setup: Setup, folder: Folder, callbacks: Sequence[object], records: Records, writer: Writer, peak: Peak
) -> Iterator[None]:
    spec, tasks, learner = setup.spec, setup.tasks, setup.learner
    began = monotonic() - records.seconds

    def record(epoch: Epoch) -> None:
        records.epoch(vars(epoch) | {"seconds": monotonic() - began})
        writer.save()
        tell(callbacks, "on_epoch", epoch)

    resumed = len(records) > 0
    records.start(spec.model_dump(exclude={"data"}))
    if len(records.tasks()) < learner.finished:
        raise HatrackError(f"{folder.metrics} lacks finished tasks that the checkpoint has; start the run again.")
    for task in tasks:
        if task.test is None:
            raise HatrackError(f"task {task.name!r} has no test part to evaluate on.")
    names = [task.name for task in tasks]
    epochs = sum(learner.method.phases(spec.epochs))
    sizes = [len(task.train) for task in tasks]
    work = list(accumulate(sizes)) if learner.method.needs_old_data else sizes
    plan = RunPlan(spec, folder.path, names, epochs, work, learner.finished, resumed)
    tell(callbacks, "on_start", plan)
    for index in range(learner.finished, len(tasks)):
        yield from learner.learning(tasks[index], SimpleNamespace(on_epoch=record))
        accuracy = learner.matrix()[index]
        seconds = monotonic() - began
        facts: dict[str, Any] = {"blocked": blocked_parameters(learner.method), "facts": dict(learner.method.facts())}
        if histograms := learner.method.histograms():
            facts["histograms"] = dict(histograms)
        fields = {"name": names[index], "accuracy": accuracy, **facts, "memory": peak.bytes(), "seconds": seconds}
        records.task(index, fields)
        if index + 1 < len(tasks):
            writer.save()
        capacity = learner.capacity()
        used = capacity[-1]["total"] if capacity else None
        scores = [task.target.judged().score for task in tasks[: index + 1]]
        result = TaskResult(index, names[index], accuracy, records.epochs(index), used, seconds, scores)
        tell(callbacks, "on_task", result)
    yield from _written(writer)
    writer.save(last=True)  # also where all was learned before: a killed process may have left replaced files behind
    yield from _written(writer)


def _written(writer: Writer) -> Iterator[None]:
    """Let others have their turns while a checkpoint is being written."""
    while writer.busy:
        sleep(0.001)
        yield


def _finish(setup: Setup, folder: Folder, records: Records, against: Sequence[Path]) -> dict[str, Any]:
    """Write masks, result and report; the masks first, because a result says that the run is finished."""
    records.sync()
    masks = masks_of(setup.learner)
    stored = None if masks is None else save(masks)
    if stored is not None:
        atomic.write(folder.masks, stored)
    digests = {folder.metrics.name: records.mark()["digest"], folder.masks.name: stored and digest(stored)}
    spec, tasks = setup.spec.written(), [facts_of(task) for task in setup.tasks]
    result = assemble(setup.learner, spec, tasks, records.tasks(), records.seconds) | {"files": digests}
    atomic.write(folder.result, dumps(result))
    if against:
        with suppress(HatrackError):  # not finished yet, or unfit, which is said by who gathers the runs
            result, _ = completed(folder.path, against)
            atomic.write(folder.result, dumps(result))
    write_report(folder.path)
    return read_result(folder.path)
