"""What all targets have in common: gradients, a loss and a score of one's own, facts, disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hatrack import HatrackError, Learner, Task, load, targets
from hatrack.data.packing import Packing
from hatrack.methods import METHODS
from hatrack.targets import Classification, Dense, Gathered, MultiLabel, Regression, Target
from hatrack.targets.stored import Foreign, restored

SHAPES: dict[str, tuple[Target, tuple[int, ...], Tensor]] = {
    "classification": (Classification(3, weights=[1, 2, 0.5], smoothing=0.1), (5, 3), torch.tensor([0, 2, 1, 1, 0])),
    "soft": (Classification(3), (5, 3), torch.full((5, 3), 1 / 3, dtype=torch.float64)),
    "multilabel": (MultiLabel(3, weights=[1, 2, 0.5]), (5, 3), (torch.arange(15).view(5, 3) % 2).double()),
    "regression": (Regression(mean=[1, 2], std=[3, 0.5]), (5, 2), torch.arange(10.0, dtype=torch.float64).view(5, 2)),
    "dense": (Dense(3, axis=1), (5, 3, 2), torch.tensor([[0, -100], [1, 2], [2, 2], [0, 1], [-100, 1]])),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
def test_gradients_are_those_of_finite_differences(kind: str, weighted: bool) -> None:
    target, shape, y = SHAPES[kind]
    at = torch.tensor(np.random.default_rng(7).normal(size=shape), requires_grad=True)
    weights = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0], dtype=torch.float64) if weighted else None
    assert torch.autograd.gradcheck(lambda output: target.trained(output, y, weights), (at,), atol=1e-6)
    older = torch.tensor(np.random.default_rng(8).normal(size=shape))
    assert torch.autograd.gradcheck(lambda output: target.distance(output, older, 2.0), (at,), atol=1e-6)


@pytest.mark.parametrize("kind", SHAPES)
def test_what_is_told_of_a_target_in_json_brings_it_back(kind: str) -> None:
    target = SHAPES[kind][0]
    told = json.loads(json.dumps(target.described()))
    assert restored(told) == target
    assert restored(told).described() == target.described()


def test_packing_holds_targets_of_any_shape_exactly() -> None:
    given = {0: torch.tensor([3, 2**40]), 1: torch.tensor([[1.1, -2.7], [0.3, 1e-30]]), 2: torch.tensor([[[7], [8]]])}
    packing = Packing(given)
    assert packing.needed
    for task, y in given.items():
        back = packing.unpacked(task, packing.packed(y))
        assert back.dtype == y.dtype
        assert torch.equal(back, y)
    assert not len(packing.unpacked(5, packing.packed(given[0])[:0]))
    assert not Packing({0: torch.tensor([1]), 1: torch.tensor([2, 3])}).needed


# ---- a loss or a score of one's own

X = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
CLASSES = (X[:, 0] + X[:, 1] > 0).long()


def task(name: str = "t", y: Tensor = CLASSES, **more: Any) -> Task:
    parts = {"train": slice(50), "valid": slice(50, 70), "test": slice(70, 90)}
    return Task(name, **{part: (X[rows], y[rows]) for part, rows in parts.items()}, **more)


def learner(method: str = "hat", **more: Any) -> Learner:
    torch.manual_seed(0)
    return Learner(net(), METHODS[method](), **{"epochs": 3, "batch_size": 10, "device": "cpu"} | more)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU())


def focal(output: Tensor, y: Tensor) -> Tensor:
    each = cross_entropy(output, y, reduction="none")
    return (1 - torch.exp(-each)) ** 2 * each


class Metric:
    """What torchmetrics' metrics have: state, a direction, a device."""

    higher_is_better = False
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.wrong, self.count = 0, 0

    def update(self, output: Tensor, y: Tensor) -> None:
        self.wrong += int((output.argmax(1) != y).sum())
        self.count += len(y)

    def compute(self) -> Tensor:
        return torch.tensor(self.wrong / self.count)


def test_a_loss_of_ones_own_is_what_is_learned() -> None:
    target = task(loss=focal).target
    output = torch.randn(50, 2, dtype=torch.float64)
    p = torch.softmax(output, 1).numpy()[np.arange(50), CLASSES[:50]]
    assert float(target.trained(output, CLASSES[:50])) == pytest.approx((-((1 - p) ** 2) * np.log(p)).mean(), rel=1e-9)
    weights = torch.rand(50, dtype=torch.float64)
    expected = (weights.numpy() * (1 - p) ** 2 * -np.log(p)).sum() / float(weights.sum())
    assert float(target.trained(output, CLASSES[:50], weights)) == pytest.approx(expected, rel=1e-9)


