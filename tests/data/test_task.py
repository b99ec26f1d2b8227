from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.samples import Split
from hatrack.data.task import Task
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.targets import Classification

CPU = torch.device("cpu")
X = np.arange(24, dtype=np.float32).reshape(6, 4)
Y = [0, 1, 2, 0, 1, 2]


class Pairs(Dataset[Any]):
    """A map-style Dataset, with `targets` or without."""

    def __init__(self, targets: list[int] | None) -> None:
        if targets is not None:
            self.targets = targets

    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return X[row], Y[row]


@pytest.mark.parametrize("x", [X, X.tolist(), torch.from_numpy(X), X.astype(np.float64)])
@pytest.mark.parametrize("y", [Y, np.array(Y), torch.tensor(Y, dtype=torch.int32)])
def test_arrays_tensors_and_lists_make_the_same_task(x: Any, y: Any) -> None:
    task = Task("t", train=(x, y), test=(x, y))
    inputs, labels = task.train.on(torch.device("cpu"))
    assert inputs.dtype == torch.float32
    np.testing.assert_array_equal(inputs.numpy(), X)
    assert labels.tolist() == Y
    assert labels.dtype == torch.int64
    assert (task.classes, len(task.train), task.valid) == (3, 6, None)


def test_a_map_style_dataset_with_targets_needs_no_number_of_classes() -> None:
    task = Task("t", train=Pairs(Y))
    assert task.classes == 3
    assert not task.train.resident
    assert task.train.take(torch.tensor([4, 2])).dataset()[1][1] == 2
    np.testing.assert_array_equal(task.train.first(2).numpy(), X[:2])


def test_targets_that_are_words_are_refused() -> None:
    with pytest.raises(HatrackError, match="task 'a', train: targets must be numbers"):
        Task("a", train=Pairs(["cat", "dog"]))  # type: ignore[list-item]


def test_a_map_style_dataset_without_targets_needs_the_number_of_classes() -> None:
    with pytest.raises(HatrackError, match="classes=N"):
        Task("t", train=Pairs(None))
    assert Task("t", train=Pairs(None), classes=3).train.labels is None


class Rows(Dataset[Any]):
    """Gives what it was made with as its only sample."""

    def __init__(self, sample: Any) -> None:
        self.sample = sample

    def __len__(self) -> int:
        return 1

    def __getitem__(self, row: int) -> Any:
        return self.sample


@pytest.mark.parametrize("x", [X[0].astype(np.float64), X[0].tolist(), list(X[0].astype(np.float64))])
def test_samples_of_a_dataset_are_read_as_arrays_are(x: Any) -> None:
    split = Task("t", train=Rows((x, 1)), classes=2).train
    [batch] = Feed([Part(0, split, Inputs(), Classification(2))], CPU).batches(1)
    assert (split.first(1).dtype, batch.x.dtype) == (torch.float32, torch.float32)
    assert torch.equal(batch.x, split.first(1))


def test_float64_is_a_choice_where_a_tensor_has_it() -> None:
    x = torch.zeros(6, 4, dtype=torch.float64)
    assert Task("t", (x, Y)).train.first(1).dtype == torch.float64
    assert Task("t", TensorDataset(x, torch.tensor(Y)), classes=3).train.first(1).dtype == torch.float64


@pytest.mark.parametrize(
    ("sample", "got"),
    [
        ({"image": X[0], "label": 1}, "dict"),
        ({0: 1.0, 1: 2}, "dict"),
        ((torch.zeros(2), 1, 5), r"\(Tensor of torch\.float32, int, int\)"),
        ((torch.zeros(2), "cat"), r"\(Tensor of torch\.float32, str\)"),
        (torch.zeros(2), "Tensor"),
    ],
)
def test_a_sample_that_is_no_pair_of_input_and_label_is_named(sample: Any, got: str) -> None:
    with pytest.raises(HatrackError, match=rf"must give samples \(input, target\): .* got {got}: wrap"):
        Task("t", train=Rows(sample), classes=2).train.first(1)


def test_a_dataset_without_a_length_is_refused() -> None:
    class Endless(Dataset[Any]):
        def __getitem__(self, row: int) -> Any:
            return X[0], 0

    with pytest.raises(HatrackError, match="task 't', train: a Dataset without a length was given; give it __len__"):
        Task("t", train=Endless(), classes=2)


def test_about_is_json_and_holds_counts_normalisation_and_what_was_given() -> None:
    inputs = Inputs((0.5,), (0.25,), (1, 0, 3, 2))
    task = Task("t", (X, Y), test=(X[:3], Y[:3]), inputs=inputs, about={"set": "toy", "notes": ["made up"]})
    assert json.loads(json.dumps(task.about)) == {
        "classes": 3,
        "train": 6,
        "test": 3,
        "mean": [0.5],
        "std": [0.25],
        "permuted": True,
        "set": "toy",
        "notes": ["made up"],
    }
    assert Task("t", (X, Y)).about["mean"] is None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("as_tensor", [True, False])
