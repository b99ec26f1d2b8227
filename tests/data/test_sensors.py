"""The series of aeon and sktime: their files alone, found without importing the packages."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from hatrack.data import sensors, tasks
from hatrack.data.rows import shuffled
from hatrack.data.ts import read_ts
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.studies.cost import SIZES

HEAD = "@timeStamps false\n@classLabel true a b\n@data\n"
CPU = torch.device("cpu")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of packages, the only ones that are looked at, whose code must not be run."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sensors, "PACKAGES", ("bird", "bee"))
    yield tmp_path
    assert sys.modules.keys().isdisjoint({"bird", "bee"})


def ship(site: Path, package: str, name: str, train: str, test: str) -> None:
    home = site / package
    place = home / "datasets" / "data" / name
    place.mkdir(parents=True)
    (home / "__init__.py").write_text("raise SystemExit('imported')")
    for part, text in (("TRAIN", train), ("TEST", test)):
        (place / f"{name}_{part}.ts").write_text(text)


def ship_all(site: Path, package: str = "bird", but: str = "") -> None:
    """Ship small sets: the level of a series is its class."""
    for number, name in enumerate(sensors.MEMBERS):
        lines = [f"{row},{row + 1},{number}:{'ab'[row % 2]}" for row in range(8)]
        if name != but:
            ship(site, package, name, HEAD + "\n".join(lines), f"{HEAD}0,0,0:b\n")


def test_shapes_and_figures_by_hand(site: Path) -> None:
    ship(site, "bird", "GunPoint", f"{HEAD}0,2,4:10:a\n4,?,8:10,10,10,10:b\n", f"{HEAD}1,1,1:7:b\n")
    others = ",".join(name for name in sensors.MEMBERS if name != "GunPoint")
    (task,) = tasks("sensors", length=5, without=others)
    assert (task.name, task.classes, task.about["class_names"]) == ("GunPoint", 2, ["a", "b"])
    assert (len(task.train), task.about["valid"], task.about["test"], task.about["shape"]) == (1, 1, 1, [12, 5])
    x, y = (torch.cat(parts) for parts in zip(*(part.on(CPU) for part in (task.train, task.valid)), strict=True))
    x, y = x[y.argsort()], y.sort().values
    np.testing.assert_allclose(x[:, 0], [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]])
    np.testing.assert_allclose(x[:, 1], 10)
    np.testing.assert_allclose(x[:, 2:], 0)
    values = [0, 1, 2, 3, 4, 4, 5, 6, 7, 8]
    assert task.about["mean"] == pytest.approx([np.mean(values), 10, *[0] * 10])
    assert task.about["std"] == pytest.approx([np.std(values), 1, *[1] * 10])  # where nothing varies, nothing is scaled
    prepared = task.inputs.on(CPU)(x)
    np.testing.assert_allclose(prepared[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(prepared[:, 0].std(correction=0), 1, rtol=1e-6)
    np.testing.assert_allclose(prepared[:, 1:], 0)
    assert task.test is not None
    assert task.test.on(CPU)[1].tolist() == [1]


def test_order_and_validation_follow_from_the_seed(site: Path) -> None:
    ship_all(site)
    first, again, other = (tasks("sensors", seed=seed) for seed in (3, 3, 4))
    names = list(sensors.MEMBERS)
    assert [task.name for task in first] == [names[i] for i in shuffled(8, 3)]
    assert [task.name for task in other] == [names[i] for i in shuffled(8, 4)]
    assert [task.about for task in first] == [task.about for task in again]
    assert all((len(t.train), len(t.valid or ()), len(t.test or ())) == (7, 1, 1) for t in first)
    held = {task.name: task.valid.on(CPU)[0][0, 0, 0].item() for task in first if task.valid}
    assert len(set(held.values())) > 1  # each set has a validation part of its own
    changed = {task.name: task.valid.on(CPU)[0][0, 0, 0].item() for task in other if task.valid}
    assert held != changed
    assert {t.name: t.about["rows"] for t in first} != {t.name: t.about["rows"] for t in other}


def test_other_values_are_other_data(site: Path) -> None:
    digests = []
    for package, last in (("bird", 3), ("bee", 4)):
        ship(site, package, "GunPoint", f"{HEAD}0,1:a\n1,2:b\n", f"{HEAD}0,{last}:a\n")
        sensors.PACKAGES = (package,)
        others = ",".join(name for name in sensors.MEMBERS if name != "GunPoint")
        digests.append(tasks("sensors", without=others)[0].about["rows"])
    assert digests[0] != digests[1]


def test_what_no_package_ships_is_left_out_and_said(site: Path) -> None:
    ship_all(site, "bee", but="OSULeaf")
    with pytest.warns(HatrackWarning, match=r"without OSULeaf, which no .* pip install --no-deps aeon, .*=OSULeaf"):
        made = tasks("sensors", seed=1)
    assert [task.name for task in made] == [n for i in shuffled(8, 1) if (n := list(sensors.MEMBERS)[i]) != "OSULeaf"]
    assert all("sensors without OSULeaf" in task.about["notes"] for task in made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = tasks("sensors", seed=1, without="OSULeaf")
    assert [task.about for task in same] == [task.about for task in made]
    ship(site, "bird", "OSULeaf", f"{HEAD}1:a\n1:b\n", f"{HEAD}1:a\n")
    assert len(tasks("sensors")) == 8  # from either


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"without": "ACSF"}, "unknown set of sensors 'ACSF'; did you mean 'ACSF1'"),
        ({"length": 0}, "length of benchmark 'sensors' must be 1 or more, got 0"),
        ({"length": 1.5}, "length of benchmark 'sensors' must be a whole number, got 1.5"),
        ({"without": ",".join(sensors.MEMBERS)}, "sensors needs at least one set, got without="),
    ],
)
def test_wrong_options(site: Path, options: dict[str, object], says: str) -> None:
    ship_all(site)
    with pytest.raises(HatrackError, match=says):
        tasks("sensors", **options)


def test_without_any_package_one_line_says_what_to_do(site: Path) -> None:
    with pytest.raises(HatrackError, match=r"neither is installed: pip install 'hatrack\[sensors\]'\.$") as caught:
        tasks("sensors")
    assert "\n" not in str(caught.value)


def test_sets_that_do_not_fit(site: Path) -> None:
    others = ",".join(name for name in sensors.MEMBERS if name != "GunPoint")
    ship(site, "bird", "GunPoint", f"{HEAD}1:a\n1:b\n", HEAD.replace("a b", "a c") + "1:a\n")
    with pytest.raises(HatrackError, match=r"GunPoint: training classes are \('a', 'b'\), test classes \('a', 'c'\)"):
        tasks("sensors", without=others)
    thirteen = f"{HEAD}{'1:' * 13}a\n"
    ship(site, "bee", "GunPoint", thirteen, thirteen)
    sensors.PACKAGES = ("bee",)
    with pytest.raises(HatrackError, match="GunPoint: its series have 13 channels; sensors takes up to 12"):
        tasks("sensors", without=others)


# The accuracy of the nearest neighbour in plain distance, as the archive prints it for the series as they stand.
PRINTED = {"GunPoint": 0.9133, "ArrowHead": 0.8, "ItalyPowerDemand": 0.9553, "OSULeaf": 0.5207, "ACSF1": 0.54}


@pytest.mark.data
@pytest.mark.skipif(not any(map(find_spec, sensors.PACKAGES)), reason="neither aeon nor sktime is installed")
class TestReal:
    @pytest.mark.parametrize("name", PRINTED)
    def test_the_archives_own_figure(self, name: str) -> None:
        files = sensors._files(name, sensors._places())
        assert files is not None
        train, test = map(read_ts, files)
        x, probe = (np.array([channels[0] for channels in part.channels]) for part in (train, test))
        distance = (probe**2).sum(1)[:, None] + (x**2).sum(1) - 2 * probe @ x.T
        right = np.array(train.labels)[distance.argmin(1)] == np.array(test.labels)
        assert right.mean() == pytest.approx(PRINTED[name], abs=1e-4)

    def test_tasks_of_one_shape(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HatrackWarning)  # sktime alone lacks one of them
            made = {task.name: task for task in tasks("sensors")}
        assert len(made) >= 7
        sizes = {name: (len(t.train) + t.about["valid"], t.about["test"], t.classes) for name, t in made.items()}
        wanted = {
            "BasicMotions": (40, 40, 4),
            "PickupGestureWiimoteZ": (50, 50, 10),
            "GunPoint": (50, 150, 2),
            "ACSF1": (100, 100, 10),
            "ItalyPowerDemand": (67, 1029, 2),
            "JapaneseVowels": (270, 370, 9),
            "ArrowHead": (36, 175, 3),
            "OSULeaf": (200, 242, 6),
        }
        assert sizes == {name: wanted[name] for name in made}
        size = SIZES["sensors"]
        if len(made) == size.tasks:
            counted = [
                sum(len(part) for part in parts)
                for parts in zip(*((t.train, t.test) for t in made.values()), strict=True)
            ]
            assert [*counted, sum(t.classes for t in made.values())] == [size.train, size.test, size.classes]
        for task in made.values():
            assert task.train.first(2).shape == (2, 12, 128)
            assert bool(task.inputs.on(CPU)(task.train.on(CPU)[0]).isfinite().all())
