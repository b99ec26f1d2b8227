"""What an exported task weighs, takes and scores, as a table of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hatrack.visible import visible

ROWS = {
    "full": ("full network", "learner"),
    "cut": ("cut out, torch", "cut"),
    "onnx": ("ONNX", "model.onnx"),
    "int8": ("ONNX, int8", "model.int8.onnx"),
}
"""By what sizes are of: how it is called, and what its score stands under."""

HEADS = ("parameters", "bytes", "mult-adds", "ms at 1", "ms at 64")
WIDTHS = (12, 13, 14, 9, 10, 8)


def forms(card: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every form of the task: its name, its sizes, and its score where there is one."""
    for key, (name, scored) in ROWS.items():
        if key in card["sizes"]:
            yield {"name": name, **card["sizes"][key], "score": card["score"].get(scored)}


def rows(card: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the cells of every form: its name, the figures under HEADS, and its score."""
    for form in forms(card):
        figures = [f"{form[name]:,}" for name in ("parameters", "bytes", "multiply_adds")]
        times = [f"{form['milliseconds'][batch]:.3f}" for batch in ("1", "64")]
        yield [form["name"], *figures, *times, "–" if form["score"] is None else f"{form['score']:.4f}"]


def table(card: Mapping[str, Any]) -> str:
    """Return the table of one exported task."""
    score = card["score"]
    lines = [["", *HEADS, "score"], *rows(card)]
    return "\n".join([
        f"{visible(card['task'])}, held against the learner on {held(card)}",
        *("".join([f"{name:<14}", *map(str.rjust, cells, WIDTHS)]) for name, *cells in lines),
        f"score: {visible(score['name'])}; ms: a sample, in batches of 1 and of 64, one thread",
    ])  # fmt: skip


def held(card: Mapping[str, Any]) -> str:
    """Say which samples an export was held against."""
    return f"{card['score']['samples']:,} {card['score']['of']}"
