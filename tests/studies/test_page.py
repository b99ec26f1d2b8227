"""What the study's report says in words."""

from __future__ import annotations

from pathlib import Path

from hatrack.studies.page import page

from .made_up import outcome


def test_whose_memory_it_is(tmp_path: Path) -> None:
    assert "those of all runs side by side with it included" in page(outcome(tmp_path))
