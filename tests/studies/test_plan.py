"""Which runs a study has, with which settings, and which references each is held against."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.errors import HatrackError
from hatrack.runs.spec import resolve
from hatrack.studies.file import parse
from hatrack.studies.plan import Places, Plan, digest, folder_name, plan

PLACES = Places(Path("own"), Path("shared"))


def planned(text: str) -> Plan:
    return plan(parse(text, "name"), PLACES, "cpu")


def test_methods_times_seeds_times_benchmarks_times_settings() -> None:
    made = planned("""
seeds = [0, 1, 2]
benchmarks = ["split-digits", "permuted-digits"]
methods = ["hat", "ewc"]
[method.ewc.grid]
lam = [1.0, 10.0]
""")
    assert len(made.runs) == 2 * 3 * 3
    assert made.references == {}
    assert len({run.path for run in made.runs}) == 18


def test_what_stands_further_down_wins() -> None:
    made = planned("""
benchmarks = ["split-digits"]
methods = ["a", "b", "c"]
[shared]
lr = 0.1
epochs = 5
[benchmark.split-digits]
lr = 0.2
[method.a]
use = "sgd"
[method.b]
use = "sgd"
lr = 0.3
epochs = 6
[method.c]
use = "sgd"
lr = 0.3
[method.c.on.split-digits]
lr = 0.4
""")
    assert [(run.spec.settings["lr"], run.spec.epochs) for run in made.runs] == [(0.2, 5), (0.3, 6), (0.4, 5)]


def test_both_names_of_a_setting_are_one() -> None:
    made = planned("""
benchmarks = ["split-digits"]
methods = ["a", "b"]
measures = ["acc", "ncl"]
[shared]
lr = 0.1
"net.widths" = [10]
[benchmark.split-digits]
"method.lr" = 0.2
[method.a]
use = "hat"
widths = [20]
[method.b]
use = "hat"
lr = 0.3
""")
    assert [(r.spec.settings["lr"], r.spec.net_options["widths"]) for r in made.runs] == [(0.2, [20]), (0.3, [10])]
    assert [spec.settings["lr"] for spec in made.references.values()] == [0.2, 0.2]


def test_references_are_added_by_themselves_and_shared() -> None:
    made = planned("""
seeds = [0, 1]
benchmarks = ["split-digits"]
methods = ["hat", "ewc"]
measures = ["rho", "fwt"]
[shared]
epochs = 3
lr = 0.1
""")
    assert sorted((s.method, s.seed) for s in made.references.values()) == [
        (method, seed) for method in ("joint", "one", "random") for seed in (0, 1)
    ]
    joint = next(s for s in made.references.values() if s.method == "joint")
    assert (joint.epochs, joint.settings["lr"]) == (3, 0.1)
    assert all(path.parent == Path("shared") for path in made.references)
    assert all(run.path.parent == Path("own") for run in made.runs)
    for run in made.runs:
        assert len(run.against) == 3
        assert all(made.references[path].seed == run.spec.seed for path in run.against)
    assert made.runs[0].against == made.runs[1].against


def test_a_reference_that_the_study_lists_is_the_one_taken() -> None:
    made = planned("""
benchmarks = ["split-digits"]
methods = ["hat", "MTL", "random"]
measures = ["rho"]
[method.MTL]
use = "joint"
batch_size = 640
""")
    assert made.references == {}
    hat, mtl, random = made.runs
    assert set(hat.against) == {mtl.path, random.path}
    assert mtl.path.parent == Path("shared")


@pytest.mark.parametrize("rates", ["[0.0002, 0.05]", "[0.05, 0.0002]"])
def test_of_several_listed_references_the_plain_one_is_taken_in_any_order(rates: str) -> None:
    made = planned(f"""
benchmarks = ["split-digits"]
methods = ["hat", "joint", "random"]
measures = ["acc", "rho"]
[method.joint.grid]
lr = {rates}
""")
    joints = {run.spec.settings["lr"]: run.path for run in made.runs if run.spec.method == "joint"}
    assert made.references == {}
    assert all(joints[0.05] in run.against and joints[0.0002] not in run.against for run in made.runs)


@pytest.mark.parametrize("rates", ["[0.0002, 0.1]", "[0.1, 0.0002]"])
def test_where_none_of_several_listed_references_is_plain_it_is_added(rates: str) -> None:
    made = planned(f"""
