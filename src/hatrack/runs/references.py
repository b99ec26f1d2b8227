"""Figures that need other runs: forward transfer (one), ρ (joint and random), the difference to NCL (sgd).

The other runs must have learned the same tasks with the same network and seed; then their accuracies are taken as
references and the run's measures are completed, in result.json. PNN's columns and PathNet's modules may have a size
and a start of their own (see nets.OWN): as in HAT's paper, they are held against the network of all other methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatrack import atomic
from hatrack.errors import HatrackError
from hatrack.measure import REFERENCES, SERVES, summary
from hatrack.nets import OWN
from hatrack.report.read import read_result as checked
from hatrack.report.read import remake
from hatrack.runs.folder import open_run
from hatrack.runs.result import dumps, sizes

SAME = ("benchmark", "benchmark_options", "net", "net_options", "seed")


def complete(run: Path, against: Sequence[Path]) -> dict[str, Any]:
    """Return the run's result with all measures that the runs in `against` make possible, and store it.

    Measures that other references gave before are kept.
    """
    before, (result, _) = read_result(run)["metrics"], completed(run, against)
    known = {key: value for key, value in before.items() if value is not None and result["metrics"].get(key) is None}
    missing = {key: names for key, names in result["metrics"]["missing"].items() if key not in known}
    result = {**result, "metrics": {**result["metrics"], **known, "missing": missing}}
    store(run, result)
    return result


def store(run: Path, result: dict[str, Any]) -> None:
    """Write what `completed` returned."""
    with open_run(run) as folder:
        atomic.write(folder.result, dumps(result))


def completed(run: Path, against: Sequence[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the result with these measures, and the accuracies taken for them, by the reference's name."""
    result = _measured(run)
    given: dict[str, Any] = {}
    for path in against:
        other = _measured(path)
        method = other["spec"]["method"]
        if method not in SERVES:
            raise HatrackError(f"{path} is a run of {method!r}; references are runs of {', '.join(SERVES)}.")
        for key, ours in _common(result["spec"]).items():
            theirs = _common(other["spec"])[key]
            if theirs != ours:
                raise HatrackError(
                    f"{path} cannot serve {run} as a reference: its {key} is {theirs!r:.99}, not {ours!r:.99}."
                )
        if other["tasks"] != result["tasks"]:
            raise HatrackError(f"{path} cannot serve {run} as a reference: their tasks differ, so the data do.")
        _, take = REFERENCES[SERVES[method]]
        given[SERVES[method]] = take(other["accuracy"])
    known = {"tasks": result["tasks"], "free": result.get("free")}
    return {**result, "metrics": summary(result["accuracy"], **known, **given)}, given


def _measured(run: Path) -> dict[str, Any]:
    """Return the result of a run, all of whose test accuracies are there."""
    result = read_result(run)
    if any(None in row for row in result["accuracy"]) or not all(sizes(result["tasks"])):
        raise HatrackError(f"{run / 'result.json'} lacks test accuracies, so that no measure can be taken from it.")
    return result


def _common(spec: dict[str, Any]) -> dict[str, Any]:
    """Return what a run and its references must have alike; of code that is not hatrack's own, all but the method's."""
    code = {part: what for part, what in spec.get("code", {}).items() if part != "method"}
    return {key: _compared(spec.get(key)) for key in SAME} | {"code": code}


def _compared(value: Any) -> Any:
    return {k: v for k, v in value.items() if k not in OWN} if isinstance(value, dict) else value


def read_result(run: Path) -> dict[str, Any]:
    """Return what the result.json of a finished run holds."""
    path = run / "result.json"
    result = checked(path).model_dump(by_alias=True)
    try:
        dumps(result).encode()
    except ValueError:  # of what is not checked, since nothing here knows it
        raise HatrackError(f"{path} is broken (it holds what JSON cannot); {remake(path)}.") from None
    return result
