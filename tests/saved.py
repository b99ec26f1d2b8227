"""What a learner is, as a save of it says: the SHA-256 of all its tensors, and every number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hatrack import Learner


def held(learner: Learner, folder: Path) -> dict[str, Any]:
    """Save the learner to `folder` and return the page."""
    learner.save(folder)
    page: dict[str, Any] = json.loads((folder / "learner.json").read_text())
    return page
