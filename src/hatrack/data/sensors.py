"""Real time series as tasks: the sets of the UCR and UEA archives that the packages aeon and sktime carry with them.

Their files alone are read, and neither package is imported. Both ship the same files, but for one set that aeon alone
has; what neither of the installed ones ships is left out, and every task's notes say so.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from hatrack.data.inputs import Inputs
from hatrack.data.mixture import names_in
from hatrack.data.rows import hold_out, shuffled
from hatrack.data.samples import Split
from hatrack.data.split import checksum
from hatrack.data.task import Task
from hatrack.data.ts import Series, Values, read_ts, resampled
from hatrack.errors import HatrackError, HatrackWarning, unknown

# The numbering on which the order of a seed rests.
MEMBERS = {
    "BasicMotions": "motion",
    "PickupGestureWiimoteZ": "gestures",
    "GunPoint": "movements of a hand",
    "ACSF1": "appliances",
    "ItalyPowerDemand": "demand for power",
    "JapaneseVowels": "speech",
    "ArrowHead": "outlines of arrowheads",
    "OSULeaf": "outlines of leaves",
}
PACKAGES = ("aeon", "sktime")
CHANNELS = 12  # JapaneseVowels has the most
VALID = 0.15


def sensors(seed: int, length: int = 128, without: str | Sequence[str] = ()) -> list[Task]:
    """Return sets of time series as tasks of (12, length), in an order shuffled by the seed.

    Series are brought to `length` values, and get channels of zeros up to 12. Training and test series are the
    archive's. `without` leaves sets out ("ACSF1,OSULeaf" or a list); the others keep their order.
    """
    if length < 1:
        raise HatrackError(f"length of benchmark 'sensors' must be 1 or more, got {length}.")
    left_out = names_in(without)
    for name in left_out:
        if name not in MEMBERS:
            raise unknown("set of sensors", name, MEMBERS)
    order = [list(MEMBERS)[position] for position in shuffled(len(MEMBERS), seed)]
    wanted = [name for name in order if name not in left_out]
    places = _places()
    files = {name: found for name in wanted if (found := _files(name, places)) is not None}
    missing = [name for name in MEMBERS if name in wanted and name not in files]
    if not files:
        raise HatrackError(f"sensors needs at least one set, got without={','.join(left_out)} of {', '.join(MEMBERS)}.")
    if missing:
        line = (
            f"sensors goes without {', '.join(missing)}, which no installed package ships; to have all: "
            f"pip install --no-deps aeon, to leave it out wherever you are: without={','.join([*left_out, *missing])}."
        )
        warnings.warn(HatrackWarning(line), stacklevel=2)
    notes = [f"sensors without {name}" for name in MEMBERS if name in left_out or name in missing]
    numbers = {name: number for number, name in enumerate(MEMBERS)}
    return [_task(name, files[name], length, (seed, numbers[name]), notes) for name in files]


def _places() -> list[Path]:
    """Return the folders of data that the installed packages have, found without importing them."""
    specs = [spec for package in PACKAGES if (spec := find_spec(package)) is not None]
    places = [Path(home) / "datasets" / "data" for spec in specs for home in spec.submodule_search_locations or ()]
    if not places:
        raise HatrackError(
            "sensors reads time series that the package sktime or aeon carries, and neither is installed: "
            "pip install 'hatrack[sensors]'."
        )
    return places


def _files(name: str, places: Sequence[Path]) -> tuple[Path, Path] | None:
    """Return the training and the test file of a set from the first place that has both."""
    for place in places:
        train, test = (place / name / f"{name}_{part}.ts" for part in ("TRAIN", "TEST"))
        if train.is_file() and test.is_file():
            return train, test
    return None


def _task(name: str, files: tuple[Path, Path], length: int, seed: tuple[int, int], notes: Sequence[str]) -> Task:
    train, test = map(read_ts, files)
    if train.names != test.names:
        raise HatrackError(f"{name}: training classes are {train.names}, test classes {test.names}; give one archive.")
    x = np.concatenate([_shaped(name, part, length) for part in (train, test)])
    y = np.array([*train.labels, *test.labels], dtype=np.int64)
    trained, tested = np.split(np.arange(len(y)), [len(train.labels)])
    mean, std = (getattr(x[trained], figure)(axis=(0, 2), dtype=np.float64) for figure in ("mean", "std"))
    inputs = Inputs(tuple(mean.tolist()), tuple(value or 1.0 for value in std.tolist()))
    parts = hold_out(trained, VALID, *seed)
    about = {
        "set": name,
        "shape": list(x.shape[1:]),
        "labels": list(range(len(train.names))),
        "class_names": list(train.names),
        "rows": checksum(parts.train, parts.valid, tested, *(_values(part).view(np.int64) for part in (train, test))),
        "notes": [MEMBERS[name], *notes],
    }
    labels = torch.from_numpy(y)
    splits = (Split(x, labels, torch.from_numpy(rows)) for rows in (parts.train, parts.valid, tested))
    return Task(name, *splits, classes=len(train.names), inputs=inputs, about=about)


def _values(series: Series) -> Values:
    """Return all values as they stand in the file, which is the same on every machine."""
    return np.concatenate([channel for channels in series.channels for channel in channels])


def _shaped(name: str, series: Series, length: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return series as (n, CHANNELS, length)."""
    count = len(series.channels[0])
    if count > CHANNELS:
        raise HatrackError(f"{name}: its series have {count} channels; sensors takes up to {CHANNELS}.")
    x = np.zeros((len(series.labels), CHANNELS, length), dtype=np.float32)
    for row, channels in enumerate(series.channels):
        x[row, :count] = [resampled(channel, length) for channel in channels]
    return x
