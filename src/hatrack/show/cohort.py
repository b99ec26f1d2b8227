"""The end of several runs that differ in their seed: a line each, then mean and spread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from hatrack.show.words import duration
from hatrack.visible import visible


def cohort_summary(seeds: Sequence[int], results: Sequence[dict[str, Any] | Exception], paths: Sequence[Path]) -> str:
    """Return the table; a run that was stopped says why."""
    lines = [f"{'seed':>5}  {'accuracy':>8}  {'forgetting':>10}  {'time':>7}  folder"]
    done = []
    for seed, result, path in zip(seeds, results, paths, strict=True):
        if isinstance(result, Exception):
            reason = " ".join(str(result).split()) or type(result).__name__
            again = f" (to go on: hatrack resume {path})" if path.exists() else ""  # a refused run leaves no folder
            lines.append(f"{seed:>5}  stopped: {reason}{again}")
            continue
        done.append(result["metrics"])
        acc, lost = result["metrics"]["acc"], result["metrics"]["forgetting"]
        shown = f"{acc:>8.4f}  {'-' if lost is None else format(lost, '.4f'):>10}"
        lines.append(f"{seed:>5}  {shown}  {duration(result['seconds']):>7}  {path}")
    if len(done) > 1:
        accuracies = [metrics["acc"] for metrics in done]
        lines.append(f"{'mean':>5}  {mean(accuracies):>8.4f} ± {stdev(accuracies):.4f} over {len(done)} seeds")
    return "\n".join(map(visible, lines))
