"""What makes two runs the same run: the content of their resolved spec.

What is not meant to change the outcome is left out: the device, the engine that drives it, the place of the data. A
file that the spec names (a sequence of tasks) counts by what is in it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from hatrack.runs.spec import Spec


def digest(spec: Spec) -> str:
    """Return twelve hexadecimal digits of the spec's content."""
    content = spec.model_dump(exclude={"device", "engine", "data"})
    named = (value for value in spec.benchmark_options.values() if isinstance(value, str))
    files = [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in named if Path(name).is_file()]
    text = json.dumps([content, files], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def folder_name(spec: Spec) -> str:
    """Return the name of the folder of a study's run: what it is, for people, and its content."""
    return f"{spec.name}-{digest(spec)}"