benchmarks = ["split-digits"]
methods = ["hat", "sgd"]
measures = ["acc", "ncl"]
[method.sgd.grid]
lr = {rates}
""")
    (path,) = made.references
    assert made.references[path].settings["lr"] == 0.05
    assert all(run.against == (path,) for run in made.runs)
    alone = planned('benchmarks = ["split-digits"]\nmethods = ["hat"]\nmeasures = ["ncl"]')
    assert list(alone.references) == [path]


def test_a_listed_reference_under_two_labels_is_one() -> None:
    made = planned("""
benchmarks = ["split-digits"]
methods = ["a", "b"]
measures = ["ncl"]
[method.a]
use = "sgd"
lr = 0.1
[method.b]
use = "sgd"
lr = 0.1
""")
    assert made.references == {}
    assert [run.against for run in made.runs] == [(made.runs[0].path,)] * 2


def test_a_reference_has_the_network_of_its_run() -> None:
    made = planned("""
benchmarks = ["split-digits"]
methods = ["wide", "narrow", "joint"]
measures = ["rho"]
[method.wide]
use = "hat"
widths = [50, 50]
[method.narrow]
use = "hat"
widths = [20]
c = 2.0
""")
    specs = made.work()
    for run in made.runs:
        for path in run.against:
            assert specs[path].net_options == run.spec.net_options
    assert len(made.references) == 5  # joint twice and random three times; the third joint is listed


def test_columns_of_a_size_of_their_own_are_held_against_the_network_of_the_others() -> None:
    text = """
benchmarks = ["cifar"]
methods = ["hat", "pnn", "joint"]
measures = ["rho"]
[method.pnn]
part = 0.1117
init = "torch"
"""
    hat, pnn, joint = planned(text).runs
    assert pnn.spec.net_options == {**hat.spec.net_options, "part": 0.1117, "init": "torch"}
    assert pnn.against == hat.against
    assert joint.path in pnn.against
    narrow = planned(text + "[shared]\nwidth_scale = 0.5").work()
    assert {spec.net_options["width_scale"] for spec in narrow.values()} == {0.5}  # of all, columns as well
    assert sorted(spec.net_options["part"] for spec in narrow.values()) == [0.1117, 1.0, 1.0, 1.0]


def test_a_classifier_that_never_trains_is_one_run_whatever_the_epochs() -> None:
    paths = set()
    for epochs in (2, 9):
        made = planned(f"""
benchmarks = ["split-digits"]
methods = ["hat"]
measures = ["rho"]
[shared]
epochs = {epochs}
""")
        paths |= {path for path, spec in made.references.items() if spec.method == "random"}
    assert len(paths) == 1


def test_a_wrong_setting_names_its_method() -> None:
    with pytest.raises(HatrackError, match=r"'sgd' on 'split-digits': unknown setting 's_max'"):
        planned("benchmarks = ['split-digits']\nmethods = ['sgd']\n[shared]\ns_max = 3")


def test_a_part_of_a_study_is_measured_against_what_the_whole_one_lists() -> None:
    study = parse(
        """
benchmarks = ["split-digits"]
methods = ["hat", "joint", "sgd"]
measures = ["acc", "rho"]
[method.joint]
lr = 0.3
""",
        "name",
    )
    whole, part = plan(study, PLACES, "cpu"), plan(study.narrowed(["hat"], None), PLACES, "cpu")
    assert [run.method for run in part.runs] == ["hat"]
    assert part.runs[0].against == whole.runs[0].against
    assert {spec.settings["lr"] for spec in part.references.values() if spec.method == "joint"} == {0.3}
    assert {spec.method for spec in part.references.values()} == {"joint", "random"}


BASE = {"method": "sgd", "epochs": 2, "device": "cpu"}


def test_the_machine_makes_no_other_run() -> None:
    spec = resolve(BASE)
    for change in ({"device": "cuda"}, {"data": "/elsewhere"}, {"engine": "compiled"}):
        assert digest(spec.model_copy(update=change)) == digest(spec)
    assert folder_name(spec) == f"split-digits-sgd-mlp-s0-{digest(spec)}"


@pytest.mark.parametrize(
    ("given", "sets"),
    [({"seed": 1}, []), ({"epochs": 3}, []), ({"method": "hat"}, []), ({}, [("lr", 0.1)]), ({}, [("dropout", 0.1)])],
)
def test_all_else_makes_another_run(given: dict[str, object], sets: list[tuple[str, object]]) -> None:
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
