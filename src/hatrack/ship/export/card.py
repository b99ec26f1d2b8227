"""card.json: what an exported task is, in JSON: for whoever serves it or checks it, without hatrack.

schema       1
task         its name; `target`: what it predicts; `classes`: names or numbers of its outputs, null where it has none
inputs       raw inputs, in order: name, shape of a sample, dtype, least and greatest value learned; `bytes`: whether
             they are uint8. The first axis of what is given is the batch
output       named "answer"; the shape of one sample's
preparation  what of this the network does itself: bytes → numbers, mean and std, a permutation
score        on which samples, and of the learner and each file (null where there were no targets)
apart        how far each file's answers were from the learner's, as a share of the largest
int8         what is int8, found on which samples; only where there is such a file
sizes        by what it is of (full, cut, onnx, int8): parameters, bytes, multiply_adds, milliseconds by batch
cut_out      the digest of the cut-out (ship/stored.py)
files        bytes and SHA-256 of every other file
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from hatrack import __version__, atomic
from hatrack.data.kind import Kinds
from hatrack.learn.learned import Learned
from hatrack.ship.export.place import CARD
from hatrack.targets import Classification, Dense, MultiLabel

SCHEMA = 1


def described(learned: Learned, names: Sequence[str], answer: torch.Tensor) -> dict[str, Any]:
    """Return the fields of the card that follow from the task itself; `answer`: to some batch."""
    target, inputs, kind = learned.target, learned.inputs, learned.kind
    kinds = list(kind.parts.values()) if isinstance(kind, Kinds) else [kind]
    named = isinstance(target, Classification | Dense | MultiLabel)
    return {
        "schema": SCHEMA,
        "hatrack": __version__,
        "task": learned.name,
        "target": target.described(),
        "classes": list(getattr(target, "names", None) or range(target.outputs)) if named else None,
        "inputs": [
            {
                "name": name,
                "shape": list(part.shape),
                "dtype": str(part.dtype).removeprefix("torch."),
                "low": _number(part.range[0], part.dtype),
                "high": _number(part.range[1], part.dtype),
                "bytes": part.dtype == torch.uint8,
            }
            for name, part in zip(names, kinds, strict=True)
        ],
        "output": {"name": "answer", "shape": list(answer.shape[1:])},
        "preparation": {
            "bytes": any(part.dtype == torch.uint8 for part in kinds) and not inputs.ids,
            "mean": None if inputs.mean is None else list(inputs.mean),
            "std": None if inputs.std is None else list(inputs.std),
            "permutation": inputs.permutation is not None,
        },
    }


def _number(value: float, dtype: torch.dtype) -> float | int:
    return value if dtype.is_floating_point or dtype.is_complex else int(value)


def files_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Return bytes and digest of every file in a folder."""
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in found.items()}


def write_card(card: Mapping[str, Any], folder: Path) -> None:
    """Write the card; it comes last, and names all other files."""
    atomic.write(folder / CARD, json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
