from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hatrack.data.image_set import load
from hatrack.data.locate import cache_root, find, split_files
from hatrack.data.sets import SETS, ImageSet
from hatrack.errors import HatrackError

from .make import write_parquet, write_set

MNIST = SETS["mnist"]


def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


def test_a_given_folder_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, other = tmp_path / "given", tmp_path / "other"
    for folder in (given, other):
        write_set(folder, "mnist", 1, 1)
    monkeypatch.setenv("HATRACK_DATA", str(other))
    assert find(MNIST, given)[0][0].is_relative_to(given)
    assert find(MNIST, None)[0][0].is_relative_to(other)


def test_the_cache_folder_serves_when_no_folder_is_named(own_cache: Path) -> None:
    write_set(own_cache / "data", "mnist", 1, 1)
    train, test = find(MNIST, None)
    assert [file.name for file in train + test] == [
        "train-00000-of-00001.parquet",
        "test-00000-of-00001.parquet",
    ]


def test_a_folder_laid_out_as_the_hub_has_it_is_found(data: Path) -> None:
    home = write_set(data, "tiny_imagenet32", 1, 1)
    (home / "data").mkdir()
    for part, name in (("train", "train-00000-of-00001-13ab"), ("test", "valid-00000-of-00001-70d5")):
        (home / f"{part}-00000-of-00001.parquet").rename(home / "data" / f"{name}.parquet")
    train, test = find(SETS["tiny_imagenet32"], data)
    assert train[0].name.startswith("train")
    assert test[0].name.startswith("valid")


def test_missing_data_is_one_line_with_the_command_to_get_it(data: Path) -> None:
    with pytest.raises(HatrackError) as caught:
        load("cifar100", data)
    assert "\n" not in str(caught.value)
    assert (
        f"hf download uoft-cs/cifar100 --repo-type dataset --include 'cifar100/t*' --local-dir {data / 'cifar100'}"
    ) in str(caught.value)


@pytest.mark.parametrize("spec", [spec for spec in SETS.values() if spec.hub], ids=lambda spec: spec.name)
def test_the_command_fetches_both_parts_and_little_else(spec: ImageSet) -> None:
    assert spec.hub is not None
    folder = spec.hub.folder
    for part in ("train", spec.hub.test):
        assert fnmatch(f"{folder}/{part}-00000-of-00001.parquet", spec.hub.pattern)
    for other in ("extra", "contrast", "gaussian_noise"):
        assert not fnmatch(f"{folder}/{other}-00000-of-00001.parquet", spec.hub.pattern)


def test_a_set_that_no_hub_has_says_which_files_to_put_where(data: Path) -> None:
    with pytest.raises(HatrackError, match=r"facescrub.*train-00000-of-00001\.parquet"):
        load("facescrub", data)


def test_a_folder_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HatrackError, match="data names"):
        load("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("HATRACK_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(HatrackError, match="HATRACK_DATA names"):
        load("mnist")


def test_without_the_package_that_fetches_the_message_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    no_hub(monkeypatch)
    with pytest.raises(HatrackError, match="pip install 'hatrack\\[data\\]' && hf download ylecun/mnist"):
        load("mnist")


def fake_hub(monkeypatch: pytest.MonkeyPatch, fail: bool = False) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def snapshot_download(repo: str, **options: Any) -> None:
        calls.append({"repo": repo, **options})
        if fail:
            raise ConnectionError("no route\nto the hub")
        for part in ("train", "test"):
            file = options["local_dir"] / "mnist" / f"{part}-00000-of-00001.parquet"
            write_parquet(file, list(range(10)), (1, 28, 28))

    module = ModuleType("huggingface_hub")
    module.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return calls


def test_a_set_is_fetched_by_its_hub_id_once(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    calls = fake_hub(monkeypatch)
    assert len(load("mnist").train) == len(load("mnist").test) == 10
    assert calls == [
        {
            "repo": "ylecun/mnist",
            "repo_type": "dataset",
            "allow_patterns": ["mnist/train-*", "mnist/test-*"],
            "local_dir": own_cache / "data" / "mnist",
        }
    ]


def test_a_given_folder_is_never_fetched_into(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    calls = fake_hub(monkeypatch)
    with pytest.raises(HatrackError, match="hf download"):
        load("mnist", data)
    assert not calls


def test_a_failed_fetch_says_why_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_hub(monkeypatch, fail=True)
    with pytest.raises(HatrackError, match=r"fetching ylecun/mnist failed \(no route\)") as caught:
        load("mnist")
    assert "\n" not in str(caught.value)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    for shard in (0, 2):
        (tmp_path / f"train-{shard:05d}-of-00003.parquet").touch()
    with pytest.raises(HatrackError, match=r"2 of 3 Parquet files.*number 00001"):
        split_files(tmp_path, "train")


@pytest.mark.parametrize("name", ["train.parquet", "train/0000.parquet", "train-00000-of-00001-ab12.parquet"])
def test_all_usual_file_names_are_found(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    assert split_files(tmp_path, "train") == [file]
    assert split_files(tmp_path, "test") == []


def test_the_cache_lies_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HATRACK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "hatrack"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "hatrack"
