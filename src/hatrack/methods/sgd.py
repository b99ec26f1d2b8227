"""Plain fine-tuning (SGD, also NCL): one network, one head a task, nothing is protected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hatrack.methods.base import Method


@dataclass
class SGD(Method):
    """Fine-tune the whole network on each task in turn."""

    name: ClassVar[str] = "sgd"
    family: ClassVar[str] = "references"
    source: ClassVar[str] = "Goodfellow et al. 2014"
    summary: ClassVar[str] = "plain fine-tuning; forgets"
    stores: ClassVar[str] = "nothing"
