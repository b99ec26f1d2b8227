"""README.md of an exported task: what it is, and how it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hatrack.ship.export.source import CODE
from hatrack.ship.export.table import HEADS, held, rows
from hatrack.visible import visible

SHOWN = 20  # classes that are listed

ONNX = """\
```python
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
(answer,) = session.run(["answer"], {{{given}}})  # NumPy arrays
```
"""
PT2 = """\
```python
import torch

network = torch.export.load("model.pt2").module()
answer = network({given})
```
"""
SOURCE = """\
```python
from network import load  # needs torch and safetensors; the weights are read from the file beside it

answer = load()({given})
```
"""


def readme(card: Mapping[str, Any]) -> str:
    """Return the text of README.md."""
    return "\n".join([*_text(card)])


def _text(card: Mapping[str, Any]) -> Iterable[str]:
    score, names = card["score"], [given["name"] for given in card["inputs"]]
    yield f"# {visible(card['task'])}\n"
    yield f"One task ({card['target']['name']}) out of a network of many, exported by hatrack {card['hatrack']}.\n"
    yield "Inputs, raw, with a batch axis of any length before the shape:\n"
    for given in card["inputs"]:
        yield (
            f"- `{given['name']}`: {given['dtype']}, shape {given['shape']}, learned from {given['low']:g} to "
            f"{given['high']:g}"
        )
    yield f"\nOutput: `answer`, shape {card['output']['shape']}.{_classes(card['classes'])}\n"
    if "model.onnx" in card["files"]:
        yield ONNX.format(file="model.onnx", given=", ".join(f'"{name}": {name}' for name in names))
    if "model.pt2" in card["files"]:
        yield PT2.format(given=", ".join(names))
    if CODE in card["files"]:
        yield SOURCE.format(given=", ".join(names))
    yield f"| | {' | '.join(HEADS)} | {visible(score['name'])} |\n|---|{'---:|' * (len(HEADS) + 1)}"
    for cells in rows(card):
        yield f"| {' | '.join(cells)} |"
    yield (
        f"\nMilliseconds a sample in batches of 1 and 64, one thread, medians of calls in turns. Every file was loaded "
        f"again and held against the network that it is from, on {held(card)}. Everything else: `card.json`."
    )
    if "int8" in card:
        found = card["int8"]["calibration"]
        yield f"\nint8: {card['int8']['what']}{f', ranges from {found}' if found else ''}; judged by its score alone."


def _classes(classes: Any) -> str:
    return "" if classes is None else f" Classes, in order: {listed(classes)}."


def listed(classes: Sequence[Any]) -> str:
    """Return the first classes, by name or number."""
    return ", ".join(visible(str(name)) for name in classes[:SHOWN]) + ", …" * (len(classes) > SHOWN)
