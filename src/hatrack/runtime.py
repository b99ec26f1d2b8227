"""onnxruntime, imported so that it stays by itself: since 1.29 its packages tell their maker of every session."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def onnxruntime() -> Any:
    """Return the package, with its telemetry off unless somebody has decided on that already; may raise ImportError."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it looks once, when it starts
    return import_module("onnxruntime")
