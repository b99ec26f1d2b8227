"""What a network gives for one sample, in the task's words.

classification: label, its score, the scores of all classes (softmax), logits
multilabel: the labels that are there (logit above 0), the scores of all (sigmoid), logits
regression: values, in the unit of the targets
dense: labels, the number of the class at every position; logits where they are asked for
any other: answer, the figures as they are
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hatrack.serve.exported import Card
from hatrack.serve.refused import Refused


def worded(card: Card, figures: NDArray[Any], logits: bool | None = None) -> dict[str, Any]:
    """Return the answers to some samples; `logits`: whether they are in them (None: unless they are maps)."""
    if not np.isfinite(figures).all():
        raise Refused(f"task {card.task!r} answers this with figures that are not finite.", 500)
    words = _WORDS.get(card.kind)
    if words is None:
        key = "values" if card.kind == "regression" else "answer"
        return {"task": card.task, "answers": [{key: row.tolist()} for row in figures]}
    answers = [words(card, row) for row in figures.astype(np.float64)]
    if logits or (logits is None and card.kind != "dense"):
        answers = [answer | {"logits": row.tolist()} for answer, row in zip(answers, figures, strict=True)]
    return {"task": card.task, "classes": card.names, "answers": answers}


def _one_class(card: Card, row: NDArray[np.float64]) -> dict[str, Any]:
    powers = np.exp(row - row.max())
    scores, best = (powers / powers.sum()).tolist(), int(row.argmax())
    return {"label": card.names[best], "score": scores[best], "scores": scores}


def _several(card: Card, row: NDArray[np.float64]) -> dict[str, Any]:
    there = [name for name, figure in zip(card.names, row.tolist(), strict=True) if figure > 0]
    return {"labels": there, "scores": (0.5 + 0.5 * np.tanh(0.5 * row)).tolist()}


def _map(card: Card, row: NDArray[np.float64]) -> dict[str, Any]:
    return {"labels": row.argmax(card.axis).tolist()}


_WORDS = {"classification": _one_class, "multilabel": _several, "dense": _map}
