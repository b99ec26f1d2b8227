"""Gates that start open on pretrained weights: what they are in either half, what is left free, and that it lasts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hatrack import HAT, HatrackError, Hats, Learner, PMask
from hatrack.learn.fit import Epoch
from hatrack.methods import METHODS
from hatrack.methods.parts.hard_attention import HardAttention
from hatrack.testing import BEHAVIOURS, Case
from hatrack.testing.case import digits
from life.trained import mlp, taught

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import pretrained  # the experiment of docs/pretrained.md

WHOLE = {"resumes_the_same", "loads_the_same", "keeps_its_promise"}


@pytest.mark.parametrize("method", [HAT, PMask])
def test_gates_are_open_then_closed_by_worth_and_what_is_free_is_as_before(method: type[HardAttention]) -> None:
    net, _ = taught(mlp(), epochs=2)
    initial = {n: p.detach().clone() for n, p in net.named_parameters()}
    learner = Learner(net, method(start="pretrained", room=0.6), epochs=4, device="cpu")
    opened: list[tuple[int, float]] = []

    def look(epoch: Epoch) -> None:
        opened.append((epoch.phase, float(learner.method.final_gates().mean())))  # type: ignore[attr-defined]

    left = 1.0
    for task in digits(100)[:2]:
        opened.clear()
        learner.learn(task, on_epoch=look)
        assert opened[0] == (0, 1.0)
        assert opened[-1][0] == 1
        assert opened[-1][1] < 0.8
        free = 1 - learner.capacity()[-1]["total"]  # type: ignore[index]
        assert 0.6 * left <= free < 0.75 * left
        left = free
    taken = learner.method.occupied() or {}
    for name, p in net.named_parameters():
        free_entries = taken[name] == 0
        assert torch.equal(p[free_entries], initial[name][free_entries]), name
    moved = [name for name, p in net.named_parameters() if not torch.equal(p, initial[name])]
    assert len(moved) == len(initial)
    assert learner.verify().ok


@pytest.mark.parametrize(
    "behaviour", [b for b in BEHAVIOURS if b.check.__name__ in WHOLE], ids=lambda b: b.check.__name__
)
def test_it_is_held_to_what_every_method_is(behaviour, tmp_path: Path) -> None:
    case = Case(HAT, "residual" if "mlp" not in behaviour.nets else "mlp", tmp_path, {"start": "pretrained"}, epochs=8)
    behaviour.hold(case)


def test_fresh_networks_start_as_before() -> None:
    """The default is N(0, 1) from the seed, drawn by torch itself."""
    from hatrack.learn.seeds import generator

    learner = Learner(mlp()[:-1], HAT(), epochs=1, device="cpu")
    seen: list[torch.Tensor] = []
    real = HAT.begin_phase

    class Watched(HAT):
        def begin_phase(self, phase: int) -> None:
            seen.append(self.embedding.detach().clone())
            real(self, phase)

    learner = Learner(mlp()[:-1], Watched(), epochs=1, device="cpu")
    learner.learn(digits(20)[0])
    expected = torch.randn(24 + 16, generator=generator(0, "method", 0))
    assert torch.equal(seen[0], expected)
    assert HAT().start == "normal"
    assert not HAT().fixed


def test_any_loop_takes_gates_that_are_trained_and_refuses_phases() -> None:
    assert Hats(mlp()[:-1], HAT()).finished == 0
    with pytest.raises(HatrackError, match=r"^hat needs a loop of its own \(it learns in phases\)"):
        Hats(mlp()[:-1], HAT(start="pretrained"))
    assert METHODS["cat"]().phased


def test_cat_which_has_phases_of_its_own_refuses() -> None:
    with pytest.raises(HatrackError, match=r"^cat has phases of its own, and cannot start pretrained; use hat"):
        METHODS["cat"](start="pretrained")


def test_few_samples_keep_what_was_known_and_leave_room() -> None:
    """The experiment of docs/pretrained.md on one seed, on which fine-tuning reaches 0.374, with a margin."""
    accuracy, free = pretrained.kept("hat pretrained", 5, 64)
    assert accuracy > 0.85
    assert free > 0.6
