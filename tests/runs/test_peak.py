"""The peak of memory: what is held counts, what was given back before the watch began does not."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from hatrack.runs.peak import Peak

MEBI = 2**20
CPU = torch.device("cpu")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is that of the whole process")


@LINUX
def test_the_peak_of_a_run() -> None:
    held = np.ones(100 * MEBI, np.uint8)
    del held
    with Peak(CPU) as peak:
        before = peak.bytes()
        held = np.ones(60 * MEBI, np.uint8)
        del held
        assert 55 * MEBI < peak.bytes() - before < 90 * MEBI
    with Peak(CPU) as peak:
        assert peak.bytes() < before + 30 * MEBI


@LINUX
def test_a_run_that_begins_leaves_the_others_their_peak() -> None:
    with Peak(CPU) as first:
        before = first.bytes()
        held = np.ones(60 * MEBI, np.uint8)
        del held
        with Peak(CPU) as second:
            assert second.bytes() < before + 30 * MEBI
        assert first.bytes() - before > 55 * MEBI