def test_an_input_that_is_not_finite_is_named_with_its_row(bad: float, as_tensor: bool) -> None:
    x = X.copy()
    x[4, 1] = bad
    with pytest.raises(HatrackError, match="row 4 is not finite"):
        Task("t", (torch.from_numpy(x) if as_tensor else x, Y))


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ((X, Y[:5]), "6 inputs but 5 labels"),
        ((X, [0.0] * 6), "labels must be one integer a sample"),
        ((X, [Y] * 6), "labels must be one integer a sample"),
        ((X, 3), "labels must be one integer a sample"),
        ((X, ["cat", "dog"] * 3), "labels must be numbers .* got list"),
        ((X, np.array(["cat", "dog"] * 3)), "labels must be numbers .* got <U3"),
        (([["a"]] * 6, Y), "inputs must be numbers .* got list"),
        ((np.array([["a"]] * 6), Y), "inputs must be numbers .* got <U1"),
        ((np.zeros((0, 4)), []), "it holds no sample"),
        (([], []), "it holds no sample"),
        (X, "expected \\(inputs, labels\\)"),
        ((X, [0, 1, -1, 0, 1, 1]), "label -1 in row 2 of train"),
        ((X[:0], []), "holds no sample|labels must be"),
    ],
)
def test_what_is_no_task_is_refused(train: Any, words: str) -> None:
    with pytest.raises(HatrackError, match=words):
        Task("t", train)


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_task_needs_a_name(name: Any) -> None:
    with pytest.raises(HatrackError, match=f"name must be a text that is not empty, got {name!r}"):
        Task(name, (X, Y))


@pytest.mark.parametrize(("labels", "said"), [([5, 6, 5, 6, 5, 6], "5, 6,"), ([3, 4, 5, 6, 7, 8], "3, 4, 5, 6, 7, …,")])
@pytest.mark.parametrize("as_dataset", [False, True])
def test_labels_that_do_not_count_from_0_are_told(labels: list[int], said: str, as_dataset: bool) -> None:
    given = Pairs(labels) if as_dataset else (X, labels)
    with pytest.warns(HatrackWarning, match=f"'t' has labels {said} so that its head gets {max(labels) + 1} outputs"):
        task = Task("t", given)
    assert task.classes == max(labels) + 1
    assert Task("t", given, classes=9).classes == 9  # asked for: no word


def test_a_class_without_samples_between_others_is_not_told() -> None:
    assert Task("t", (X, [0, 1, 3, 0, 1, 3])).classes == 4


def test_preparation_scales_normalises_and_permutes_as_numpy_does() -> None:
    x = np.random.default_rng(0).integers(0, 256, (5, 3, 2, 2)).astype(np.uint8)
    mean, std, order = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), np.random.default_rng(1).permutation(12)
    prepare = Inputs(mean, std, tuple(order.tolist())).on(torch.device("cpu"))
    wanted = (x / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    wanted = wanted.reshape(5, -1)[:, order].reshape(x.shape)
    np.testing.assert_allclose(prepare(torch.from_numpy(x)).numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("as_dataset", [False, True])
def test_bytes_and_floats_that_are_learned_together_are_prepared_as_they_are_alone(as_dataset: bool) -> None:
    pictures = torch.randint(256, (6, 1, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    numbers = torch.rand(5, 1, 2, 2)
    parts = []
    for number, x in enumerate((pictures, numbers)):
        y = torch.zeros(len(x), dtype=torch.long)
        split = Split(TensorDataset(x, y), y) if as_dataset else Split(x, y)
        parts.append(Part(number, split, Inputs(), Classification(1)))
    [batch] = Feed(parts, torch.device("cpu")).batches(11)
    assert torch.equal(batch.x, torch.cat([pictures.float() / 255, numbers]))


def test_inputs_need_mean_and_std_of_one_length() -> None:
    with pytest.raises(HatrackError, match="same length"):
        Inputs((0.5,), (0.1, 0.2))


def test_a_split_takes_rows_of_rows_without_copying() -> None:
    split = Split(X, torch.tensor(Y), torch.tensor([5, 3, 1]))
    again = split.take(torch.tensor([2, 0]))
    x, y = again.on(torch.device("cpu"))
    np.testing.assert_array_equal(x.numpy(), X[[1, 5]])
    assert y.tolist() == [1, 2]
    assert len(again) == 2


@pytest.mark.parametrize("classes", ["2", 2.0, 0, -1])
def test_the_number_of_classes_is_a_whole_number(classes: Any) -> None:
    with pytest.raises(HatrackError, match="classes must be a whole number, 1 or more, got"):
        Task("t", (X, Y), classes=classes)


def test_labels_of_a_dataset_are_whole_numbers_too() -> None:
    data = TensorDataset(torch.randn(6, 2), torch.rand(6) * 2)
    task = Task("t", data, classes=2)
    with pytest.raises(HatrackError, match=r"labels must be one integer a sample, got \(6,\) torch\.float32"):
        list(Feed([Part(0, task.train, Inputs(), task.target)], CPU).batches(6))
    data.targets = torch.rand(6)
    with pytest.raises(HatrackError, match="labels must be one integer a sample"):
        Task("t", data)
