from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hatrack.data.image_set import load
from hatrack.data.samples import Split
from hatrack.data.sets import SETS
from hatrack.errors import HatrackError

from .make import entries, pixels, write_set


def test_a_named_set_holds_its_pictures_labels_names_and_normalisation(data: Path) -> None:
    write_set(data, "mnist", train=3, test=2)
    mnist = load("mnist", data)
    assert mnist.x.shape == (50, 1, 28, 28)
    np.testing.assert_array_equal(mnist.x[mnist.train], [pixels(row, row % 10, (1, 28, 28)) for row in range(30)])
    np.testing.assert_array_equal(mnist.x[mnist.test], [pixels(row, row % 10, (1, 28, 28)) for row in range(20)])
    np.testing.assert_array_equal(mnist.y, np.tile(np.arange(10), 5))
    assert mnist.names[3] == "mnist 3"
    assert (mnist.inputs.mean, mnist.inputs.std) == ((0.1307,), (0.3081,))


def test_padded_pictures_have_their_own_normalisation_and_cache_entry(data: Path, own_cache: Path) -> None:
    write_set(data, "mnist", train=1, test=1)
    padded, plain = load("mnist", data, side=32), load("mnist", data)
    np.testing.assert_array_equal(padded.x, np.pad(plain.x, ((0, 0), (0, 0), (2, 2), (2, 2))))
    assert (padded.inputs.mean, padded.inputs.std) == ((0.1,), (0.2752,))
    assert len(entries(own_cache)) == 2


def test_three_channels_of_a_grey_set_cost_no_memory_and_arrive_contiguous(data: Path) -> None:
    write_set(data, "mnist", train=1, test=1)
    grey = load("mnist", data, side=32)
    colour = grey.rgb()
    assert colour.shape == (3, 32, 32)
    assert np.shares_memory(colour.x, grey.x)
    split = Split(colour.x, torch.from_numpy(colour.y), torch.tensor([3, 1]))
    x, y = split.on(torch.device("cpu"))
    assert x.is_contiguous()
    np.testing.assert_array_equal(x.numpy(), np.repeat(grey.x[[3, 1]], 3, axis=1))
    assert y.tolist() == [3, 1]
    assert load("mnist", data).rgb().rgb().shape == (3, 28, 28)


def test_a_changed_file_is_decoded_again(data: Path) -> None:
    write_set(data, "mnist", train=1, test=1)
    assert len(load("mnist", data).train) == 10
    write_set(data, "mnist", train=2, test=1)
    assert len(load("mnist", data).train) == 20


def test_a_side_that_cannot_be_reached_is_refused(data: Path) -> None:
    for side in (20, 31):
        with pytest.raises(HatrackError, match=f"mnist: pictures of 28×28 cannot be padded to {side}×{side}"):
            load("mnist", data, side=side)


def test_the_embedded_digits_are_a_set_like_any_other() -> None:
    digits = load("digits")
    assert digits.shape == (1, 8, 8)
    assert len(digits.train) + len(digits.test) == 1797
    assert load("digits", side=32).shape == (1, 32, 32)


def test_an_unknown_set_names_the_nearest() -> None:
    with pytest.raises(HatrackError, match="did you mean 'cifar100'"):
        load("cifar-100")


@pytest.mark.parametrize("name", sorted(SETS))
def test_the_table_of_sets_is_consistent(name: str) -> None:
    spec = SETS[name]
    assert spec.name == name
    assert len(spec.mean) == len(spec.std) == spec.shape[0]
    assert (spec.shape[1] == 28) == (spec.padded is not None)
    assert all(0 <= m <= 1 and 0 < s <= 1 for m, s in zip(spec.mean, spec.std, strict=True))
