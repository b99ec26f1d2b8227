"""What a save says of the entries that a task uses is what its method says, read by numpy alone, and small."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from test_seals import PROMISING, Kept, taught

import hatrack
from hatrack import Learner
from hatrack.learn.proof.relied import _packed, relied_on
from hatrack.methods import METHODS

OLD = Path(__file__).parents[1] / "version_0_1"

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")


def old_net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 6), torch.nn.ReLU())


def saved(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return a page, and the tensors of its two files, under all their names."""
    page = json.loads((folder / "learner.json").read_text())
    files = []
    for kind in ("tasks", "live"):
        entry = page["files"][kind]
        held = load_file(folder / entry["name"])
        files.append(held | {name: held[other] for name, other in entry["same"].items()})
    return page, files[0], files[1]


def by_loops(form: Any, shape: tuple[int, ...], done: dict[str, Any]) -> np.ndarray:
    """Read a form entry by entry, as its description says."""
    found = np.zeros(shape, dtype=bool)
    for place in np.ndindex(*shape):
        if isinstance(form, str):
            found[place] = form == "all"
            continue
        kind, name, number = form
        if kind == "upto":
            found[place] = 1 <= int(done[name][place]) <= number
            continue
        bit = [number + sum(shape[:axis]) + i for axis, i in enumerate(place)]
        if kind == "bits":
            bit = [number + int(np.ravel_multi_index(place, shape))]
        found[place] = all(done[name][b // 8] >> (7 - b % 8) & 1 for b in bit)
    return found


@pytest.mark.parametrize("name", PROMISING)
def test_it_says_what_the_method_uses(name: str, tmp_path: Path) -> None:
    learner = taught(name)
    learner.save(tmp_path)
    page, done, live = saved(tmp_path)
    for t in range(2):
        use = learner.method.use(t) or {}
        forms = page["relied"][t]["entries"]
        assert forms.keys() >= use.keys()
        for entry, form in forms.items():
            found = by_loops(form, live[f"net/{entry}"].shape, done)
            expected = use[entry].numpy() > 0 if entry in use else np.zeros_like(found)
            assert np.array_equal(found, expected), entry


@pytest.mark.parametrize("name", ["pmask", "packnet", "supsup", "wsn"])
def test_what_the_state_says_already_is_not_stored_again(name: str) -> None:
    learner = taught(name)
    assert all(probe.relied is not None and probe.relied.bits.numel() == 0 for probe in learner.probes)


def test_soft_masks_on_weights_are_stored_as_bits() -> None:
    torch.manual_seed(0)
    learner = Learner(Kept(), METHODS["pmask"](hard=False), epochs=1, batch_size=10, device="cpu")
    x = torch.randn(40, 6)
    learner.learn(hatrack.Task("t", (x, (x[:, 0] > 0).long())))
    relied = learner.probes[0].relied
    assert relied is not None
    assert not any(form[1].startswith("method/") for form in relied.forms.values() if form != "all")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.booleans())
@settings(deadline=None, max_examples=200)
def test_any_mask_comes_back(shape: list[int], seed: int, outer: bool) -> None:
    random = np.random.default_rng(seed)
    mask = random.random(shape) < 0.5
    if outer:
        mask = reduce(np.multiply.outer, [random.random(n) < 0.6 for n in shape])
    kind, vectors = _packed(mask)
    if not vectors:
        assert mask.all() if kind == "all" else not mask.any()
        return
    assert not (outer and kind == "bits")
    done = {"use/0": np.packbits(np.concatenate([np.ones(3, dtype=bool), *vectors]))}
    assert np.array_equal(by_loops([kind, "use/0", 3], tuple(shape), done), mask)


def test_a_save_of_before_has_it_when_it_is_saved_again(tmp_path: Path) -> None:
    loaded = hatrack.load(OLD / "hat", old_net(), device="cpu")
    assert [probe.relied for probe in loaded.probes] == [None, None]
    loaded.save(tmp_path)
    page, done, live = saved(tmp_path)
    for t in range(2):
        use = loaded.method.use(t)
        assert use is not None
        for entry, form in page["relied"][t]["entries"].items():
            assert np.array_equal(by_loops(form, live[f"net/{entry}"].shape, done), use[entry].numpy() > 0)


def test_it_stays_as_it_was_taken_when_later_tasks_are_learned_and_it_is_loaded(tmp_path: Path) -> None:
    learner = taught("hat")
    learner.save(tmp_path)
    page = json.loads((tmp_path / "learner.json").read_text())
    loaded = hatrack.load(tmp_path, Kept(), device="cpu")
    for t, probe in enumerate(loaded.probes):
        assert probe.relied is not None
        assert probe.relied.described() == page["relied"][t]
        again = relied_on(loaded.method, t, probe.seal)
        assert again.described() == page["relied"][t]
        assert torch.equal(again.bits, probe.relied.bits)


def test_a_buffer_that_answering_moves_is_not_relied_on() -> None:
    class Counting(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1  # type: ignore[operator]
            return super().forward(x)

    learner = taught("hat", Counting)
    relied = learner.probes[0].relied
    assert relied is not None
    assert relied.forms["calls"] == "none"
    assert "scale" not in relied.forms, "a buffer that stays counts as a whole"
