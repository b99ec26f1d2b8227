"""Certificates of a network that lives: tasks that are released, updated and put back, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from hatrack import HatrackError, Learner, Task
from hatrack.errors import Edited
from hatrack.ship.certificate.check_hatrack import Problem, compare, entries, of_saved

from .saves import copied, edit, flip, page_of, places, task, taught
from .test_certify import checked, read, sealed

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
UPDATABLE = ("hat", "pmask", "packnet", "wsn")


def more(i: int, seed: int = 50) -> Task:
    """Return other samples of a task."""
    x = torch.randn(24, 1, 5, 5, generator=torch.Generator().manual_seed(seed))
    return Task(f"t{i}", (x, (x.flatten(1)[:, i] > 0).long()))


def update(learner: Learner, i: int, accept: str = "always", **options: Any) -> Any:
    return learner.update(f"t{i}", more(i), accept, progress=False, **options)


def saved(learner: Learner, folder: Path) -> Path:
    learner.save(folder)
    return folder


def masks_are_those_of_the_method(learner: Learner, folder: Path) -> None:
    """Compare which entries a save says that tasks use with what the method says now."""
    page = page_of(folder)
    held = load_file(folder / page["files"]["tasks"]["name"])
    same = page["files"]["tasks"]["same"]
    kinds = {"int16": "I16", "uint8": "U8"}
    done = {
        n: {"data": x.tobytes(), "dtype": kinds.get(str(x.dtype)), "shape": list(x.shape)}
        for n, x in {**held, **{n: held[other] for n, other in same.items()}}.items()
    }
    for t in learner._numbers().values():
        use = learner.method.use(t)
        assert use
        assert any(bool((amount > 0).any()) for amount in use.values())
        for name, amount in use.items():
            told = entries(page["relied"][t]["entries"][name], list(amount.shape), done)
            np.testing.assert_array_equal(told, amount.numpy() > 0)


@pytest.mark.parametrize("method", UPDATABLE)
def test_what_becomes_of_tasks_is_said_and_the_others_are_held_to_what_they_were(method: str, tmp_path: Path) -> None:
    learner = taught(method)
    first = learner.certify(tmp_path / "1.json")
    before = saved(learner, tmp_path / "before")
    assert update(learner, 1).accepted
    second = learner.certify(tmp_path / "2.json", previous=first)
    updated = saved(learner, tmp_path / "updated")
    masks_are_those_of_the_method(learner, updated)
    learner.release("t0")
    third = learner.certify(tmp_path / "3.json", previous=second)
    released = saved(learner, tmp_path / "released")
    masks_are_those_of_the_method(learner, released)

    for old, new in ((first, second), (first, updated), (before, updated), (before, second)):
        code, told = checked(old, new)
        lines = told.splitlines()
        assert (code, lines[0], lines[2]) == (1, "t0: unchanged", "t2: unchanged")
        assert lines[1].startswith("t1: CHANGED: ")
        assert lines[1].endswith(" (updated)")
    for new in (third, released):
        assert checked(second, new) == (1, "t0: GONE (released)\nt2: unchanged\nt1: unchanged\n")
    lines = checked(first, released)[1].splitlines()
    assert (lines[0], lines[2]) == ("t0: GONE (released)", "t2: unchanged")
    assert checked(third, released) == (0, "t2: unchanged\nt1: unchanged\n")
    code, told = checked(first, second, third, released)
    assert code == 1
    assert [line.rpartition(" ")[2] for line in told.splitlines()] == [
        "unchanged", "(updated)", "unchanged", "(released)", *["unchanged"] * 4,
    ]  # fmt: skip

    page = read(third)
    assert [task["name"] for task in page["tasks"]] == ["t2", "t1"]
    assert [(e["event"], e["task"]) for e in page["events"]] == [("updated", "t1"), ("released", "t0")]
    assert page["events"][:1] == read(second)["events"]


@pytest.mark.parametrize("save", [False, True], ids=["saved never", "saved between"])
@pytest.mark.parametrize("method", UPDATABLE)
def test_a_task_that_is_put_back_is_unchanged(method: str, save: bool, tmp_path: Path) -> None:
    learner, straight = taught(method), taught(method)
    before = saved(straight, tmp_path / "before")
    first = straight.certify(tmp_path / "1.json")
    if save:
        learner.save(tmp_path / "now")
    update(learner, 1)
    learner.save(tmp_path / "now")  # the first that this one is saved, where none was before
    assert learner.revert("t1").ok
    now = saved(learner, tmp_path / "now")
    masks_are_those_of_the_method(learner, now)
    for old in (before, first):
        assert checked(old, now) == (0, "t0: unchanged\nt1: unchanged (reverted)\nt2: unchanged\n")
    learner.certify(tmp_path / "2.json", previous=first)
    assert checked(first, tmp_path / "2.json")[1].splitlines()[1] == "t1: unchanged (reverted)"


def test_an_update_that_was_not_taken_excuses_nothing(tmp_path: Path) -> None:
    learner = taught("hat", 2)
    first = learner.certify(tmp_path / "1.json")
    learner.save(tmp_path / "saved")
    updated = learner.update("t1", Task("t1", (torch.zeros(12, 1, 5, 5), torch.arange(12) % 2)), progress=False)
    assert not updated.accepted
    second = learner.certify(tmp_path / "2.json", previous=first)
    assert read(second)["events"][0]["accepted"] is False
    learner.save(tmp_path / "saved")
    assert checked(first, second, tmp_path / "saved") == (0, "t0: unchanged\nt1: unchanged\n" * 2)
    page = read(first)
    page["tasks"][1]["parts"]["head/weight"] = "0" * 64
    (tmp_path / "other.json").write_bytes(sealed(page))
    with pytest.raises(Edited, match=r"'t1' is not what .* says of it: head/weight"):
        learner.certify(tmp_path / "c.json", previous=tmp_path / "other.json")


def test_a_name_that_is_learned_again_is_another_task(tmp_path: Path) -> None:
    learner = taught("hat", 2)
    first = learner.certify(tmp_path / "1.json")
    learner.release("t0")
    learner.learn(task(0), progress=False)
    second = learner.certify(tmp_path / "2.json", previous=first)
    learner.save(tmp_path / "saved")
    for new in (second, tmp_path / "saved"):
        lines = checked(first, new)[1].splitlines()
        assert lines[0].startswith("t0: CHANGED: ")
        assert " number, " in lines[0]
        assert lines[0].endswith(" (released)")
        assert lines[1] == "t1: unchanged"
    assert [t["name"] for t in read(second)["tasks"]] == ["t1", "t0"]
    third = learner.certify(tmp_path / "3.json", previous=second)
    assert checked(second, third, tmp_path / "saved")[0] == 0


def test_the_last_task_that_goes_is_certified_to_be_gone(tmp_path: Path) -> None:
    learner = taught("hat", 1)
    first = learner.certify(tmp_path / "1.json")
    learner.release("t0")
    second = learner.certify(tmp_path / "2.json", previous=first)
    assert read(second)["tasks"] == []
    assert read(second)["events"][0]["event"] == "released"
    assert checked(first, second) == (1, "t0: GONE (released)\n")


def test_a_chain_is_held_to_its_events(tmp_path: Path) -> None:
    """Whoever has other events, or lacks some, is another network; tasks that no event names are held as ever."""
    learner, other = taught("hat"), taught("hat")
    learner.release("t0")
    first = learner.certify(tmp_path / "1.json")
    with pytest.raises(HatrackError, match=r"events of .*1\.json are not in this learner's past") as told:
        other.certify(tmp_path / "c.json", previous=first)
    assert "\n" not in str(told.value)
    other.release("t1")
    with pytest.raises(HatrackError, match="a chain is of one network"):
        other.certify(tmp_path / "c.json", previous=first)
    page = read(first)
    page["tasks"][1]["parts"]["head/weight"] = "0" * 64
    (tmp_path / "odd.json").write_bytes(sealed(page))
    learner.release("t1")
    with pytest.raises(Edited, match="'t2' is not what"):
        learner.certify(tmp_path / "c.json", previous=tmp_path / "odd.json")
    assert not (tmp_path / "c.json").exists()
    learner.certify(tmp_path / "c.json", previous=first)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda page: page["events"].clear(), "t0: GONE\nt1: unchanged\n"),
        (lambda page: page["events"].insert(0, {"event": "released", "task": "t1"}), "t0: GONE\nt1: unchanged\n"),
        (lambda page: page["events"].append({"event": "up\ndated", "task": "t1"}),
         "t0: GONE (released)\nt1: unchanged (up?dated)\n"),
    ],
)  # fmt: skip
def test_what_a_save_says_of_its_events_changes_no_verdict(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    learner = taught("hat")
    learner.release("t2")
    first = learner.certify(tmp_path / "1.json")
    learner.release("t0")
    folder = saved(learner, tmp_path / "saved")
    assert checked(first, folder) == (1, "t0: GONE (released)\nt1: unchanged\n")
    assert checked(first, edit(folder, change)) == (1, said)


def test_events_that_make_no_sense_are_no_verdict(tmp_path: Path) -> None:
    folder = saved(taught("hat", 1), tmp_path / "saved")
    senseless: tuple[Any, ...] = ([1], {"t0": 1}, [{}])
    for odd in senseless:
        code, told = checked(folder, edit(folder, partial(dict.update, events=odd)))
        assert (code, told.count("\n")) == (3, 1)


def test_the_events_of_a_signed_certificate_are_under_its_signature(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from .test_signing import new_key

    learner = taught("hat", 2)
    learner.release("t0")
    learner.certify(tmp_path / "c.json", key=new_key(tmp_path / "mine.pem"))
    learner.save(tmp_path / "saved")
    page = read(tmp_path / "c.json")
    (tmp_path / "f.json").write_bytes(sealed(page | {"events": []}))
    assert checked(tmp_path / "c.json", tmp_path / "saved")[0] == 0
    code, told = checked(tmp_path / "f.json", tmp_path / "saved")
    assert code == 1
    assert "a signature that is not of its key" in told


def test_a_page_that_hides_a_task_says_that_it_is_gone(tmp_path: Path) -> None:
    folder = saved(taught("hat", 2), tmp_path / "saved")
    for change in (
        lambda page: page.update(versions={"0": 1}),
        lambda page: page.update(versions={"0": 0}),
        lambda page: page["tasks"][0].update(released=True),
    ):
        assert compare(folder, edit(folder, change)) == {"t0": None, "t1": []}


@pytest.mark.parametrize("method", UPDATABLE)
def test_the_middle_of_an_update_is_neither_certified_nor_judged(method: str, tmp_path: Path) -> None:
    learner = taught(method, 2)

    def stop(_: Any) -> None:
        learner.save(tmp_path / "within")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update(learner, 0, on_epoch=stop)
    with pytest.raises(HatrackError, match="'t0' is being updated; end that") as told:
        learner.certify(tmp_path / "c.json")
    assert "\n" not in str(told.value)
    straight = taught(method, 2)
    before = saved(straight, tmp_path / "before")
    with pytest.raises(Problem, match="end any update, save it again") as found:
        compare(before, tmp_path / "within")
    assert found.value.args[1] == 3
    learner.abandon()
    after = saved(learner, tmp_path / "after")
    masks_are_those_of_the_method(learner, after)
    assert compare(before, after) == {"t0": [], "t1": []}
    learner.certify(tmp_path / "c.json")


def test_a_bit_of_an_updated_task_is_found_and_one_of_its_older_version_is_nobody_s(tmp_path: Path) -> None:
    learner = taught("hat", 2)
    update(learner, 0)
    certificate = learner.certify(tmp_path / "c.json")
    folder = saved(learner, tmp_path / "saved")
    for name, expected in (("head/2/weight", ["head/weight"]), ("head/0/weight", []), ("method/mask/0", [])):
        other = copied(folder)
        path = other / page_of(other)["files"]["tasks"]["name"]
        flip(path, places(path)[name][0], 0)
        assert compare(certificate, other) == {"t0": expected, "t1": []}
    assert [name for name, _ in of_saved(folder)] == ["t1", "t0"]
