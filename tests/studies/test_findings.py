"""What is read back from the folders of a study's runs."""

from __future__ import annotations

import json
from pathlib import Path

from hatrack.studies.findings import diverged
from report.folder import write_run


def test_runs_that_diverged_are_found_in_their_records(tmp_path: Path) -> None:
    good, lost, broken, half = (write_run(tmp_path / name, 2) for name in ("good", "lost", "broken", "half"))
    lines = [json.loads(line) for line in (lost / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    epochs[0]["train_loss"] = epochs[-1]["valid_loss"] = None
    for folder in (lost, half):
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (half / "result.json").unlink()
    (broken / "metrics.jsonl").write_text("none\n")
    told: list[str] = []
    assert diverged([good, lost, broken, half], told.append) == {lost: f"2 of {len(epochs)} epochs"}
    assert len(told) == 1
    assert told[0].startswith(f"{broken / 'metrics.jsonl'}, line 1, is broken")
