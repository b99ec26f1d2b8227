"""The report of a run: headline, cards, pictures with how to read them, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from hatrack.measure import MEASURES, REFERENCES, Reading, scale
from hatrack.measure.scale import ACCURACY
from hatrack.report import growth_plots, plots
from hatrack.report.builder import Card, Head, Section, build, escape, how, pictures, table
from hatrack.report.exports import Export, section
from hatrack.report.picture import FREE, HELD, NEW, REUSED, Picture
from hatrack.report.read import Run
from hatrack.report.words import DASH, counted, duration, known, number, percent, score, whole

WEIGHTS_AT_MOST = 8  # parameters whose masks are shown


def page(run: Run, exports: Mapping[str, Export] | None = None) -> str:
    """Return the whole report; the same run, with the same exports, always gives the same bytes."""
    spec = run.result.spec
    where = [spec.net, f"seed {spec.seed}", counted(len(run.names), "task"), run.result.device or ""]
    head = Head("hatrack run report", f"{spec.method} on {spec.benchmark}", where, _said(run) + _lost(run))
    sections = [
        Section("accuracy", run.scale.put("Accuracy"), _drawn(run, plots.matrix, plots.accuracy, plots.ratio)),
        *([Section("which", "Without naming the task", _which(run))] if run.result.free else []),
        Section("capacity", "Capacity and reuse", _drawn(run, plots.capacity, plots.reuse, *_room(run))),
        Section("masks", "Weight masks", _weights(run)) if run.weights else Section("masks", "Unit masks", _masks(run)),
        *([Section("significance", "Significance", _drawn(run, plots.significance))] if run.result.histograms else []),
        Section("training", "Training", _drawn(run, plots.training) + how(_diverged(run))),
        Section("tasks", "Tasks and measures", _tasks(run) + _measures(run)),
        *([section(exports)] if exports else []),
        Section("settings", "Settings", _settings(run.settings)),
    ]
    foot = (
        f"Written by hatrack {run.result.hatrack} from spec.toml, result.json, metrics.jsonl"
        f"{' and masks.safetensors' if run.masks or run.weights else ''} in the run’s folder."
    )
    return build(head, _cards(run), sections, foot)


def _which(run: Run) -> str:
    """Draw which task is found, and say how well when nobody names it."""
    metrics, free = run.result.metrics, run.result.free
    assert free is not None
    right, none = known(metrics.get("acc_free")), float(np.mean([share for share in free.none if share is not None]))
    told = f"By {free.score}, the task is found for {percent(known(metrics.get('task_acc')))} of the test samples"
    told += "" if right is None else f", task and class are both right for {percent(right)}"
    told += f"; {percent(none)} are called none of these."
    if free.auroc is not None:
        told += f" With each task in turn unseen, AUROC of none of these is {free.auroc:.3f}."
    return how(told) + _drawn(run, plots.found)


def _room(run: Run) -> list[Callable[[Run], Picture]]:
    """Return what is to be drawn of the network's room, as far as there is something to say of it."""
    foreseen = [growth_plots.forecast] if len(run.result.capacity or ()) > 1 else []
    return [*foreseen, *([growth_plots.parameters] if run.result.growth else [])]


def _drawn(run: Run, *plot: Callable[[Run], Picture]) -> str:
    return pictures(partial(one, run) for one in plot)


def _moved(run: Run) -> list[str]:
    """Return the names of the tasks whose score changed at any time after they were learned."""
    changed = []
    for i, name in enumerate(run.names):
        seen = run.accuracy[i:, i]
        seen = seen[np.isfinite(seen)]
        if seen.size and (seen != seen[0]).any():
            changed.append(name)
    return changed


def _said(run: Run) -> str:
    """Say in words how the run went."""
    count, moved, put = len(run.names), _moved(run), run.scale.put
    opening = _reached(run, known(run.result.metrics.get("acc")))
    if opening is None:
        return put(f"The network learned {counted(count, 'task')}; no test accuracy was measured.")
    if count == 1:
        return opening
    if not moved:
        return f"{opening} {put('No task’s accuracy changed after it was learned.')}"
    return f"{opening} {put('The accuracy of')} {len(moved)} of the {count} tasks changed after they were learned."


