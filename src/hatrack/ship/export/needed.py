"""What only exporting needs, and is imported when it is."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from hatrack.errors import HatrackError
from hatrack.runtime import onnxruntime

LOUD = ("torch.onnx._internal.exporter._registration", "root")


def needed(*modules: str) -> list[Any]:
    """Return modules of the extra, or say in one line that they are missing."""
    try:
        return [onnxruntime() if name == "onnxruntime" else import_module(name) for name in modules]
    except ImportError as error:
        raise HatrackError(
            f"ONNX files need packages that are not installed ({error.name or error}): pip install 'hatrack[export]'; "
            f"the formats pt2 and torch need none."
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what exporters tell of themselves off the terminal."""
    loggers = [logging.getLogger(name) for name in LOUD]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
