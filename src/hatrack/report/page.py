"""The report as one HTML page: headline, cards, pictures with how to read them, tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hatrack.report import plots
from hatrack.report.figure import FREE, HELD, NEW, REUSED
from hatrack.report.parts import (
    DASH,
    Card,
    Section,
    card_row,
    counted,
    document,
    duration,
    escape,
    figure,
    known,
    left_out,
    percent,
    row,
    table,
    whole,
)
from hatrack.report.read import Run


def page(run: Run) -> str:
    """Return the whole report; the same run always gives the same bytes."""
    spec = run.result.spec
    sections = [
        Section("accuracy", "Accuracy", _accuracy(run)),
        Section("capacity", "Capacity and reuse", _capacity(run)),
        Section("masks", "Unit masks", _masks(run)),
        Section("training", "Training", _training(run)),
        Section("tasks", "Tasks and measures", _tasks(run) + _measures(run)),
        Section("settings", "Settings", _settings(run.settings)),
    ]
    where = [spec.net, f"seed {spec.seed}", counted(len(run.names), "task")]
    where += [run.result.device] if run.result.device else []
    head = (
        '<header><p class="kind">hatrack run report</p>'
        f"<h1>{escape(spec.method)} on {escape(spec.benchmark)}</h1>"
        f'<p class="where">{escape(" · ".join(where))}</p>'
        f'<p class="said">{escape(_said(run) + _lost(run))}</p></header>'
    )
    foot = (
        f"<footer>Written by hatrack {escape(run.result.hatrack)} from spec.toml, result.json, metrics.jsonl"
        f"{' and masks.safetensors' if run.masks else ''} in the run’s folder.</footer>"
    )
    return document(f"{spec.method} on {spec.benchmark}", head + _cards(run), sections, foot)


def _moved(run: Run) -> list[str]:
    """Return the names of the tasks whose accuracy changed at any time after they were learned."""
    changed = []
    for i, name in enumerate(run.names):
        seen = run.accuracy[i:, i]
        seen = seen[np.isfinite(seen)]
        if seen.size and (seen != seen[0]).any():
            changed.append(name)
    return changed


def _said(run: Run) -> str:
    """Say in words how the run went."""
    count, moved, acc = len(run.names), _moved(run), known(run.result.metrics.get("acc"))
    if acc is None:
        return f"The network learned {counted(count, 'task')}; no test accuracy was measured."
    opening = f"After {counted(count, 'task')} the network is right on {percent(acc)} of the test samples"
    opening += ", averaged over the tasks." if count > 1 else "."
    if count == 1:
        return opening
    if not moved:
        return f"{opening} No task’s accuracy changed after it was learned."
    return f"{opening} The accuracy of {len(moved)} of the {count} tasks changed after they were learned."


def _lost(run: Run) -> str:
    """Say how many epochs diverged, if any did."""
    lost = sum(epoch.diverged for epoch in run.epochs)
    return f" Training diverged in {lost} of {counted(len(run.epochs), 'epoch')}: see Training." if lost else ""


def _cards(run: Run) -> str:
    result, spec = run.result, run.result.spec
    forgetting = result.metrics.get("forgetting")
    used = result.capacity[-1].total if result.capacity else None
    samples = sum(task.train or 0 for task in result.tasks)
    cards = [
        Card("Method", spec.method, f"network {spec.net}"),
        Card(
            "Benchmark",
            spec.benchmark,
            f"{counted(len(run.names), 'task')}, {whole(samples)} training samples",
        ),
        Card("Average accuracy", percent(result.metrics.get("acc")), "test, over all tasks, at the end"),
        Card("Forgetting", percent(forgetting, 2), "mean loss of accuracy on old tasks"),
        Card("Capacity used", percent(used), "of the weights" if used is not None else "not counted"),
        Card("Parameters", whole(result.parameters), "networks and heads of all tasks"),
        Card("Time", duration(result.seconds), f"on {result.device}" if result.device else ""),
        _guarantee(run),
    ]
    return card_row(cards)


def _guarantee(run: Run) -> Card:
    """Say whether the method promises that old tasks cannot change, and what was compared of it, bit by bit."""
    moved = len(_moved(run))
    seen = f"{counted(moved, 'task')} moved" if moved else "no accuracy moved"
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


def _accuracy(run: Run) -> str:
    count = len(run.names)
    half = count <= plots.PAIRED_UP_TO
    if not np.isfinite(run.accuracy).any():
        return left_out("No task of this run has test samples, so no accuracy was measured.")
    chance = min(1 / task.classes for task in run.result.tasks)
    matrix = figure(
        "Accuracy matrix",
        plots.accuracy_matrix(run.names, run.accuracy, chance),
        "Each row is the network after one more task, each column a task it is tested on. "
        "Read down a column: a colour that stays is a task that is kept, one that fades a task forgotten. "
        "The palest colour is guessing, or the lowest accuracy if that is lower.",
        half=half,
    )
    if count == 1:
        return row(matrix) + left_out("One task was learned, so there is no sequence to draw yet.")
    lines = figure(
        "Each task over the sequence",
        plots.accuracy_over_tasks(run.names, run.accuracy),
        "Each line starts when its task is learned; a flat line is a task that is kept. "
        "The dashed line is the average over the tasks learned so far.",
        half=half,
    )
    ratios = run.result.metrics.get("rho_each") or []
    return row(matrix, lines) + (row(_ratio(ratios)) if any(ratio is not None for ratio in ratios) else "")


def _ratio(ratios: Sequence[float | None]) -> str:
    return figure(
        "Forgetting ratio ρ over the sequence",
        plots.ratio_over_tasks(ratios),
        "0: as good as a network trained jointly on all tasks so far. −1: no better than guessing. "
        "Taken against the joint and the random run of the same seed.",
        half=True,
    )


def _capacity(run: Run) -> str:
    method, count = run.result.spec.method, len(run.names)
    half = count <= plots.PAIRED_UP_TO
    parts, reasons = [], []
    if run.result.capacity:
        names = run.result.capacity[0].layers
        svg = plots.capacity_over_tasks(
            [after.total for after in run.result.capacity],
            {name: [after.layers.get(name, math.nan) for after in run.result.capacity] for name in names},
        )
        caption = "Share of each layer’s weights that the tasks so far use; at 100 % a layer has no room left."
        few = len(names) <= plots.FIGURES_UP_TO
        parts.append(figure("Capacity used, layer by layer", svg, caption, half=half and few))
    else:
        reasons.append(f"{method} sets no weights aside for a task, so it has no capacity to show.")
    if run.reuse is None:
        reasons.append(f"{method} does not say which weights a task uses, so it has no reuse to show.")
    elif not np.isfinite(run.reuse).any():
        reasons.append("Reuse is counted between two tasks; this run has no pair of them.")
    else:
        caption = (
            "Row: the task whose weights they are. Column: a later task. "
            "The figure is the share of the row’s weights that the column’s task uses again."
        )
        svg = plots.reuse_matrix(run.names, run.reuse)
        parts.append(figure("Weight reuse between tasks", svg, caption, half=half))
    return (row(*parts) if parts else "") + (left_out(" ".join(reasons)) if reasons else "")


def _masks(run: Run) -> str:
    if not run.masks:
        return left_out(f"{run.result.spec.method} has no unit masks, so there is no picture of them.")
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
    how = (
        "One picture a layer: a row is a task, a column a unit. Units stand in the order of the task that "
        "first used them, so that each task’s new units form the next step of a staircase, and what it "
        "reuses lies to the left of its step."
        + (" In a wide layer, neighbouring units share a column." if wide else "")
    )
    pictures = []
    for site, gates in run.masks.items():
        on = gates > 0.5
        used = int(on.any(axis=0).sum())
        about = f"{whole(gates.shape[1])} units, {whole(used)} used by any task"
        pictures.append(figure(site, plots.unit_masks(site, run.names, gates), about=about))
    return f'<p class="how">{escape(how)}</p><ul class="key">{key}</ul>' + "".join(pictures)


def _training(run: Run) -> str:
    svg = plots.training_curves(run.names, run.epochs)
    if not svg:
        return left_out(f"{run.result.spec.method} recorded no epoch, so there are no training curves.")
    caption = (
        "Every epoch of the run from left to right; the bands are the tasks. "
        "The weights kept for a task may be those of its best epoch, not of its last."
    )
    return figure("Training curves", svg, caption) + _diverged(run)


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
        f'<p class="how">Diverged: {escape(", ".join(counts))}. There the loss was not finite; training went back to '
        "the task’s best epoch so far and on with a lower learning rate.</p>"
    )


def _tasks(run: Run) -> str:
    rows = []
    for i, task in enumerate(run.result.tasks):
        used = run.result.capacity[i].total if run.result.capacity else None
        counts = [whole(n) for n in (task.classes, task.train, task.valid, task.test)]
        rows.append([
            f"{i + 1} · {task.name}",
            *counts,
            percent(run.accuracy[i, i]),
            percent(run.accuracy[-1, i]),
            percent(used),
        ])  # fmt: skip
    heads = ["Task", "Classes", "Train", "Valid", "Test", "Accuracy, learned", "Accuracy, end", "Capacity after"]
    return table("tasks", heads, rows, numbers=7)


_MEANINGS = {
    "acc": "average test accuracy over all tasks at the end",
    "bwt": "backward transfer: mean change of a task’s accuracy since it was learned",
    "fwt": "forward transfer: what earlier tasks gave a new one, against learning it alone",
    "forgetting": "mean loss of accuracy on old tasks",
    "rho": "forgetting ratio ρ: 0 matches joint training, −1 is no better than guessing",
    "ncl": "difference to plain fine-tuning (NCL) in average accuracy",
    "acc_weighted": "average accuracy, weighted by the size of the test sets",
    "bwt_weighted": "backward transfer, weighted by the size of the test sets",
}


def _measures(run: Run) -> str:
    metrics = run.result.metrics
    waiting: dict[str, list[str]] = metrics.get("missing") or {}
    rows = [
        (key, _MEANINGS.get(key, ""), _waits(waiting[key]) if key in waiting else _measure(value))
        for key, value in metrics.items()
        if key not in ("missing", "rho_each")  # said in the other rows, and drawn
    ]
    return "<h3>Measures</h3>" + table("measures", ["Name", "Meaning", "Value"], rows, numbers=1)


def _waits(methods: list[str]) -> str:
    """Name the runs that a measure needs; `hatrack report RUN --against RUN` takes them."""
    return "needs runs of " + ", ".join("sgd" if method == "ncl" else method for method in methods)


def _measure(value: Any) -> str:
    number = known(value)
    if number is not None:
        exact = f"{number:.0f}" if number == int(number) else f"{number:.4f}"
        return exact.replace("-", "−")
    return DASH if value is None or isinstance(value, float) else str(value)


def _settings(settings: dict[str, Any]) -> str:
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    body = _setting_rows(plain)
    for name, group in _groups(settings):
        if group:
            body += f'<tr class="group"><th colspan="2">{escape(name)}</th></tr>' + _setting_rows(group)
    return f'<table class="settings"><tbody>{body}</tbody></table>'


def _groups(settings: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
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
