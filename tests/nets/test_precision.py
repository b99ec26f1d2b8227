"""TF32 is switched for our own passes only, whichever of torch's two sets of switches the caller has used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hatrack.nets.precision import tf32

MATMUL: Any = torch.backends.cuda.matmul
CUDNN: Any = torch.backends.cudnn
NEWER = (MATMUL, CUDNN.conv, CUDNN.rnn)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = [place.fp32_precision for place in NEWER]
    yield
    for place, value in zip(NEWER, before, strict=True):
        place.fp32_precision = value


def newer() -> list[str]:
    return [place.fp32_precision for place in NEWER]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_older_switches_come_back(allowed: bool) -> None:
    before = MATMUL.allow_tf32, CUDNN.allow_tf32
    with tf32(allowed):
        assert (MATMUL.allow_tf32, CUDNN.allow_tf32) == (allowed, allowed)
    assert (MATMUL.allow_tf32, CUDNN.allow_tf32) == before


@pytest.mark.parametrize("allowed", [True, False])
def test_the_newer_switches_come_back(allowed: bool) -> None:
    MATMUL.fp32_precision, CUDNN.conv.fp32_precision = "tf32", "ieee"
    before = newer()
    with tf32(allowed):
        assert newer() == ["tf32" if allowed else "ieee"] * 3
    assert newer() == before