def _reached(run: Run, acc: float | None) -> str | None:
    """Say how good the network is at the end; None where nothing was measured."""
    opening = f"After {counted(len(run.names), 'task')}"
    over = ", averaged over the tasks." if len(run.names) > 1 else "."
    if not run.scale.alike:
        if not np.isfinite(run.accuracy[-1]).any():
            return None
        return f"{opening}, each of which has a score of its own: {'; '.join(_by_score(run))}."
    if acc is None:
        return None
    if all(task.target == "classification" and task.score == ACCURACY for task in run.result.tasks):
        return f"{opening} the network is right on {percent(acc)} of the test samples{over}"
    return f"{opening} the network’s {run.scale.name} is {score(acc, run.scale)}{over}"


def _by_score(run: Run) -> Iterable[str]:
    """Yield every score there is, with its values at the end."""
    for name in dict.fromkeys(task.score for task in run.result.tasks):
        values = [
            score(value, scale([task.model_dump()]))
            for task, value in zip(run.result.tasks, run.accuracy[-1], strict=True)
            if task.score == name
        ]
        yield f"{name} {', '.join(values)}"


def _lost(run: Run) -> str:
    """Say how many epochs diverged, if any did."""
    lost = sum(epoch.diverged for epoch in run.epochs)
    return f" Training diverged in {lost} of {counted(len(run.epochs), 'epoch')}: see Training." if lost else ""


def _cards(run: Run) -> list[Card]:
    result, spec = run.result, run.result.spec
    used = result.capacity[-1].total if result.capacity else None
    samples = sum(task.train or 0 for task in result.tasks)
    return [
        Card("Method", spec.method, f"network {spec.net}"),
        Card("Benchmark", spec.benchmark, f"{counted(len(run.names), 'task')}, {whole(samples)} training samples"),
        *_scores(run, result.metrics.get("acc"), result.metrics.get("forgetting")),
        Card("Capacity used", percent(used), "of the weights" if used is not None else "not counted"),
        Card("Parameters", whole(result.parameters), "networks and heads of all tasks"),
        Card("Time", duration(result.seconds), f"on {result.device}" if result.device else ""),
        _guarantee(run),
    ]


def _scores(run: Run, acc: float | None, forgetting: float | None) -> list[Card]:
    put, known = run.scale.put, run.scale
    if not known.alike:
        several = ", ".join(dict.fromkeys(task.score for task in run.result.tasks))
        return [Card("Scores", several, "test, of the tasks; there is no mean over them")]
    return [
        Card(put("Average accuracy"), score(acc, known), "test, over all tasks, at the end"),
        Card("Forgetting", score(forgetting, known, 2), put("mean loss of accuracy on old tasks")),
    ]


def _guarantee(run: Run) -> Card:
    """Say whether the method promises that old tasks cannot change, and what was compared of it, bit by bit."""
    moved = len(_moved(run))
    seen = f"{counted(moved, 'task')} moved" if moved else run.scale.put("no accuracy moved")
    found = run.result.verified
    if not all(np.isin(gates, (0, 1)).all() for gates in (run.masks or {}).values()):
        return Card("Guarantee", "Approximate", f"gates between 0 and 1; {seen}")
    if not run.result.guarantee:
        return Card("Guarantee", "None", f"{run.result.spec.method} makes no promise; {seen}")
    if moved:
        return Card("Guarantee", "Not kept", f"old tasks are locked, yet {seen}", "bad")
    if found is None:
        return Card("Guarantee", "Promised", f"{seen}; hatrack verify compares every bit")
    compared = f"{whole(found.logits)} logits and {whole(found.entries)} entries ({whole(found.bytes)} bytes)"
    if not found.ok:
        return Card("Guarantee", "Not kept", f"of {compared} not all are what they were: see hatrack verify", "bad")
    if found.within:
        return Card("Guarantee", "Kept", f"{compared} compared, logits within {found.within:g}: another machine's")
    return Card("Guarantee", "Exact", f"{compared} compared, not one bit differs", "good")


def _masks(run: Run) -> str:
    drawn = pictures(partial(plots.masks, run, site) for site in run.masks or [None])
    if not run.masks:
        return drawn
    key = "".join(
        f'<li><i style="background:{colour}"></i>{meaning}</li>'
        for colour, meaning in (
            (NEW, "on, and new"),
            (REUSED, "on, reused from an earlier task"),
            (HELD, "off, kept for an earlier task"),
            (FREE, "off, free"),
        )
    )
    wide = any(gates.shape[1] > plots.COLUMNS_AT_MOST for gates in run.masks.values())
    told = (
        "One picture a layer: a row is a task, a column a unit. Units stand in the order of the task that "
        "first used them, so that each task’s new units form the next step of a staircase, and what it "
        "reuses lies to the left of its step."
        + (" In a wide layer, neighbouring units share a column." if wide else "")
    )
    return f'{how(told)}<ul class="key">{key}</ul>{drawn}'


