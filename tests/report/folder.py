"""Writes the folder of a run that never happened, with numbers such as a real one leaves behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from hatrack import seal

SITES = {"fc1": 96, "fc2": 64}


def write_run(
    folder: Path,
    tasks: int = 5,
    *,
    method: str = "hat",
    sites: Mapping[str, int] = SITES,
    names: Sequence[str] | None = None,
    epochs: int = 12,
    forgets: bool = False,
    soft: bool = False,
) -> Path:
    """Write spec.toml, result.json, metrics.jsonl and, for hat, masks.safetensors."""
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True, exist_ok=True)
    names = names or [f"digits {2 * i}-{2 * i + 1}" for i in range(tasks)]
    gates = {site: _gates(rng, tasks, units) for site, units in sites.items()} if method == "hat" else None
    accuracy = _accuracy(rng, tasks, forgets)
    last, learned = np.array(accuracy[-1]), np.array([row[-1] for row in accuracy])
    change = float((last - learned)[:-1].mean()) if tasks > 1 else 0.0
    capacity = None if gates is None else _capacity(gates)
    settings = {"s_max": 400.0, "c": 0.75, "hard": not soft, "widths": [96, 64]} if gates else {"lr": 0.05}
    spec = {"method": method, "benchmark": "split-digits", "net": "mlp", "seed": 0, "epochs": epochs}
    result = {
        "schema": 1,
        "hatrack": "0.1.0",
        "spec": {**spec, "settings": settings},
        "tasks": [{"name": n, "classes": 2, "train": 247, "valid": 43, "test": 72} for n in names],
        "accuracy": accuracy,
        "metrics": {
            "acc": float(last.mean()),
            "bwt": change,
            "fwt": None,
            "forgetting": max(0.0, -change),
            "rho": None,
        },
        "capacity": capacity,
        "reuse": None if gates is None else _reuse(gates),
        "guarantee": method in ("hat", "sgd-frozen"),
        "parameters": 13_250,
        "seconds": 14.23,
        "device": "cpu",
    }
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "spec.toml").write_text(_toml(spec) + "\n[settings]\n" + _toml(settings))
    (folder / "metrics.jsonl").write_text(_metrics(rng, tasks, epochs, capacity))
    if gates is not None:
        stored = {
            f"{t}/{site}": (0.98 * g[t] + 0.01 if soft else g[t]).astype(np.float32)
            for site, g in gates.items()
            for t in range(tasks)
        }
        save_file(stored, folder / "masks.safetensors")
    return folder


def edit_result(folder: Path, **changes: Any) -> None:
    """Replace top-level fields of result.json, and seal it again."""
    path = folder / "result.json"
    result = {**json.loads(path.read_text()), **changes}
    result.pop("sha256", None)
    path.write_text(seal.sealed(json.dumps(result | seal.BLANK)))


def _gates(rng: np.random.Generator, tasks: int, units: int) -> NDArray[np.float64]:
    """Each task reuses some of the units in use and takes a share of those left."""
    used = np.zeros(units, bool)
    rows = []
    for _ in range(tasks):
        on = np.where(used, rng.random(units) < 0.35, rng.random(units) < 0.6 / max(tasks**0.6, 1))
        used |= on
        rows.append(on)
    return np.array(rows, np.float64)


def _accuracy(rng: np.random.Generator, tasks: int, forgets: bool) -> list[list[float]]:
    learned = 1 - np.round(np.abs(rng.normal(0, 0.9, tasks))) / 72
    fade = rng.uniform(0.82, 0.97, (tasks, tasks)) if forgets else np.ones((tasks, tasks))
    rows = []
    for t in range(tasks):
        kept = [0.5 + (learned[i] - 0.5) * fade[i + 1 : t + 1, i].prod() for i in range(t + 1)]
        rows.append([float(a) for a in kept])
    return rows


def _capacity(gates: Mapping[str, NDArray[np.float64]]) -> list[dict[str, Any]]:
    used = {site: np.maximum.accumulate(g, axis=0).mean(axis=1) for site, g in gates.items()}
    tasks = len(next(iter(used.values())))
    return [
        {
            "total": float(np.mean([u[t] for u in used.values()])),
            "layers": {site: float(u[t]) for site, u in used.items()},
        }
        for t in range(tasks)
    ]


def _reuse(gates: Mapping[str, NDArray[np.float64]]) -> list[list[float | None]]:
    every = np.concatenate(list(gates.values()), axis=1)
    tasks = len(every)
    return [
        [float((every[i] * every[j]).sum() / every[i].sum()) if j > i else None for j in range(tasks)]
        for i in range(tasks)
    ]


def _metrics(rng: np.random.Generator, tasks: int, epochs: int, capacity: list[dict[str, Any]] | None) -> str:
    events: list[dict[str, Any]] = []
    for task in range(tasks):
        for epoch in range(1, epochs + int(rng.integers(0, 5)) + 1):
            loss = 0.65 * float(np.exp(-epoch / 3)) + 0.03 * float(rng.random())
            events.append({
                "event": "epoch",
                "task": task,
                "epoch": epoch,
                "train_loss": loss,
                "valid_loss": loss + 0.02 + 0.03 * float(rng.random()),
                "valid_accuracy": 1 - 0.6 * loss,
                "lr": 0.05 / 3 ** (3 * epoch // epochs),
                "s": 400.0 if capacity else None,
                "capacity": capacity[task]["total"] * (1 + 0.3 / epoch) if capacity else None,
                "seconds": 0.2,
            })  # fmt: skip
        events.append({"event": "task", "task": task, "seconds": 2.4})
    return "".join(json.dumps(event) + "\n" for event in events)


def _toml(settings: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
