"""The peak of memory: what is held counts, what was given back before the watch began does not."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from hatrack.runs.memory import Peak

MEBI = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is that of the whole process")
def test_the_peak_of_a_run() -> None:
    held = np.ones(100 * MEBI, np.uint8)
    del held
    peak = Peak(torch.device("cpu"))
    before = peak.bytes()
    held = np.ones(60 * MEBI, np.uint8)
    del held
    assert 55 * MEBI < peak.bytes() - before < 90 * MEBI
    assert Peak(torch.device("cpu")).bytes() < before + 30 * MEBI