def _weights(run: Run) -> str:
    """Draw the masks of the first and the last parameters: a deep network has too many for a page."""
    names = list(run.weights or ())
    half = WEIGHTS_AT_MOST // 2
    shown = names if len(names) <= WEIGHTS_AT_MOST else [*names[:half], *names[-half:]]
    left = len(names) - len(shown)
    told = f"The first and the last {half} parameters; hatrack.plot.weights draws the other {left}." if left else ""
    return how(told) + pictures(partial(plots.weights, run, name) for name in shown)


def _diverged(run: Run) -> str:
    """List the tasks with epochs that diverged."""
    counts = []
    for task, name in enumerate(run.names):
        epochs = [epoch.diverged for epoch in run.epochs if epoch.task == task]
        if any(epochs):
            counts.append(f"{name} ({sum(epochs)} of {counted(len(epochs), 'epoch')})")
    if not counts:
        return ""
    return (
        f"Diverged: {', '.join(counts)}. There the loss was not finite; training went back to the task’s best epoch "
        "so far and on with a lower learning rate."
    )


def _tasks(run: Run) -> str:
    rows: list[list[str]] = []
    plain = all((task.target, task.score) == ("classification", ACCURACY) for task in run.result.tasks)
    for i, task in enumerate(run.result.tasks):
        used = run.result.capacity[i].total if run.result.capacity else None
        counts = [whole(n) for n in (task.classes, task.train, task.valid, task.test)]
        own = scale([task.model_dump()])
        reached = (score(run.accuracy[i, i], own), score(run.accuracy[-1, i], own))
        rows.append([f"{i + 1} · {run.names[i]}", *([] if plain else [task.target, task.score]), *counts, *reached])
        rows[-1].append(percent(used))
    heads = ["Classes" if plain else "Outputs", "Train", "Valid", "Test", "Accuracy, learned", "Accuracy, end"]
    heads = ["Task", *([] if plain else ["Target", "Score"]), *map(run.scale.put, heads), "Capacity after"]
    return table("tasks", heads, rows, numbers=7)


def _measures(run: Run) -> str:
    """List what the run stored, and every other measure that it has a value of."""
    metrics, result = run.result.metrics, run.result.model_dump()
    listed = [key for key in metrics if key not in ("missing", "undefined") and not key.endswith("_each")]
    values = {key: _measure(metrics[key]) for key in listed}
    for key, references in (metrics.get("missing") or {}).items():  # `hatrack report RUN --against RUN` takes them
        methods = (REFERENCES[name][0] if name in REFERENCES else name for name in references)
        values[key] = f"needs runs of {', '.join(methods)}"
    values |= metrics.get("undefined") or {}
    for name, measure in MEASURES.own.items():
        if name not in values and (value := Reading(name, measure).value(result)) is not None:
            values[name] = number(value, measure).replace("-", "−")
    about = {name: measure.on(result["tasks"]).said for name, measure in MEASURES.own.items()}
    rows = [(key, about.get(key, ""), value) for key, value in values.items()]
    return "<h3>Measures</h3>" + table("measures", ["Name", "Meaning", "Value"], rows, numbers=1)


def _measure(value: Any) -> str:
    number = known(value)
    if number is not None:
        exact = f"{number:.0f}" if number == int(number) else f"{number:.4f}"
        return exact.replace("-", "−")
    return DASH if value is None or isinstance(value, float) else str(value)


def _settings(settings: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    body = _setting_rows(plain)
    for name, group in _groups(settings):
        if group:
            body += f'<tr class="group"><th colspan="2">{escape(name)}</th></tr>' + _setting_rows(group)
    return f'<table class="settings"><tbody>{body}</tbody></table>'


def _groups(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the tables within the settings, at any depth, with their dotted names."""
    for key, value in settings.items():
        if isinstance(value, dict):
            name = f"{prefix}{key}"
            yield name, {k: v for k, v in value.items() if not isinstance(v, dict)}
            yield from _groups(value, f"{name}.")


def _setting_rows(group: dict[str, Any]) -> str:
    return "".join(f"<tr><th>{escape(key)}</th><td>{escape(_setting(value))}</td></tr>" for key, value in group.items())


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_setting(item) for item in value) + "]"
    return str(value)
