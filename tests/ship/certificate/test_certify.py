"""Certificates: what stands in them, that they follow one another, and that none can be edited."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hatrack import HatrackError, Hats, Learner, __version__
from hatrack.errors import Edited
from hatrack.learn.proof.seals import fingerprint
from hatrack.methods import METHODS
from hatrack.ship.certificate import check_hatrack
from hatrack.ship.certificate.check_hatrack import Problem, canonical, compare, of_saved
from hatrack.ship.stored import digest, packed
from hatrack.targets import Classification

from .saves import Mixed, flip, page_of, places, task, taught

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
Page = dict[str, Any]


@cache
def certified() -> tuple[Learner, Path]:
    """Return a learner of two tasks, and a folder with its save and its certificate."""
    folder = Path(mkdtemp())
    learner = taught("hat", 2)
    learner.save(folder / "saved")
    learner.certify(folder / "first.json")
    return learner, folder


def read(path: Path) -> Page:
    page: Page = json.loads(path.read_text())
    return page


def sealed(page: Page) -> bytes:
    """Return a certificate that somebody has written anew, digest and all."""
    page = {name: value for name, value in page.items() if name != "sha256"}
    return canonical(page | {"sha256": sha256(canonical(page)).hexdigest()})


def checked(*words: Path | str) -> tuple[int, str]:
    """Run the checker as a stranger would, in a process of its own in which neither torch nor hatrack can be had."""
    code = (
        "import sys, runpy\n"
        "sys.modules['torch'] = sys.modules['hatrack'] = None\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, check_hatrack.__file__, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_what_stands_in_it() -> None:
    learner, folder = certified()
    page = read(folder / "first.json")
    assert page["method"] == {"name": "hat", "promises": True}
    assert (page["schema"], page["previous"], page["events"], page["key"], page["signature"]) == (
        1,
        None,
        [],
        None,
        None,
    )
    assert [(t["name"], t["parts"]) for t in page["tasks"]] == of_saved(folder / "saved")
    for t, told in enumerate(page["tasks"]):
        cut = learner.cut_out(t)
        assert told["cut_out"] == {"sha256": digest(cut), "weights": sha256(packed(cut)).hexdigest(), "why": None}
        assert told["answers"] == fingerprint(learner.probes[t].logits)


def test_it_is_the_same_whenever_it_is_written_and_by_whoever_loads_it(tmp_path: Path) -> None:
    import hatrack

    learner, folder = certified()
    learner.certify(tmp_path / "again.json")
    hatrack.load(folder / "saved", Mixed(), device="cpu").certify(tmp_path / "loaded.json")
    texts = {path.read_bytes() for path in (folder / "first.json", *tmp_path.iterdir())}
    assert len(texts) == 1


def test_there_are_names_and_digests_in_it_and_nothing_of_anybody_s_data() -> None:
    _, folder = certified()

    def leaves(value: Any) -> list[Any]:
        if isinstance(value, dict | list):
            return [leaf for inner in (value.values() if isinstance(value, dict) else value) for leaf in leaves(inner)]
        return [value]

    page = read(folder / "first.json")
    told = {"t0", "t1", "hat", __version__, *page["environment"].values()}
    others = [leaf for leaf in leaves(page) if not isinstance(leaf, str) or not re.fullmatch("[0-9a-f]{64}", leaf)]
    assert {leaf for leaf in others if isinstance(leaf, str)} == told
    assert {leaf for leaf in others if not isinstance(leaf, str)} == {None, True}  # the schema's 1 among them


def test_the_checker_as_a_stranger_runs_it() -> None:
    _, folder = certified()
    assert checked(folder / "first.json", folder / "saved") == (0, "t0: unchanged\nt1: unchanged\n")
    assert checked(folder / "saved", folder / "saved")[0] == 0
    assert checked(folder / "first.json")[0] == 2
    code, told = checked(folder / "first.json", folder / "nowhere")
    assert code == 3
    assert "nowhere" in told
    assert told.count("\n") == 1


def test_a_bit_of_the_model_is_found_by_its_certificate(tmp_path: Path) -> None:
    learner = taught("hat", 1)
    learner.save(tmp_path / "saved")
    learner.certify(tmp_path / "c.json")
    path = tmp_path / "saved" / page_of(tmp_path / "saved")["files"]["tasks"]["name"]
    flip(path, places(path)["probe/0/logits"][0] + 5, 3)
    assert checked(tmp_path / "c.json", tmp_path / "saved") == (1, "t0: CHANGED: probe/logits\n")


@given(data=st.data())
@settings(deadline=None, max_examples=80)
def test_no_bit_of_a_certificate_can_be_changed(data: st.DataObject) -> None:
    _, folder = certified()
    other = folder / "flipped.json"
    other.write_bytes((folder / "first.json").read_bytes())
    flip(other, data.draw(st.integers(0, other.stat().st_size - 1)), data.draw(st.integers(0, 7)))
    with pytest.raises((Problem, ValueError, KeyError)):
        compare(other, folder / "saved")


def test_a_certificate_written_in_another_way_is_refused() -> None:
    """A key that stands twice is read differently by different readers."""
    _, folder = certified()
    text = (folder / "first.json").read_text().replace('"events": [],', '"events": [],\n "events": [],')
    (folder / "twice.json").write_text(text)
    with pytest.raises(Problem, match="was changed after it was written"):
        compare(folder / "twice.json", folder / "saved")


def test_every_field_of_a_task_counts(tmp_path: Path) -> None:
    """Of a certificate that was written anew with another digest in it."""
    learner, folder = certified()
    learner.certify(tmp_path / "second.json", previous=folder / "first.json")
    changes: dict[str, Callable[[Page], object]] = {
        "head/weight": lambda t: t["parts"].update({"head/weight": "0" * 64}),
        "more": lambda t: t["parts"].update({"more": "0" * 64}),
        "net/conv.weight": lambda t: t["parts"].pop("net/conv.weight"),
        "answers": lambda t: t.update(answers="0" * 64),
        "cut_out": lambda t: t["cut_out"].update(weights="0" * 64),
    }
    assert compare(folder / "first.json", tmp_path / "second.json") == {"t0": [], "t1": []}
    for part, change in changes.items():
        page = read(tmp_path / "second.json")
        change(page["tasks"][0])
        (tmp_path / "edited.json").write_bytes(sealed(page))
        assert compare(folder / "first.json", tmp_path / "edited.json") == {"t0": [part], "t1": []}
        page["environment"] = {"torch": "another"}
        (tmp_path / "edited.json").write_bytes(sealed(page))
        found = compare(folder / "first.json", tmp_path / "edited.json")["t0"]
        assert found == ([] if part in ("answers", "cut_out") else [part]), "last bits are those of one machine"


# ---- the chain


def test_certificates_follow_one_another(tmp_path: Path) -> None:
    learner = taught("pmask", 1)
    learner.certify(tmp_path / "1.json")
    for i in (1, 2):
        learner.learn(task(i), progress=False)
        learner.certify(tmp_path / f"{i + 1}.json", previous=tmp_path / f"{i}.json")
    learner.save(tmp_path / "saved")
    first, second, third = (tmp_path / f"{i}.json" for i in (1, 2, 3))
    assert checked(first, second, third, tmp_path / "saved")[0] == 0
    assert checked(first, tmp_path / "saved")[0] == 0
    code, told = checked(first, third)
    assert code == 3
    assert "does not follow" in told
    page = read(third)
    page["previous"] = read(first)["sha256"][::-1]
    (tmp_path / "link.json").write_bytes(sealed(page))
    assert checked(second, tmp_path / "link.json")[0] == 3
    assert checked(third, second)[0] == 3, "not in their order"


def test_a_chain_is_of_one_network(tmp_path: Path) -> None:
    _, folder = certified()
    torch.manual_seed(3)
    other = taught("hat", 2, c=0.1)
    with pytest.raises(Edited, match=r"is not what .* says of it"):
        other.certify(tmp_path / "c.json", previous=folder / "first.json")
    with pytest.raises(HatrackError, match=r"'t1' of .* is not in this learner"):
        taught("hat", 1).certify(tmp_path / "c.json", previous=folder / "first.json")
    assert not (tmp_path / "c.json").exists()


def test_what_is_no_certificate_cannot_be_followed(tmp_path: Path) -> None:
    learner, folder = certified()
    (tmp_path / "p.json").write_text("[]")
    with pytest.raises(HatrackError, match="is no certificate"):
        learner.certify(tmp_path / "c.json", previous=tmp_path / "p.json")
    with pytest.raises(HatrackError, match="a name of its own"):
        learner.certify(folder / "first.json", previous=folder / "first.json")
    page = read(folder / "first.json")
    (tmp_path / "p.json").write_bytes(canonical(page | {"hatrack": "9"}))
    with pytest.raises(Edited, match="was changed after it was written"):
        learner.certify(tmp_path / "c.json", previous=tmp_path / "p.json")


# ---- what is refused


def test_a_learner_that_has_changed_gets_none(tmp_path: Path) -> None:
    learner = taught("hat", 1)
    with torch.no_grad():
        learner.model.heads[0].weight[0, 0] += 1
    with pytest.raises(Edited, match=r"nothing is certified .*t0: CHANGED"):
        learner.certify(tmp_path / "c.json")
    with pytest.raises(HatrackError, match="no task is learned yet"):
        Learner(Mixed(), METHODS["hat"](), device="cpu").certify(tmp_path / "c.json")
    assert not list(tmp_path.iterdir())


def test_a_task_that_cannot_be_cut_out_is_certified_without(tmp_path: Path) -> None:
    learner = taught("pnn", 2)
    told = read(learner.certify(tmp_path / "c.json"))["tasks"][1]
    assert told["cut_out"]["sha256"] is None
    assert "cannot be cut out" in told["cut_out"]["why"]


def test_certifying_leaves_the_learner_as_it_was(tmp_path: Path) -> None:
    learner = taught("hat", 1)
    learner.save(tmp_path / "a")
    learner.certify(tmp_path / "c.json")
    assert all(place.parent == tmp_path for place, _ in learner.stored)
    learner.learn(task(1), progress=False)
    learner.save(tmp_path / "a")
    twin = taught("hat", 2)
    twin.save(tmp_path / "b")
    assert {p.name for p in (tmp_path / "a").glob("*.safetensors")} == {p.name for p in (tmp_path / "b").glob("*.s*")}


def test_a_loop_of_one_s_own_certifies_too(tmp_path: Path) -> None:
    hats = Hats(Mixed(), METHODS["hat"]())
    x = torch.randn(16, 1, 5, 5)
    hats.begin("t0", Classification(2), example=x, steps=2)
    optimizer = hats.guard(torch.optim.SGD(hats.trainable(), lr=0.1))
    for _ in range(2):
        optimizer.zero_grad()
        (hats(x).square().mean() + hats.penalty()).backward()
        optimizer.step()
    hats.end()
    hats.save(tmp_path / "saved")
    assert compare(hats.certify(tmp_path / "c.json"), tmp_path / "saved") == {"t0": []}
