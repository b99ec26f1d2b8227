"""What a certificate says of exported files: their digests, and what ONNX files answer to inputs that are drawn."""

from __future__ import annotations

import json
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from hatrack.errors import Edited, HatrackError, one_line
from hatrack.ship.certificate import check_hatrack as checker

ROWS = 4
MOST = 10_000  # numbers of an answer that are written down; of more, the file's digest has to do

Exported = tuple[dict[str, str] | None, dict[str, Any]]


def exported(folder: Path, task: str, cut_out: str | None, seed: int) -> Exported:
    """Return the digests of a task's exported files, None where it has none, and what its ONNX files were asked."""
    cards = {card.parent: _card(card) for card in sorted(folder.glob("*/card.json"))}
    found = [place for place, card in cards.items() if card["task"] == task]
    if not found:
        return None, {}
    if len(found) > 1:
        raise HatrackError(f"task {task!r} has two exports, {found[0].name} and {found[1].name}; remove one of them.")
    place, card = found[0], cards[found[0]]
    if card["cut_out"] != cut_out:
        raise Edited(f"{str(place)!r} is not an export of task {task!r} as it is here; export it again.")
    files = {str(path.relative_to(place)): path for path in sorted(place.rglob("*")) if path.is_file()}
    digests = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    for name, about in card["files"].items():
        if digests.get(name) != about["sha256"]:
            raise Edited(f"{name} of {str(place)!r} is not the file that card.json names; export it again.")
    asked = {name: _asked(path, card["inputs"], seed) for name, path in files.items() if path.suffix == ".onnx"}
    return digests, {name: said for name, said in asked.items() if said is not None}


def _card(path: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads(path.read_text())
        return {name: card[name] for name in ("task", "cut_out", "files", "inputs")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HatrackError(f"{path} is no card of an export ({one_line(error)}).") from None


def _asked(path: Path, inputs: list[dict[str, Any]], seed: int) -> dict[str, Any] | None:
    """Return how inputs are drawn for an ONNX file, and its answers; None where it takes none that can be drawn so."""
    try:
        drawn = [
            {
                "name": x["name"],
                "shape": [ROWS, *x["shape"]],
                "dtype": x["dtype"],
                "low": x["low"],
                "high": x["high"] + (0 if np.dtype(x["dtype"]).kind == "f" else 1),  # whole numbers are cut off
            }
            for x in inputs
        ]
        asked: dict[str, Any] = {"seed": seed, "inputs": drawn}
        answers = checker.answers(path, asked)
    except ImportError:
        raise HatrackError(
            "ONNX files are asked by onnxruntime, which is not installed: pip install onnxruntime."
        ) from None
    except Exception:  # columns of a table may each have bounds of their own: a runtime's own kinds of errors
        return None
    small = answers.size <= MOST and all(map(isfinite, answers.flatten().tolist()))
    return {**asked, "answers": answers.tolist()} if small else None
