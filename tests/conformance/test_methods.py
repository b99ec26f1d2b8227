"""What every method must do (hatrack.testing), on every network: one table. A method is done when it passes.

A new entry in METHODS is covered without further ado. One that cannot learn with default settings in so few epochs on
so small a network gets more in EPOCHS; one that by its nature cannot run on a network is listed in REFUSES.
"""

from __future__ import annotations

import pytest
import torch

from hatrack.methods import METHODS
from hatrack.testing import BEHAVIOURS, NETS, Case
from hatrack.testing.behaviour import Behaviour
from hatrack.testing.learning import learns_or_refuses, runs_on_a_gpu
from hatrack.testing.predicting import learns_every_target

EPOCHS = {"ucl": 12}  # 25 at most, where a net's own number does not do
REFUSES: set[tuple[str, str]] = set()
TARGETS = {"lwf": {"counts"}, "random": {"counts"}}  # that a method refuses: those of one's own that do not say enough
EVERY_TARGET = {"hat", "ewc", "lwf", "wsn"}  # a family each; the others with `make test-slow`
RESIDUAL = {"hat", "pmask", "packnet", "supsup", "spg", "ewc"}  # likewise, on the network that takes longest
NEEDS_A_GPU = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
)
FAMILIES = {
    "references", "hard masks", "soft masks", "regularisation", "distillation, replay, optimisation",
}  # fmt: skip


def marks(name: str, net: str, behaviour: Behaviour) -> tuple[pytest.MarkDecorator, ...]:
    """Return what a test needs, or that it takes long."""
    long = behaviour is learns_every_target and name not in EVERY_TARGET
    long = long or (net == "residual" and name not in RESIDUAL)
    return NEEDS_A_GPU if behaviour is runs_on_a_gpu else (pytest.mark.slow,) if long else ()


def asked(name: str, net: str) -> list[Behaviour]:
    """Return what is asked of a method on a network; that it learns is looked at where it might be refused."""
    if (name, net) in REFUSES:
        return [learns_or_refuses]
    return [b for b in BEHAVIOURS if net in b.nets and (b is not learns_or_refuses or net == "branching")]


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, net = request.param
    return Case(METHODS[name], net, tmp_path_factory.mktemp("case"), epochs=EPOCHS.get(name))


@pytest.mark.parametrize(
    ("case", "behaviour"),
    [
        pytest.param(
            (name, net),
            behaviour,
            marks=marks(name, net, behaviour),
            id=f"{name}-{net}-{behaviour.check.__name__}",
        )
        for name in METHODS
        for net in NETS
        for behaviour in asked(name, net)
    ],
    indirect=["case"],
)
def test_conforms(case: Case, behaviour: Behaviour) -> None:
    behaviour.hold(case)
    assert case.refused.keys() == (TARGETS.get(case.method.name, set()) if behaviour is learns_every_target else set())
    if behaviour is learns_or_refuses and case.net != "branching":
        assert case.refusal is not None, "listed in REFUSES, but learns"


@pytest.mark.parametrize("name", METHODS)
def test_is_listed_as_what_it_is(name: str) -> None:
    assert METHODS[name].name == name
    assert METHODS[name].family in FAMILIES
