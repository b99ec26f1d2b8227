"""A run killed at any moment and resumed ends byte for byte like an undisturbed one, apart from times."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def without_times(file: Path) -> str:
    """Return the text of a JSON file without times, bytes held and the digests of what holds them."""
    text, times = re.subn(r'"(seconds|memory)": [0-9.e-]+', '"-": -', file.read_text())
    digests = r'"(sha256|digest|metrics\.jsonl)": "[0-9a-f]{64}"'
    assert times >= 1 or file.name == "learner.json"
    return re.sub(digests, '"-": -', text)


@pytest.mark.parametrize(("kind", "least"), [("moments", 10), ("steps", 20)])
def test_killed_and_resumed_is_as_good_as_undisturbed(tmp_path: Path, kind: str, least: int) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "alone" / "cut"
    cut.parent.mkdir()
    script = Path(__file__).with_name("killing.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(script), kind, str(whole), str(cut)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.rsplit("kills: ", 1)[1]) >= least
    for name in ("result.json", "metrics.jsonl", "checkpoint/learner.json"):
        assert without_times(cut / name) == without_times(whole / name)
    for file in (whole / "masks.safetensors", whole / "spec.toml", *(whole / "checkpoint").glob("*.safetensors")):
        assert (cut / file.relative_to(whole)).read_bytes() == file.read_bytes()
    assert sorted(p.name for p in cut.rglob("*")) == sorted(p.name for p in whole.rglob("*"))
