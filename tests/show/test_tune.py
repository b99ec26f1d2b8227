"""What a search prints while it goes."""

from __future__ import annotations

import pytest

from hatrack.show.tune import TuneProgress


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TuneProgress()
    progress.trial(1, 3, 0, 0.5, {"lr": 0.05, "per_class": 25}, best=True)
    progress.trial(2, 3, 2, None, {"lr": 1e-5, "per_class": 5}, best=False)
    progress.trial(3, 3, 1, 0.6, {"lr": 0.1, "per_class": 9}, best=False)
    progress.notice(3, "'a' diverged.")
    progress.notice(4, "'a' diverged.")
    progress.failed(3, "it broke.")
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "[1/3] trial 0: 0.5000 (best so far); lr=0.05, per_class=25",
        "[2/3] trial 2: given up, below the median; lr=1e-05, per_class=5",
        "[3/3] trial 1: 0.6000; lr=0.1, per_class=9",
    ]
    assert err.splitlines() == ["hatrack: trial 3: 'a' diverged.", "hatrack: trial 3 failed: it broke."]