def test_a_metric_is_copied_begun_anew_and_knows_its_direction() -> None:
    metric = Metric()
    metric.update(torch.zeros(3, 2), torch.ones(3))
    target = task(score=metric).target
    assert target.judged() == ("Metric", False, None)
    for _ in range(2):
        score = target.scored()
        score.update(torch.tensor([[1.0, 0.0]] * 4), torch.tensor([0, 0, 1, 1]))
        assert float(score.compute()) == 0.5
    assert (metric.wrong, metric.count) == (3, 3)


def test_a_score_has_a_name_which_hatracks_own_are_not() -> None:
    def accuracy(output: Tensor, y: Tensor) -> float:
        return 100 * float((output.argmax(1) == y).float().mean())

    assert task(score=accuracy).target.judged().score == "accuracy (own)"
    assert task(score=Gathered(accuracy, "hits", larger_is_better=False)).target.judged() == ("hits", False, None)


def test_what_is_ones_own_goes_on_after_a_load_when_the_task_is_handed_in_again(tmp_path: Any) -> None:
    whole, first = learner(), task(loss=focal, score=Metric())
    stopped = learner()
    whole.learn(first)
    stopped.learn(first, on_epoch=lambda epoch: stopped.save(tmp_path / "mid") if epoch.epoch == 2 else None)
    resumed = load(tmp_path / "mid", net(), device="cpu")
    resumed.learn(first)
    assert torch.equal(resumed.predict(X, "t"), whole.predict(X, "t"))
    whole.save(tmp_path / "done")
    loaded = load(tmp_path / "done", net(), device="cpu")
    assert loaded.tasks[0].target.judged() == ("Metric", False, None)
    with pytest.raises(HatrackError, match="the Metric that the task was learned with is the user's own, and a saved"):
        loaded.evaluate(task(), "t")
    assert loaded.evaluate(first, "t") == whole.evaluate(first, "t")
    loaded.remember(first)
    assert loaded.evaluate(task(), "t") == whole.evaluate(first, "t")
    assert loaded.verify().ok


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": "mse"}, "task 't': loss must be a function"),
        ({"score": 3}, "task 't': score must be a function"),
        (
            {"target": "regression"},
            "task 't': target must be one of hatrack.targets or your own Target",
        ),
        ({"target": Classification(2), "classes": 2}, "task 't': give target or classes"),
        ({"weights": [1.0]}, r"task 't': weights must be 50 figures of 0 or more, .* got \(1,\)"),
        ({"weights": [1.0] * 49 + [-2.0]}, r"got -2 among them"),
        ({"weights": [0.0] * 50}, r"got none above 0"),
    ],
)
def test_what_cannot_be_is_refused_when_the_task_is_made(given: dict[str, Any], said: str) -> None:
    with pytest.raises(HatrackError, match=said):
        task(**given)


def fails(output: Tensor, y: Tensor) -> Tensor:
    raise ValueError("expected targets in one-hot form")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"loss": fails},
            "task 't': the loss of classification fails on answers of shape .* one-hot",
        ),
        (
            {"loss": lambda output, y: torch.zeros(())},
            "task 't': the loss of .* must be one figure that",
        ),
        ({"score": fails}, "task 't': the score 'fails' fails on answers of shape"),
        ({"score": lambda output, y: output}, "task 't': the score '<lambda>' fails on"),
    ],
)
def test_what_fails_is_refused_before_anything_is_trained(given: dict[str, Any], said: str) -> None:
    made, seen = learner(), list[Any]()
    with pytest.raises(HatrackError, match=said) as raised:
        made.learn(task(**given), on_epoch=seen.append)
    assert not seen
    assert "\n" not in str(raised.value)
    assert made.finished == 0
    made.learn(task())


def test_a_score_that_is_no_number_is_refused_with_the_task() -> None:
    with pytest.raises(HatrackError, match=r"task 't': the score 'lost' must be a finite figure, got nan"):
        learner().learn(task(score=Gathered(lambda output, y: float("nan"), "lost")))


