"""Every method on every network of the zoo learns two tasks and keeps its promise, or is refused in one line."""

from __future__ import annotations

import pytest

from hatrack import Learner
from hatrack.methods import METHODS
from hatrack.testing.behaviour import alone, refusal
from zoo import ZOO, tasks, unit_map

# DEN copies units row by row and column by column; UCL knows linear and convolution layers and batch norm alone.
REFUSED = {
    "den": "bare cross mobile shuffle tokens unet".split(),
    "ucl": """
        bare bare-batch-norm biased biased-bare by-hand cells channels-last coded-bias conv1d cross encoder
        encoder-first encoder-tbd group-norm gru last-word learned-input llama low-rank low-rank-merged lstm
        lstm-deep one-group rms-norm rnn shifted shifted-smooth spectral-norm spectrum tied-bare tied-parameter
        tokens transformed unet vit weight-norm written-out-norm zeroed
        """.split(),
}
PAIRS = [(name, net) for net in ZOO for name in METHODS]
# A fast slice: every method once, on a network of its own.
FAST = {(name, list(ZOO)[7 * i % len(ZOO)]) for i, name in enumerate(METHODS)}


@pytest.mark.parametrize(
    ("name", "net"),
    [pytest.param(*pair, marks=() if pair in FAST else pytest.mark.slow, id="-".join(pair)) for pair in PAIRS],
)
def test_learns_and_keeps_its_promise_or_refuses(name: str, net: str) -> None:
    kept = ZOO[net]

    def learner() -> Learner:
        made = Learner(kept.build(), METHODS[name](), epochs=2, batch_size=8, device="cpu")
        made.model.__dict__["units"] = unit_map(net)  # what the learner would find itself, traced once for all tests
        return made

    with alone():
        line = refusal(learner, tasks(kept, count=2))
    assert (line is not None) == (net in REFUSED.get(name, [])), line


def test_the_table_names_what_there_is() -> None:
    assert REFUSED.keys() <= METHODS.keys()
    assert {net for nets in REFUSED.values() for net in nets} <= ZOO.keys()
