"""What tests do to the pages that bear a digest: edit and seal them again, or leave out what depends on the clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatrack import seal

CLOCK = ("seconds", "memory", "sha256")


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Let `edit` change what a JSON page says, and seal it as if it had been written so."""
    page = json.loads(path.read_text())
    page.pop("sha256", None)
    edit(page)
    path.write_text(seal.sealed(json.dumps(page | seal.BLANK, indent=1)))


def timeless(path: Path) -> dict[str, Any]:
    """Return what a result.json says, less times, memory and the digests of such."""
    result = {key: value for key, value in json.loads(path.read_text()).items() if key not in CLOCK}
    return result | {"files": {**result["files"], "metrics.jsonl": None}}
