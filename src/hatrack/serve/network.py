"""An exported network in onnxruntime, tried before it is believed.

Whether samples may share a batch is found out and not assumed: int8 networks that take their scale from what is in the
batch, or an export with a fixed batch, would give one client's sample an answer that depends on another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hatrack.errors import HatrackError, one_line
from hatrack.runtime import onnxruntime
from hatrack.serve.exported import Exported, Input
from hatrack.serve.refused import Refused

Arrays = Mapping[str, NDArray[Any]]
BATCH = 64
WITHIN = 1e-4  # of the largest figure: in a batch, products are added up in another order
_TYPES = {"float32": "float", "float64": "double"}


class Network:
    """Runs one task's network on batches; `together` is how many samples may share one."""

    def __init__(self, exported: Exported) -> None:
        runtime = onnxruntime()
        self._card, self._where = exported.card, f"{exported.file} of task {exported.card.task!r}"
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # tasks share the cores, not layers
        options.log_severity_level = 4  # errors are raised; what else is said would stand among the server's lines
        try:
            self._session: Any = runtime.InferenceSession(exported.model, options, ["CPUExecutionProvider"])
        except Exception as error:  # of many types, none of them public
            raise HatrackError(f"{self._where} cannot be loaded ({one_line(error)}).") from None
        takes = {part.name: part.type for part in self._session.get_inputs()}
        told = {part.name: f"tensor({_TYPES.get(part.dtype, part.dtype)})" for part in self._card.inputs}
        if takes != told:
            raise HatrackError(f"{self._where} takes {takes}, and its card says {told}; export the task again.")
        self.together = self._tried()

    def run(self, inputs: Arrays) -> NDArray[Any]:
        """Return the answers to a batch."""
        (answers,) = self._session.run([self._card.output.name], dict(inputs))
        return np.asarray(answers)

    def failure(self) -> Refused:
        """Build what is said of a sample that cannot be computed: an embedding knows no number beyond its last."""
        looked_up = [part for part in self._card.inputs if not part.floats]
        if not looked_up:
            return Refused(f"task {self._card.task!r} could not compute this.", 500)
        known = ", ".join(f"{part.name!r} from {part.low:g} to {part.high:g}" for part in looked_up)
        return Refused(f"task {self._card.task!r} does not know these numbers; it was trained on {known}.")

    def _tried(self) -> int:
        """Answer samples of very different size alone and together; compare."""
        drawn = {part.name: _drawn(part) for part in self._card.inputs}
        try:
            alone = [self.run({name: x[i : i + 1] for name, x in drawn.items()}) for i in range(4)]
        except Exception as error:
            raise HatrackError(f"{self._where} cannot be run ({one_line(error)}).") from None
        if any(answer.shape != (1, *self._card.output.shape) for answer in alone):
            raise HatrackError(
                f"{self._where} answers with shape {alone[0].shape}, and its card says {(1, *self._card.output.shape)}."
            )
        try:
            batch = self.run(drawn)
        except Exception:
            return 1
        apart = np.concatenate(alone)
        same = batch.shape == apart.shape and np.abs(batch - apart).max() <= WITHIN * np.abs(apart).max()
        return BATCH if same else 1


def _drawn(part: Input) -> NDArray[Any]:
    """Draw samples: over the whole range, over a hundredth of it, all at the least, all at the greatest value."""
    spread = np.array([1, 0.01, 0, 0])
    start = np.array([0, 0.4, 0, 1])
    evenly = np.random.default_rng(0).random((4, *part.shape))
    by_sample = (4,) + (1,) * len(part.shape)
    drawn = part.low + (part.high - part.low) * (start.reshape(by_sample) + spread.reshape(by_sample) * evenly)
    return (drawn if part.floats else drawn.round()).astype(part.dtype)
