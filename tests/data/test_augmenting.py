"""What `augment=` may be: whose it is decides how it is called, and where nothing says it, what fits."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import HatrackError, Task
from hatrack.data.augmenting import Own, augmentation, each
from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.samples import Split
from hatrack.targets import Classification, Dense, MultiLabel, Regression

CPU = torch.device("cpu")
X, Y = torch.randint(256, (10, 3, 8, 8), dtype=torch.uint8), torch.arange(10) % 2


def settled(given: Any, x: Any = None, y: Tensor = Y) -> Own:
    made = augmentation(given, "task 't'")
    assert isinstance(made, Own)
    made.settle(X.float() / 255 if x is None else x, y)
    return made


class Counting:
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []


class Transform(Counting, nn.Module):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        Counting.__init__(self)

    def forward(self, *inputs: Any) -> Any:
        self.shapes.append(tuple(inputs[0].shape))
        return inputs[0]


Transform.__module__ = "torchvision.transforms.v2"


class Albumentation(Counting):
    def __call__(self, *args: Any, image: Any) -> dict[str, Any]:
        assert not args
        assert isinstance(image, np.ndarray)
        self.shapes.append(image.shape)
        return {"image": image[:, ::-1]}


Albumentation.__module__ = "albumentations.core.composition"


class Kornia(nn.Module):
    def forward(self, x: Tensor, params: Any = None) -> Tensor:
        assert x.ndim == 4
        return x


Kornia.__module__ = "kornia.augmentation"


def test_a_torchvision_transform_gets_one_sample_at_a_time() -> None:
    transform = Transform()
    settled(transform)
    settled(nn.Sequential(transform))
    assert set(transform.shapes) == {(3, 8, 8)}


def test_a_kornia_module_gets_the_batch() -> None:
    assert settled(Kornia()).way == "batch"


def test_an_albumentation_gets_one_picture_as_an_array_with_channels_last() -> None:
    transform = Albumentation()
    own = settled(transform)
    assert set(transform.shapes) == {(8, 8, 3)}
    x = torch.rand(4, 3, 8, 8)
    assert torch.equal(own(x, Y[:4])[0], x.flip(-1))
    grey = torch.rand(4, 1, 8, 8)
    assert torch.equal(own(grey, Y[:4])[0], grey.flip(-1))


def test_a_function_gets_what_fits() -> None:
    seen: list[tuple[int, ...]] = []

    def of_batch(x: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        return x + 1

    def of_sample(x: Tensor) -> Tensor:
        assert x.ndim == 3
        return x + 1

    def shrinks(x: Tensor) -> Tensor:  # of a sample: of a batch it would give another number of samples
        return x[[0]]

    assert settled(of_batch).way == "batch"
    assert set(seen) == {(10, 3, 8, 8)}
    assert settled(of_sample).way == "sample"
    assert settled(shrinks).way == "sample"
    assert settled(each(lambda x: x.clone())).way == "sample"
    assert settled(lambda x, y: (x, y)).way == "batch"
    alone = settled(of_sample, X[:1].float(), Y[:1])
    assert alone.way == "sample"


def test_a_function_of_two_gets_the_targets_and_returns_both() -> None:
    own = settled(lambda x, y: (x.flip(-1), 1 - y))
    x = torch.rand(4, 3, 2, 2)
    made, y = own(x, torch.tensor([0, 1, 1, 0]))
    assert torch.equal(made, x.flip(-1))
    assert y.tolist() == [1, 0, 0, 1]
    of_one = settled(each(lambda x, y: (x, y + 1)))
    assert of_one(x, torch.arange(4))[1].tolist() == [1, 2, 3, 4]


def test_tuples_and_dicts_go_through_as_they_are() -> None:
    own = settled(lambda x: {**x, "a": x["a"] + 1}, {"a": torch.zeros(10, 2), "b": torch.ones(10, 1)})
    made = own({"a": torch.zeros(3, 2), "b": torch.ones(3, 1)}, Y[:3])[0]
    assert float(made["a"].sum()) == 6
    pair = settled(each(lambda x: (x[0] * 2, x[1])), (torch.ones(10, 2), torch.ones(10, 1)))
    assert float(pair((torch.ones(3, 2), torch.ones(3, 1)), Y[:3])[0][0].sum()) == 12


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), lambda: float(np.random.rand()), random.random])
def test_numbers_from_anywhere_come_from_the_stream(draw: Callable[[], float]) -> None:
    own = settled(lambda x: x * 0 + draw())
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        random.seed()
        np.random.seed()
        before = np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[union-attr]
        found.append([float(own(torch.zeros(2, 1), Y[:2])[0][0]) for _ in range(3)])
        assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # type: ignore[union-attr]
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


def feed(augment: Any, *, training: bool = True, parts: int = 1, target: Any = None, x: Any = X, y: Tensor = Y) -> Feed:
    made = None if augment is None else augmentation(augment, "task 't'")
    if isinstance(made, Own):
        made.way = "batch"
    inputs = Inputs((0.5,), (0.25,))
    each_part = [Part(t, Split(x, y), inputs, target or Classification(2), made) for t in range(parts)]
    return Feed(each_part, CPU, training=training)


def test_only_the_batches_of_a_training_epoch_are_augmented() -> None:
    plain, marked = feed(None), feed(lambda x: x * 0 + 0.75)
    for a, b in zip(plain.batches(4), marked.batches(4), strict=True):
        assert torch.equal(a.x, b.x)
    for batch in marked.batches(4, torch.Generator()):  # after (x − 0.5)/0.25: before normalising
        torch.testing.assert_close(batch.x, torch.ones_like(batch.x))


def test_bytes_come_as_numbers_from_0_to_1_and_ids_stay_whole() -> None:
    seen: list[Tensor] = []

    def look(x: Tensor) -> Tensor:
        seen.append(x)
        return x

    list(feed(look).batches(10, torch.Generator()))
    assert seen[0].dtype == torch.float32
    assert float(seen[0].max()) <= 1
    made = augmentation(look, "t")
    assert isinstance(made, Own)
    made.way = "batch"
    part = Part(0, Split(X, Y), Inputs(ids=True), Classification(2), made)
    list(Feed([part], CPU).batches(10, torch.Generator()))
    assert seen[-1].dtype == torch.long


def test_the_same_augmentation_of_several_tasks_goes_over_the_whole_batch() -> None:
    together = feed("crop,flip", parts=2)
    assert together.recordable
    assert sum(len(b.y) for b in together.batches(8, torch.Generator())) == 20
    assert not feed("mixup", parts=2).recordable
    assert not feed(lambda x: x).recordable
    assert feed("mixup").recordable
    assert feed(None).recordable


def test_of_several_tasks_each_is_augmented_in_its_own_way() -> None:
    inputs, halves = Inputs(), (torch.zeros(10, 2), torch.zeros(10, 2))

    def to(value: float) -> Own:
        made = augmentation(lambda x: x * 0 + value, "t")
        assert isinstance(made, Own)
        made.way = "batch"
        return made

    parts = [
        Part(3, Split(halves[0], Y), inputs, Classification(2), to(1)),
        Part(5, Split(halves[1], Y), inputs, Classification(2), None),
        Part(6, Split(halves[1].clone(), Y), inputs, Classification(2), to(2)),
    ]
    wanted = {3: 1.0, 5: 0.0, 6: 2.0}
    for batch in Feed(parts, CPU, training=True).batches(7, torch.Generator()):
        assert batch.source is not None
        assert batch.x[:, 0].tolist() == [wanted[int(t)] for t in batch.source]


def test_mixup_mixes_only_within_a_task_and_softens_targets_of_different_widths() -> None:
    one, two = torch.zeros(9, 1, 2, 2), torch.ones(9, 1, 2, 2)
    mixup = augmentation("mixup", "t")
    parts = [
        Part(0, Split(one, torch.arange(9) % 3), Inputs(), Classification(3), mixup),
        Part(1, Split(two, torch.arange(9) % 2), Inputs(), Classification(2), mixup),
    ]
    mixed = 0
    for batch in Feed(parts, CPU, training=True).batches(6, torch.Generator()):
        assert batch.source is not None
        assert torch.equal(batch.x[:, 0, 0, 0], batch.source.float())
        for task, width in ((0, 3), (1, 2)):
            _, y, _ = batch.of(task)
            assert y.shape[1:] == (width,)
            torch.testing.assert_close(y.sum(1), torch.ones(len(y)))
            mixed += int(((y > 0) & (y < 1)).any())
    assert mixed


@pytest.mark.parametrize("given", ["crop,flip", lambda x: x + torch.rand(())])
def test_the_same_seed_gives_the_same_epoch(given: Any) -> None:
    def run() -> list[Tensor]:
        torch.manual_seed(5)
        return [b.x for b in feed(given).batches(4, torch.Generator().manual_seed(1))]

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))


TABLE = (torch.zeros(6, 4), torch.arange(6) % 2)
PICTURES = (X[:6], Y[:6])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Task("t", PICTURES, augment="crop,flop"),
            r"augmentation of task 't' 'flop'; did you mean 'flip'",
        ),
        (lambda: Task("t", PICTURES, augment="crop,crop"), r"task 't': augment names one twice: 'crop,crop'"),
        (lambda: Task("t", PICTURES, augment=3), r"task 't': augment must be names .* or a function .* got 3"),
        (
            lambda: Task("t", TABLE, augment="flip"),
            r"task 't': augment flip is for pictures .* got \(4,\) torch",
        ),
        (
            lambda: Task("t", (X[:6].float(), Y[:6]), augment="flip,colour"),
            r"task 't': augment colour needs bytes, or floats from 0 to 1, got floats from",
        ),
        (
            lambda: Task("t", PICTURES, augment="mixup", weights=torch.ones(6)),
            r"task 't': mixup makes one sample of two, which have a weight each",
        ),
        (
            lambda: Task("t", (X[:6], torch.zeros(6, 8, 8).long()), target=Dense(2), augment="mixup"),
            r"task 't': target 'dense' has no mean of two samples' targets, which mixup needs",
        ),
        (
            lambda: Task("t", (X[:6], torch.zeros(6, 8, 8).long()), target=Dense(2), augment="cutout,flip"),
            r"task 't': flip moves pixels and would leave their labels \(dense\) where they are; .* function of inputs",
        ),
        (
            lambda: hatrack.tasks("split-digits", augment="flop"),
            r"unknown augmentation of benchmark 'split-digits' 'flop'",
        ),
    ],
)
def test_what_cannot_be_augmented_is_refused_in_one_line(make: Callable[[], object], words: str) -> None:
    with pytest.raises(HatrackError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_a_function_that_fails_or_returns_something_else_is_named() -> None:
    for wrong in (lambda x: 1 / 0, lambda x: x.sum(), lambda x: (x, x), lambda x: x[None]):
        with pytest.raises(HatrackError, match=r"augment <lambda> does not work on a batch of \(3, 8, 8\)"):
            settled(wrong)


def test_about_says_it() -> None:
    assert Task("t", PICTURES, augment="crop, flip").about["augment"] == "crop,flip"
    assert Task("t", PICTURES, augment=each(abs)).about["augment"] == "abs"
    assert "augment" not in Task("t", PICTURES).about
    first = hatrack.tasks("split-digits", augment="crop,flip", train_per_class=9)[0]
    assert first.about["augment"] == "crop,flip"
    assert len(first.train) == 18


@pytest.mark.parametrize("target", [Regression(), MultiLabel()])
def test_targets_that_have_a_mean_are_mixed(target: Any) -> None:
    y = torch.rand(6, 2) if isinstance(target, Regression) else (torch.rand(6, 2) < 0.5)
    task = Task("t", (X[:6], y), target=target, augment="mixup")
    part = Part(0, task.train, task.inputs, task.target, task.augment)
    (batch,) = Feed([part], CPU, training=True).batches(6, torch.Generator())
    assert batch.y.dtype == torch.float32
    assert float(task.target.trained(torch.zeros(6, 2), batch.y)) > 0


def test_a_namespace_is_no_augmentation() -> None:
    with pytest.raises(HatrackError, match="augment must be"):
        augmentation(SimpleNamespace(), "task 't'")
