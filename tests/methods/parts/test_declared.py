"""What is declared once: saved, loaded, put back and refused accordingly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from hatrack import Learner, Task
from hatrack.data.feed import Feed
from hatrack.errors import HatrackError
from hatrack.methods.parts.declared import Holder, Part, along, kept, part, progress, scratch
from hatrack.methods.sgd import SGD
from hatrack.nets.model import Model

CPU = torch.device("cpu")


@dataclass(init=False, eq=False)
class Piece(Part):
    moved: dict[str, Tensor] = along("moved")
    sums: Tensor = progress("piece/sums")


@dataclass
class Thing(Holder):
    flags: list[Tensor] = kept("flag", bits=True)
    made: list[dict[str, Tensor]] = kept("made", answers=True)
    by_name: dict[str, Tensor] = kept("by_name", progress=True)
    one: Tensor | None = kept("one", host=True)
    aside: Tensor = scratch()
    piece: Piece = part(Piece)


def filled() -> Thing:
    thing = Thing()
    thing.declare()
    assert (thing.flags, thing.made, thing.by_name, thing.one, thing.piece.moved) == ([], [], {}, None, {})
    thing.flags += [torch.tensor([True, False]), torch.tensor([False, True])]
    thing.made += [{}, {"a/b": torch.ones(2)}]
    thing.by_name["x.weight"] = torch.zeros(3)
    thing.one = torch.tensor(7)
    thing.aside = torch.ones(4)
    thing.piece.moved["w"] = torch.full((2,), 5.0)
    thing.piece.sums = torch.zeros(1)
    return thing


def test_each_role_has_its_names() -> None:
    thing = filled()
    assert set(thing.state()) == {"flag/0", "flag/1", "made/1/a/b", "by_name/x.weight", "one"}
    assert thing.state()["flag/0"].dtype == torch.uint8
    assert set(thing.in_progress()) == {"by_name/x.weight", "piece/sums"}
    assert set(thing.along()) == {"moved/w"}
    assert [t.numel() for t in thing.answering()] == [2]


def test_what_was_saved_comes_back_in_its_form() -> None:
    thing, other = filled(), Thing()
    other.declare()
    other.load_state(thing.state(), 2, CPU)
    assert [flag.tolist() for flag in other.flags] == [[True, False], [False, True]]
    assert other.made[0] == {}
    assert other.made[1]["a/b"].tolist() == [1, 1]
    assert other.by_name["x.weight"].tolist() == [0, 0, 0]
    assert int(other.one) == 7


def test_what_is_trained_is_not_saved_twice() -> None:
    thing = filled()
    thing.by_name["trained"] = nn.Parameter(torch.zeros(2))
    assert "by_name/trained" not in thing.in_progress()


@dataclass
class Forgetful(SGD):
    """Sums up gradients, and tells nobody."""

    name: ClassVar[str] = "forgetful"

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.total = {"sum": torch.zeros(3)}


@dataclass
class Honest(Forgetful):
    """Says so."""

    total: dict[str, Tensor] = progress("total")


def learner(method: SGD) -> Learner:
    torch.manual_seed(0)
    return Learner(nn.Linear(4, 3), method, epochs=1, batch_size=8, device="cpu")


def task() -> Task:
    return Task("t", (torch.randn(16, 4), torch.arange(16) % 2))


def test_a_tensor_that_nobody_declared_is_refused_and_the_learner_is_as_before(tmp_path: Path) -> None:
    taught = learner(Forgetful())
    with pytest.raises(HatrackError, match=r"Forgetful\.total holds a tensor .* progress\("):
        taught.learn(task())
    assert taught.finished == 0
    declared = learner(Honest())
    declared.learn(task())
    assert declared.finished == 1


def test_the_models_own_tensors_may_be_held() -> None:
    @dataclass
    class Holding(SGD):
        def attach(self, model: Model) -> None:
            super().attach(model)
            self.held = list(model.parameters().values())

    learner(Holding()).learn(task())
