"""int8 through onnxruntime: weights, and, where samples are at hand to find their ranges on, activations.

What onnxruntime has no int8 for stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatrack import atomic
from hatrack.errors import HatrackError, one_line
from hatrack.ship.export.needed import needed, quiet
from hatrack.tree import at, count, leaves

LOSS = 0.01
"""Of the score, above which a warning is given."""

STEP = 32  # samples of a batch that ranges are found on


def write_int8(source: Path, target: Path, names: Sequence[str], samples: Any, task: str) -> str:
    """Write the int8 form of an ONNX file; return how it was made. `samples`: raw inputs, or None."""
    (tools, shapes) = needed("onnxruntime.quantization", "onnxruntime.quantization.shape_inference")
    try:
        with quiet(), TemporaryDirectory(dir=target.parent) as place:
            ready, made = Path(place) / "ready.onnx", Path(place) / "int8.onnx"
            shapes.quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
            if samples is None:
                tools.quantize_dynamic(ready, made, per_channel=True)
            else:
                tools.quantize_static(ready, made, _reader(tools, names, samples), per_channel=True)
            data = made.read_bytes()
    except OSError:  # the disk is full, say
        raise
    except Exception as error:  # onnxruntime's own kinds of errors
        raise HatrackError(
            f"task {task!r}: onnxruntime cannot make int8 of it ({one_line(error):.200}); leave int8 out."
        ) from error
    atomic.write(target, data)
    return "weights" if samples is None else "weights and activations"


def _reader(tools: Any, names: Sequence[str], samples: Any) -> Any:
    """Return samples as onnxruntime asks for them."""

    class Reader(tools.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = _batches(names, samples)

        def get_next(self) -> dict[str, Any] | None:
            return next(self._batches, None)

    return Reader()


def _batches(names: Sequence[str], samples: Any) -> Iterator[dict[str, Any]]:
    for start in range(0, count(samples), STEP):
        some = leaves(at(samples, slice(start, start + STEP)))
        yield {name: part.numpy() for name, part in zip(names, some, strict=True)}
