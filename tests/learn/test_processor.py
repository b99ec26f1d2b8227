"""The processor is named by maker and model, not by its instruction set alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hatrack.learn import processor

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Processor @ 2.00GHz
flags\t\t: fpu vme

processor\t: 1
vendor_id\t: GenuineIntel
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


@pytest.fixture(autouse=True)
def _named_anew() -> Iterator[None]:
    processor.processor.cache_clear()
    yield
    processor.processor.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [(INTEL, "GenuineIntel, Intel(R) Xeon(R) Processor @ 2.00GHz, 6, 143"), (ARM, "0x41, 0xd40")],
)
def test_maker_and_model_are_part_of_the_name(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    assert processor.processor() == f"{torch.backends.cpu.get_cpu_capability()}, {expected}"


def test_other_systems_are_asked_by_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert processor.processor().endswith(", arm")
