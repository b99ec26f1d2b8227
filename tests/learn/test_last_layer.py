"""A classifier's own last layer is noticed before the first task; other networks that end in a linear map are not."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from hatrack import HAT, CapacityWarning, HatrackWarning, Hats, Learner, Task
from hatrack.learn.last_layer import notice_last_layer, own_last_layer, taken_off
from hatrack.methods import METHODS
from hatrack.nets import NETS, build
from hatrack.nets.model import Model
from hatrack.targets import Classification
from zoo import ZOO
from zoo import tasks as tasks_of


class Classifier(nn.Module):
    """What torchvision and timm build, in small: a body, and a last layer of its own."""

    def __init__(self, name: str = "fc", classes: int = 7, then: nn.Module | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU())
        self.name, self.then = name, then or nn.Identity()
        setattr(self, name, nn.Linear(20, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.then(getattr(self, self.name)(self.body(x)))


def noticed(net: nn.Module, shape: tuple[int, ...] = (1, 8, 8)) -> list[str]:
    learner = Learner(net, METHODS["sgd"](), epochs=1, device="cpu")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        learner.learn(Task("t", (torch.rand(12, *shape), torch.arange(12) % 3)), progress=False)
    return [str(w.message) for w in seen if w.category is HatrackWarning]


@pytest.mark.parametrize(
    ("net", "line"),
    [
        (Classifier(), "head, net.fc = net.fc, torch.nn.Identity()"),
        (Classifier("classifier"), "head, net.classifier = net.classifier, torch.nn.Identity()"),
        (Classifier("out", classes=3), "head, net.out = net.out, torch.nn.Identity()"),  # as wide as the task's classes
        (Classifier("out", classes=10), "head, net.out = net.out, torch.nn.Identity()"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(), nn.Linear(20, 10)),
            "head, net[4] = net[4], torch.nn.Identity()",
        ),
    ],
)
def test_a_classifiers_last_layer_is_noticed(net: nn.Module, line: str) -> None:
    (said,) = noticed(net)
    assert "\n" not in said
    assert line in said
    assert "learner.adopt(task, head=head)" in said


def test_the_line_that_is_shown_takes_it_off() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10)))
    last = net[1][2]  # type: ignore[index]
    scope = {"net": net, "torch": torch}
    exec(taken_off("1.2"), scope)
    assert scope["head"] is last
    assert not noticed(net)


def test_a_projection_is_none() -> None:
    assert not noticed(Classifier("project", classes=20))
    assert not noticed(Classifier("fc", then=nn.ReLU(inplace=True)))  # written into: no longer the layer's output
    assert not noticed(Classifier("out", classes=8))
    assert not noticed(build("mlp", (1, 8, 8), widths=(10,)))


SHAPES = {"conv1d": (6, 32)}


@pytest.mark.parametrize("name", NETS)
def test_no_built_in_network_ends_in_a_linear_map(name: str) -> None:
    shape = SHAPES.get(name, (3, 32, 32))
    assert own_last_layer(Model(build(name, shape), torch.device("cpu")), torch.zeros(1, *shape)) is None


def test_it_is_said_in_any_loop() -> None:
    hats = Hats(Classifier(), METHODS["sgd"]())
    with pytest.warns(HatrackWarning, match=r"before 'a': the network ends in fc, 7 wide"):
        hats.begin("a", Classification(2), steps=1, example=torch.rand(2, 64))


def test_it_is_said_once() -> None:
    learner = Learner(Classifier(), HAT(), epochs=1, device="cpu")
    tasks = [Task(name, (torch.rand(12, 64), torch.arange(12) % 2)) for name in "ab"]
    with pytest.warns(HatrackWarning, match=r"before 'a': the network ends in fc, 7 wide"):
        learner.learn(tasks[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", CapacityWarning)
        learner.learn(tasks[1])


@pytest.mark.parametrize("name", list(ZOO))
def test_no_network_of_the_zoo_is_taken_for_one(name: str) -> None:
    kept = ZOO[name]
    model = Model(kept.build(), torch.device("cpu"))
    x = tasks_of(kept, count=1)[0].inputs.on(model.device)(kept.batch(2, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notice_last_layer(model, x, "t", 2)
