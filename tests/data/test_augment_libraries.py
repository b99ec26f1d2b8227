"""The libraries' own transforms, as they are; skipped where they are not installed."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from hatrack import HAT, Learner, Task
from hatrack.data.augmenting import Own, augmentation

TRANSFORMS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "v2": (
        "torchvision.transforms.v2",
        "sample",
        lambda v2: v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(16, padding=4), v2.ColorJitter(0.2)]),
    ),
    "one of v2": ("torchvision.transforms.v2", "sample", lambda v2: v2.RandomHorizontalFlip()),
    "in a Sequential": (
        "torchvision.transforms.v2",
        "sample",
        lambda v2: torch.nn.Sequential(v2.RandomHorizontalFlip()),
    ),
    "v1": ("torchvision.transforms", "sample", lambda v1: v1.Compose([v1.RandomHorizontalFlip()])),
    "albumentations": (
        "albumentations",
        "picture",
        lambda a: a.Compose([a.HorizontalFlip(p=0.5), a.RandomBrightnessContrast(p=1)]),
    ),
    "to a tensor": ("albumentations", "picture", lambda a: a.Compose([a.HorizontalFlip(p=0.5), a.ToTensorV2()])),
    "one of albumentations": ("albumentations", "picture", lambda a: a.HorizontalFlip(p=0.5)),
    "kornia": (
        "kornia.augmentation",
        "batch",
        lambda k: k.AugmentationSequential(k.RandomHorizontalFlip(), k.ColorJitter(0.2, 0.2, 0.2, p=1.0)),
    ),
    "one of kornia": ("kornia.augmentation", "batch", lambda k: k.RandomHorizontalFlip()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_works_as_it_is(name: str) -> None:
    module, way, make = TRANSFORMS[name]
    pytest.importorskip(module.partition(".")[0])
    transform = make(import_module(module))
    x, y = torch.randint(256, (40, 3, 16, 16), dtype=torch.uint8), torch.arange(40) % 2
    own = augmentation(transform, "task 't'")
    assert isinstance(own, Own)
    pictures = x.float() / 255
    own.settle(pictures, y)
    assert own.way == way
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        random.seed()
        np.random.seed()
        found.append([own(pictures, y)[0] for _ in range(2)])
    (first, second), again = found
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert not torch.equal(first, second)
    changed = (first - pictures).abs().flatten(1).amax(1) > 1e-4
    assert changed.any()  # each for itself: where it flips alone, some stay as they are
    assert "one" not in name or not changed.all()
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 8), torch.nn.ReLU())
    learner = Learner(net, HAT(), epochs=1, device="cpu")
    learner.learn(Task("t", (x, y), augment=transform))
    assert learner.verify().ok
