"""Where the time of a whole run goes adds up to all of it, and nothing stays wrapped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hatrack.bench.whole import LOADING, PARTS, TRAINING, paper_spec, run_table

from hatrack import HatrackError
from hatrack.runs.spec import resolve


def test_the_parts_add_up() -> None:
    before = {name: getattr(owner, name) for owner, name in PARTS.values()}
    spec = resolve({"method": "hat", "benchmark": "split-digits", "epochs": 2, "device": "cpu"}, [("widths", [16])])
    text = run_table(spec)
    shares = {m[1].strip(): float(m[2]) for m in re.finditer(r"^(.+?) +[\d.]+ s +([\d.]+)%$", text, re.MULTILINE)}
    assert list(shares) == [*PARTS, LOADING, "everything else"]
    assert sum(shares.values()) == pytest.approx(100, abs=0.5)
    assert all(share > 0 for part, share in shares.items() if part != LOADING)  # which happens once a process
    without = re.search(r"([\d.]+)% in training steps$", text)
    assert without is not None
    assert float(without[1]) == pytest.approx(shares[TRAINING] / (1 - shares[LOADING] / 100), abs=0.2)
    assert {name: getattr(owner, name) for owner, name in PARTS.values()} == before


def test_the_run_is_the_papers(tmp_path: Path) -> None:
    spec = paper_spec("cpu", None)
    assert (spec.method, spec.benchmark, spec.net_options["widths"]) == ("hat", "mnist2", [2000, 2000])
    with pytest.raises(HatrackError):
        run_table(paper_spec("cpu", str(tmp_path)))
