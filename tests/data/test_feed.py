from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.samples import Split
from hatrack.errors import HatrackError
from hatrack.targets import Classification


@pytest.mark.parametrize("size", [1, 6])
def test_labels_that_only_reading_a_dataset_shows_are_held_against_their_own_task(size: int) -> None:
    split = Split(TensorDataset(torch.zeros(3, 2), torch.tensor([0, 1, 3])), None)
    right, wrong = Part(4, split, Inputs(), Classification(4)), Part(7, split, Inputs(), Classification(2))
    device = torch.device("cpu")
    assert sum(len(batch.y) for batch in Feed([right], device).batches(size)) == 3
    with pytest.raises(HatrackError, match=r"label 3 in the Dataset of task number 7 is outside 0\.\.1;"):
        list(Feed([right, wrong], device).batches(size))


def test_a_negative_label_is_no_label() -> None:
    split = Split(TensorDataset(torch.zeros(2, 2), torch.tensor([0, -1])), None)
    with pytest.raises(HatrackError, match=r"label -1 in the Dataset of task number 0 is outside 0\.\.1;"):
        Feed([Part(0, split, Inputs(), Classification(2))], torch.device("cpu")).labels()