# ---- a target of one's own


@dataclass(frozen=True)
class Ordered(Target):
    """Grades in order: how many of the thresholds are passed."""

    name: ClassVar[str] = "ordered"
    score_name: ClassVar[str] = "mean error of the grade"
    larger_is_better: ClassVar[bool] = False

    grades: int = 3

    @property
    def outputs(self) -> int:
        return self.grades - 1

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        passed = (y[:, None] > torch.arange(self.outputs, device=y.device)).to(output.dtype)
        return nn.functional.binary_cross_entropy_with_logits(output, passed)

    def new_score(self) -> Gathered:
        return Gathered(lambda output, y: ((output > 0).sum(1) - y).abs().double().mean())

    def decode(self, answer: Tensor) -> list[int]:
        found: list[int] = (answer > 0).sum(1).tolist()
        return found


GRADES = (X[:, 0] > -0.5).long() + (X[:, 0] > 0.5).long()


def test_a_target_of_ones_own_is_learned_kept_and_loaded(tmp_path: Any) -> None:
    made = learner(epochs=40)
    made.learn(task("grades", GRADES, target=Ordered()))
    made.learn(task("classes"))
    error = float(np.abs(np.array(made.decode(made.predict(X[70:], "grades"), "grades")) - GRADES[70:].numpy()).mean())
    assert made.matrix()[1][0] == made.matrix()[0][0] == pytest.approx(error)
    assert error < 0.9 * np.abs(1 - GRADES[70:].numpy()).mean()  # of answering the middle
    assert made.verify().ok
    made.save(tmp_path / "saved")
    loaded = load(tmp_path / "saved", net(), device="cpu")
    assert isinstance(loaded.tasks[0].target, Foreign)
    assert loaded.tasks[0].target.facts()["score"] == "mean error of the grade"
    assert loaded.verify().ok  # its fields are sealed too
    assert torch.equal(loaded.predict(X, "grades"), made.predict(X, "grades"))
    with pytest.raises(HatrackError, match=r"target 'ordered' is the user's own, .* learner\.remember"):
        loaded.decode(loaded.predict(X, "grades"), "grades")
    loaded.remember(task("grades", GRADES, target=Ordered()))
    assert loaded.decode(loaded.predict(X, "grades"), "grades") == made.decode(made.predict(X, "grades"), "grades")
    assert loaded.evaluate(task("grades", GRADES, target=Ordered()), "grades") == made.matrix()[1][0]


def own(**more: Any) -> Callable[[], Target]:
    return lambda: dataclass(frozen=True)(type("Own", (Target,), more))()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (own(name="regression", outputs=1), "task 't': Own calls itself 'regression', which is hatrack's own"),
        (own(name="own"), "task 't': target Own does not say how many outputs it has"),
        (own(outputs=1), "task 't': target Own must have a name and a whole number of outputs, got None and 1"),
        (own(name="own", outputs=1.5), "task 't': target Own must have a name and a whole number of outputs"),
        (
            own(name="own", outputs=1, __annotations__={"scale": object}, scale=frozenset()),
            "task 't': target 'own' has a field that a saved learner cannot hold",
        ),
    ],
)
def test_a_target_that_lacks_something_is_refused(made: Callable[[], Target], said: str) -> None:
    with pytest.raises(HatrackError, match=said):
        task(target=made())


def test_a_target_without_a_loss_or_a_score_is_refused_before_training() -> None:
    with pytest.raises(HatrackError, match="target 'own' has no loss"):
        learner().learn(task(target=own(name="own", outputs=2)()))
    made = task(target=own(name="own", outputs=2)(), loss=cross_entropy)
    with pytest.raises(HatrackError, match="target 'own' has no score"):
        learner().learn(made)


def test_methods_refuse_what_they_cannot_in_one_line() -> None:
    lwf, guessing = learner("lwf"), learner("random")
    for made, said in ((lwf, "compares old answers with new ones"), (guessing, "whose target is ordered")):
        with pytest.raises(HatrackError, match=f"cannot learn task 'grades'.*{said}"):
            made.learn(task("grades", GRADES, target=Ordered()))
        assert made.finished == 0


def test_the_public_names() -> None:
    assert set(targets.__all__) == {
        "Classification", "Dense", "Gathered", "MultiLabel", "Regression", "Score", "Target",
    }  # fmt: skip
