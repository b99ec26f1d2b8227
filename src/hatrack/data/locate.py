"""Where the files of a named set are: a given folder, HATRACK_DATA, the cache, or fetched from the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from hatrack.data.sets import ImageSet
from hatrack.errors import HatrackError

Folder: TypeAlias = str | os.PathLike[str] | None  # that holds the sets; None: HATRACK_DATA, else the cache
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})")


def cache_root() -> Path:
    """Return the folder for downloads and decoded pictures: HATRACK_CACHE, else the user's cache folder."""
    own = os.environ.get("HATRACK_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hatrack"


def mirror(data: Folder) -> Path | None:
    """Return the folder that holds the sets: the one given, else HATRACK_DATA; None where neither is."""
    chosen = data or os.environ.get("HATRACK_DATA")
    if not chosen:
        return None
    folder = Path(chosen)
    if not folder.is_dir():
        origin = "data" if data else "HATRACK_DATA"
        raise HatrackError(f"{origin} names {folder}, which is not a folder; give the folder that holds the sets.")
    return folder


def split_files(folder: Path, part: str) -> list[Path]:
    """Return the Parquet files of one part (`train`, `test`), in the order of their names; all or none.

    Accepted: part-00000-of-00001.parquet (with or without a hash), part.parquet, part/anything.parquet.
    """
    patterns = (f"{part}-*.parquet", f"{part}.parquet", f"{part}/*.parquet")
    files = next((found for pattern in patterns if (found := sorted(folder.glob(pattern)))), [])
    shards = [match for file in files if (match := _SHARD.search(file.name))]
    if shards:
        total = int(shards[0][2])
        missing = sorted(set(range(total)) - {int(shard[1]) for shard in shards})
        if missing:
            raise HatrackError(
                f"{folder}: {part} has {len(shards)} of {total} Parquet files; the first that is missing is "
                f"number {missing[0]:05d}. Fetch the set again."
            )
    return files


def find(spec: ImageSet, data: Folder) -> tuple[list[Path], list[Path]]:
    """Return the train and test files of a named set; a folder that is given is the only one looked in."""
    home = mirror(data)
    root = home if home is not None else cache_root() / "data"
    folder = root / spec.name
    files = _both(spec, folder)
    if files is None and home is None and spec.hub is not None and _fetch(spec, folder):
        files = _both(spec, folder)
    if files is None:
        raise HatrackError(f"{spec.name}: no train and test Parquet files in {folder}. {how_to_get(spec, folder)}")
    return files


def _both(spec: ImageSet, folder: Path) -> tuple[list[Path], list[Path]] | None:
    places = [folder] if spec.hub is None else [folder, folder / spec.hub.folder]
    tests: Sequence[str] = ["test"] if spec.hub is None else [spec.hub.test, "test"]
    for place in places:
        train = split_files(place, "train")
        test = next((found for part in tests if (found := split_files(place, part))), [])
        if train and test:
            return train, test
    return None


def how_to_get(spec: ImageSet, folder: Path) -> str:
    """Return the sentence that tells how to get a set into `folder`."""
    if spec.hub is None:
        return (
            "No copy on the hub is known: put train-00000-of-00001.parquet and test-00000-of-00001.parquet "
            "(columns image and label) into that folder."
        )
    return (
        f"Get it with: pip install 'hatrack[data]' && hf download {spec.hub.repo} --repo-type dataset "
        f"--include '{spec.hub.pattern}' --local-dir {folder}"
    )


def _fetch(spec: ImageSet, folder: Path) -> bool:
    """Fetch a set from the hub; return False where the package that fetches is not installed."""
    try:
        hub = import_module("huggingface_hub")
    except ImportError:
        return False
    assert spec.hub is not None
    try:
        hub.snapshot_download(
            spec.hub.repo, repo_type="dataset", allow_patterns=list(spec.hub.patterns), local_dir=folder
        )
    except Exception as error:  # the hub's errors share no base class: network, permission, gated set
        reason = str(error).strip().partition("\n")[0]
        advice = how_to_get(spec, folder)
        raise HatrackError(f"{spec.name}: fetching {spec.hub.repo} failed ({reason}). {advice}") from error
    return True
