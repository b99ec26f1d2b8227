from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hatrack.data import BENCHMARKS, tasks
from hatrack.errors import HatrackError
from hatrack.nets import NETS

from .make import write_set


def test_every_sequence_of_the_papers_is_there() -> None:
    assert set(BENCHMARKS) == {
        "split-digits", "permuted-digits", "split-mnist", "mnist2", "permuted-mnist", "mixture", "cifar",
        "split-cifar10", "split-cifar100", "c-10", "c-20", "tiny-imagenet", "t-10", "t-20", "imagenet32",
        "imagenet32-100", "i-100", "fceleba", "fc-10", "fc-20", "femnist", "fe-10", "fe-20",
        "fc-10-stand-in", "fc-20-stand-in", "fe-10-stand-in", "fe-20-stand-in", "folders", "sensors", "sequence",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_the_table_is_consistent(name: str) -> None:
    benchmark = BENCHMARKS[name]
    assert benchmark.name == name
    assert benchmark.summary
    assert benchmark.defaults["net"] in NETS
    assert not {"seed", "data", "build"} & set(benchmark.options)


def test_options_are_those_that_tasks_takes() -> None:
    assert BENCHMARKS["mixture"].options == {"without": (), "replace": None}
    assert BENCHMARKS["tiny-imagenet"].options == {"tasks": 10}
    assert BENCHMARKS["t-20"].options == {}
    assert BENCHMARKS["sensors"].options == {"length": 128, "without": ()}
    assert BENCHMARKS["folders"].options == {"folders": None, "shape": (3, 32, 32)}
    assert BENCHMARKS["folders"].required == ["folders"]
    assert (BENCHMARKS["sequence"].options, BENCHMARKS["sequence"].required) == ({"file": None}, ["file"])
    assert BENCHMARKS["split-digits"].needs_data is False
    assert BENCHMARKS["sequence"].needs_data is True


@pytest.mark.parametrize("name", sorted(set(BENCHMARKS) - {"sequence"}))
def test_the_sets_that_it_reads(name: str, data: Path) -> None:
    benchmark = BENCHMARKS[name]
    assert bool(benchmark.sets) == benchmark.needs_data
    if benchmark.needs_data:
        with pytest.raises(HatrackError) as missing:
            tasks(name, data=data)
        assert any(str(data / one) in str(missing.value) for one in benchmark.sets)


def test_a_data_folder_is_ignored_by_what_needs_none(data: Path) -> None:
    assert len(tasks("split-digits", data=data)) == 5


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("split-mnits", {}, "unknown benchmark 'split-mnits'; did you mean 'split-mnist'"),
        ("split-digits", {"seed": -1}, "seed must be a whole number, 0 or more, got -1"),
        ("split-digits", {"seed": "a"}, "seed must be a whole number, 0 or more, got 'a'"),
        (None, {}, "unknown benchmark 'None'"),
        ("permuted-digits", {"tasks": "3"}, "tasks of benchmark 'permuted-digits' must be a whole number, got '3'"),
        ("split-digits", {"tasks": 2}, "'split-digits' takes no options, got 'tasks'"),
        ("permuted-digits", {"task": 2}, "unknown option of benchmark 'permuted-digits' 'task'; did you mean 'tasks'"),
    ],
)
def test_wrong_names_are_refused(name: str, options: dict[str, int], words: str) -> None:
    with pytest.raises(HatrackError, match=words):
        tasks(name, **options)


def test_tasks_need_only_torch_numpy_pyarrow_and_pillow(data: Path, own_cache: Path) -> None:
    write_set(data, "mnist", train=3, test=1)
    script = """
import sys
for name in ("pydantic", "datasets", "huggingface_hub", "typer", "rich", "matplotlib", "scipy", "sklearn", "pandas"):
    sys.modules[name] = None
from hatrack.data.benchmarks import tasks
print([len(task.train) for task in tasks("split-mnist", data=sys.argv[1])])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(data)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "[5, 5, 5, 5, 5]", done.stderr
