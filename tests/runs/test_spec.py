"""Specs: every setting resolved, every mistake one line, and spec.toml gives the same back."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from hatrack.errors import HatrackError
from hatrack.methods import METHODS
from hatrack.methods.hat import HAT
from hatrack.runs import spec
from hatrack.runs.accepted import REGISTRIES
from hatrack.runs.spec import Spec, resolve
from hatrack.studies.plan import folder_name


def test_nothing_given_is_hat_on_split_digits() -> None:
    found = resolve({})
    assert (found.method, found.benchmark, found.net, found.seed) == ("hat", "split-digits", "mlp", 0)
    assert found.device in ("cpu", "cuda")
    assert found.name == "split-digits-hat-mlp-s0"
    assert found.settings == {field.name: getattr(HAT(), field.name) for field in fields(HAT) if field.init}


def test_sets_find_their_place() -> None:
    sets = [("s_max", 100), ("widths", [30, 20]), ("net.dropout", 0.25), ("method.c", 1), ("epochs", 7)]
    found = resolve({"seed": 4, "method": "hat"}, sets)
    assert found.settings["s_max"] == 100.0
    assert isinstance(found.settings["s_max"], float)
    assert found.settings["c"] == 1.0
    assert found.net_options["widths"] == [30, 20]
    assert found.net_options["dropout"] == 0.25
    assert (found.epochs, found.seed) == (7, 4)


def test_settings_of_a_benchmark() -> None:
    assert resolve({"benchmark": "permuted-digits"}, [("tasks", 3)]).benchmark_options == {"tasks": 3}
    assert resolve({"benchmark": "permuted-digits"}).benchmark_options == {"tasks": 10}


def test_a_folder_for_data_is_remembered_whole() -> None:
    assert resolve({"data": "here"}).data == str(Path.cwd() / "here")
    assert resolve({}).data is None


def test_defaults_of_a_benchmark_hold_where_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        defaults = {"net": "mlp", "epochs": 9, "widths": [5], "s_max": 50.0}  # noqa: RUF012
        build = staticmethod(lambda seed: [])
        options: dict[str, Any] = {}  # noqa: RUF012

    monkeypatch.setitem(REGISTRIES["benchmark"].own, "small", Small)
    found = resolve({"benchmark": "small"}, [("widths", [6])])
    assert (found.epochs, found.net_options["widths"], found.settings["s_max"]) == (9, [6], 50.0)
    other = resolve({"benchmark": "small", "method": "sgd", "net": "alexnet", "epochs": 3})
    assert other.epochs == 3
    assert "s_max" not in other.settings
    assert "widths" not in other.net_options


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("benchmark", ["split-digits", "permuted-digits", "mixture"])
def test_what_is_written_is_read_back(tmp_path: Path, method: str, benchmark: str) -> None:
    given = {"method": method, "benchmark": benchmark, "seed": 3, "data": "somewhere"}
    made = resolve(given, [("lr", 0.125)] if "lr" in resolve(given).settings else [])
    file = tmp_path / "spec.toml"
    file.write_text(made.toml())
    assert spec.read(file) == made


@pytest.mark.parametrize(
    ("given", "sets", "says"),
    [
        ({"method": "hatt"}, [], "unknown method 'hatt'; did you mean 'hat'? Accepted: "),
        ({"benchmark": "split-digit"}, [], "unknown benchmark 'split-digit'; did you mean 'split-digits'?"),
        ({"net": "mlpp"}, [], "unknown net 'mlpp'; did you mean 'mlp'?"),
        ({}, [("smax", 3)], "unknown setting 'smax'; did you mean 's_max'? Accepted: "),
        ({}, [("net.drop", 3)], "unknown setting of the net 'drop'; did you mean 'dropout'?"),
        ({}, [("s_max", "high")], "s_max must be a valid number, got 'high'."),
        ({}, [("s_max", 0.5)], "hat: s_max must"),
        ({}, [("hard", 1)], "hard must be a valid boolean, got 1."),
        ({}, [("widths", 5)], "widths must be a list such as [1, 2], got 5."),
        ({"epochs": 0}, [], "epochs must be greater than or equal to 1, got 0."),
        ({"epochs": 1.5}, [], "epochs must be a valid integer, got 1.5."),
        ({}, [("scheduler", "cosin")], "unknown scheduler 'cosin'; did you mean 'cosine'? Accepted: constant, "),
        ({"batch_size": -1}, [], "batch_size must be greater than or equal to 1, got -1."),
        ({"seed": -1}, [], "seed must be greater than or equal to 0, got -1."),
        ({"method": 3}, [], "method must be a valid string, got 3."),
        ({"device": "gpu"}, [], "device 'gpu' cannot be used"),
        ({"epochs": 5}, [("epochs", 6)], "epochs was given twice, as 5 and as 6; give it once."),
        ({}, [("c", 1), ("c", 2)], "c was given twice, as 1 and as 2; give it once."),
        ({}, [("c", 1), ("method.c", 2)], "c was given twice, as c and as method.c; give it once."),
        ({"benchmark": "sequence"}, [], "benchmark 'sequence' needs --set file=VALUE."),
    ],
)
def test_every_mistake_is_one_line(given: dict[str, Any], sets: list[tuple[str, Any]], says: str) -> None:
    with pytest.raises(HatrackError) as caught:
        resolve(given, sets)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_the_scheduler_is_a_setting_and_the_usual_one_names_no_other_run(tmp_path: Path) -> None:
    usual, cosine = resolve({}), resolve({}, [("scheduler", "cosine")])
    assert (usual.scheduler, cosine.scheduler) == ("patience", "cosine")
    assert 'scheduler = "patience"\n' in usual.toml()
    assert cosine.written()["scheduler"] == "cosine"
    assert "scheduler" not in usual.model_dump()  # as in version 0.1, which named runs by it
    assert folder_name(usual) != folder_name(cosine)
    old = tmp_path / "spec.toml"
    old.write_text(usual.toml().replace('scheduler = "patience"\n', ""))
    assert spec.read(old) == usual


def test_a_name_that_two_parts_have_needs_its_part() -> None:
    types = {"method": {"dropout": None}, "net": {"dropout": None}, "benchmark": {}}
    with pytest.raises(HatrackError, match=r"say which: method\.dropout, net\.dropout"):
        spec._place("dropout", types)
    assert spec._place("net.dropout", types) == ("net", "dropout")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed = ", "Invalid value"),
        ("sed = 1", "unknown setting 'sed'; did you mean 'seed'?"),
        ("[settings]\nsmax = 3", "unknown setting of the method 'smax'; did you mean 's_max'?"),
        ("settings = 3", "settings must be a table, got 3"),
    ],
)
def test_a_broken_spec_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(text)
    with pytest.raises(HatrackError) as caught:
        spec.read(file)
    assert str(caught.value).startswith(f"{file}: {says}")


def test_paths_in_settings_are_remembered_whole() -> None:
    made = resolve({"benchmark": "sequence"}, [("file", "mine.toml")])
    assert made.benchmark_options["file"] == os.path.abspath("mine.toml")


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Spec().seed = 3
