"""The end of a run in one screen: score matrix, the figures, capacity by layer, files; of several, a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from hatrack.measure import MEASURES, Scale, scale
from hatrack.show.words import count, duration, percent
from hatrack.visible import visible

NAME = 16
"""Characters of a task's name shown beside the accuracy matrix."""
CELL = 6
"""Characters of one accuracy, with the space before it."""
WIDE = 9
"""The same of a score that has other bounds."""
BAR = 30
"""Characters of a full capacity bar."""

FILES = {
    "report.html": "the report: open it in a browser",
    "result.json": "accuracy matrix, measures, capacity",
    "metrics.jsonl": "every epoch",
    "masks.safetensors": "the masks of every task",
    "spec.toml": "every setting",
    "checkpoint": "the learner: hatrack.load(RUN/checkpoint, net)",
}


def summary(result: Mapping[str, Any], path: Path, width: int = 80) -> str:
    """Return the text for a finished run (`result`: what result.json holds) whose folder is `path`."""
    blocks = [_matrix(result, width), _figures(result), _capacity(result), _files(path, scale(result["tasks"]))]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def seeds_summary(seeds: Sequence[int], results: Sequence[dict[str, Any] | Exception], paths: Sequence[Path]) -> str:
    """Return a table of runs that differ in their seed, then mean and spread; one that was stopped says why."""
    named = scale(task for result in results if not isinstance(result, Exception) for task in result["tasks"]).name
    width = max(8, len(named))
    lines = [f"{'seed':>5}  {named:>{width}}  {'forgetting':>10}  {'time':>7}  folder"]
    accuracies = []
    for seed, result, path in zip(seeds, results, paths, strict=True):
        if isinstance(result, Exception):
            reason = " ".join(str(result).split()) or type(result).__name__
            again = f" (to go on: hatrack resume {path})" if path.exists() else ""  # a refused run leaves no folder
            lines.append(f"{seed:>5}  stopped: {reason}{again}")
            continue
        acc, lost = (_figure(result["metrics"].get(name)) for name in ("acc", "forgetting"))
        accuracies += [] if result["metrics"].get("acc") is None else [result["metrics"]["acc"]]
        lines.append(f"{seed:>5}  {acc:>{width}}  {lost:>10}  {duration(result['seconds']):>7}  {path}")
    if len(accuracies) > 1:
        spread = f"{mean(accuracies):>{width}.4f} ± {stdev(accuracies):.4f}"
        lines.append(f"{'mean':>5}  {spread} over {len(accuracies)} seeds")
    return "\n".join(map(visible, lines))


def _matrix(result: Mapping[str, Any], width: int) -> list[str]:
    names = [visible(task["name"]) for task in result["tasks"]]
    cut = [name if len(name) <= NAME else name[: NAME - 1] + "…" for name in names]
    labels = [f"{i:>3} {name}" for i, name in enumerate(cut, start=1)]
    margin = max(map(len, labels))
    found = scale(result["tasks"])
    cell = CELL if found.shares else WIDE
    columns = max(1, (width - margin) // cell)
    lines = [found.put("Test accuracy after learning each task (row), on each task (column):")]
    if not found.alike:
        lines += [f"  {name}: {', '.join(cut[i] for i in places)}" for name, places in _by_score(result).items()]
    for first in range(0, len(names), columns):
        shown = range(first, min(first + columns, len(names)))
        lines.append(" " * margin + "".join(f"{i + 1:>{cell}}" for i in shown))
        for label, row in list(zip(labels, result["accuracy"], strict=True))[first:]:
            values = ("-" if value is None else _score(value) for value in row[first : first + columns])
            lines.append(f"{label:<{margin}}" + "".join(f"{value:>{cell}}" for value in values))
    return lines


def _by_score(result: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the tasks that are scored by each thing."""
    found: dict[str, list[int]] = {}
    for place, task in enumerate(result["tasks"]):
        found.setdefault(visible(task["score"]), []).append(place)
    return found


def _score(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.2g}"


def _figures(result: Mapping[str, Any]) -> list[str]:
    metrics = result["metrics"]
    shown = {name: _figure(metrics.get(name)) for name in ("acc", "forgetting")}
    shown |= {name: _figure(metrics[name]) for name in ("acc_free", "task_acc") if metrics.get(name) is not None}
    if result["capacity"]:
        shown["capacity"] = percent(result["capacity"][-1]["total"])
    if result["parameters"] is not None:
        shown["parameters"] = f"{result['parameters']:,}"
    if result["seconds"] is not None:
        place = f" on {visible(result['device'])}" if result["device"] else ""
        shown["seconds"] = f"{duration(result['seconds'])} for {count(len(result['tasks']), 'task')}{place}"
    titles = {name: MEASURES[name].on(result["tasks"]).title for name in shown}
    margin = max(17, *map(len, titles.values()))
    lines = [f"{titles[name]:<{margin}} {value}" for name, value in shown.items()]
    return lines + list(dict.fromkeys(metrics.get("undefined", {}).values()))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _capacity(result: Mapping[str, Any]) -> list[str]:
    if not result["capacity"]:
        return []
    layers = {visible(name): share for name, share in result["capacity"][-1]["layers"].items()}
    margin = max(map(len, layers), default=0)
    lines = [f"Capacity used by layer, after {count(len(result['tasks']), 'task')}:"]
    for name, share in layers.items():
        lines.append(f"  {name:<{margin}} {percent(share):>8}  {'█' * round(BAR * share):·<{BAR}}")
    return lines


def _files(path: Path, scored: Scale) -> list[str]:
    there = {name: scored.put(what) for name, what in FILES.items() if (path / name).exists()}
    return [f"Files in {visible(str(path))}:", *(f"  {name:<18} {what}" for name, what in there.items())]
