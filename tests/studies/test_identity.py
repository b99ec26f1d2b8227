"""Two specs are the same run where nothing differs that changes the outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.runs.spec import resolve
from hatrack.studies.identity import digest, folder_name

BASE = {"method": "sgd", "epochs": 2, "device": "cpu"}


def test_machine_matters_not() -> None:
    spec = resolve(BASE)
    for change in ({"device": "cuda"}, {"data": "/elsewhere"}, {"engine": "compiled"}):
        assert digest(spec.model_copy(update=change)) == digest(spec)
    assert folder_name(spec) == f"split-digits-sgd-mlp-s0-{digest(spec)}"


@pytest.mark.parametrize(
    ("given", "sets"),
    [({"seed": 1}, []), ({"epochs": 3}, []), ({"method": "hat"}, []), ({}, [("lr", 0.1)]), ({}, [("dropout", 0.1)])],
)
def test_all_else_does(given: dict[str, object], sets: list[tuple[str, object]]) -> None:
    assert digest(resolve({**BASE, **given}, sets)) != digest(resolve(BASE))


def test_what_is_written_by_default_is_the_same_run() -> None:
    assert digest(resolve(BASE, [("lr", 0.05), ("batch_size", 64)])) == digest(resolve(BASE))


def test_a_sequence_counts_by_what_its_file_holds(tmp_path: Path) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text('[[task]]\nset = "digits"\n')
    spec = resolve({**BASE, "benchmark": "sequence"}, [("file", str(file))])
    before = digest(spec)
    assert digest(spec) == before
    file.write_text('[[task]]\nset = "digits"\nsplit = 5\n')
    assert digest(spec) != before
