"""The examples of docs/targets.md, on real data: each beats guessing clearly with HAT, and no later task changes it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits, make_friedman1
from torch import Tensor, nn

from hatrack import HAT, Learner, Task
from hatrack.targets import Dense, MultiLabel, Regression


def parts(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return 60 % to train, 20 % to validate and 20 % to test, in an order by chance."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    marks = (int(0.6 * len(x)), int(0.8 * len(x)))
    return [(x[rows], y[rows]) for rows in order.tensor_split(marks)]


def taught(net: nn.Module, tasks: Sequence[Task], epochs: int, **settings: float) -> Learner:
    """Have tasks learned; whatever the later ones do, answers to the first stay as they were, bit for bit."""
    torch.manual_seed(0)
    for module in net.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    learner = Learner(net, HAT(**settings), epochs=epochs, batch_size=16, device="cpu", seed=0)
    x = tasks[0].train.first(20)
    learner.learn(tasks[0])
    before = learner.predict(x, 0).clone()
    for task in tasks[1:]:
        learner.learn(task)
    assert torch.equal(learner.predict(x, 0), before)
    assert learner.verify().ok
    assert learner.matrix()[-1][0] == learner.matrix()[0][0]
    return learner


def test_figures_of_patients_and_of_a_tabular_set() -> None:
    patients, progress = load_diabetes(return_X_y=True)
    table, figure = make_friedman1(400, noise=1.0, random_state=0)
    standard = (table - table.mean(0)) / table.std(0)
    tasks = [
        Task("diabetes", *parts(torch.tensor(patients * 21).float(), torch.tensor(progress)), target=Regression()),
        Task("friedman", *parts(torch.tensor(standard).float(), torch.tensor(figure)), target=Regression()),
    ]
    net = nn.Sequential(nn.Linear(10, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
    learner = taught(net, tasks, epochs=40, lr=0.02)
    diabetes, friedman = learner.matrix()[1]
    assert diabetes is not None
    assert friedman is not None
    assert diabetes > 0.3  # a linear model reaches 0.4 to 0.5; guessing 0
    assert friedman > 0.6
    # answers are in the unit of the targets: 25 to 346
    assert 100 < float(learner.predict(tasks[0].train.first(50), "diabetes").mean()) < 200


HOLES, EVEN, LARGE, PRIME, THREES = {0, 4, 6, 8, 9}, {0, 2, 4, 6, 8}, {5, 6, 7, 8, 9}, {2, 3, 5, 7}, {0, 3, 6, 9}


def has(y: np.ndarray, *sets: set[int]) -> Tensor:
    return torch.tensor([[float(digit in chosen) for chosen in sets] for digit in y.tolist()])


def test_several_labels_of_a_digit() -> None:
    pictures, y = load_digits(return_X_y=True)
    x = torch.tensor(pictures[:700] / 16).float()
    names = (["has a hole", "even", "above 4"], ["prime", "a multiple of 3"])
    tasks = [
        Task("shape", *parts(x, has(y[:700], HOLES, EVEN, LARGE)), target=MultiLabel(names=names[0])),
        Task("number", *parts(x, has(y[:700], PRIME, THREES)), target=MultiLabel(names=names[1])),
    ]
    learner = taught(
        nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU()), tasks, epochs=40, lr=0.1
    )
    for task, reached in zip(tasks, learner.matrix()[1], strict=True):
        assert reached is not None
        assert reached > 0.85 > 0.6 > (task.target.guess() or 0)
    assert tasks[0].test is not None
    pictured, told = tasks[0].test.on(torch.device("cpu"))
    found = learner.decode(learner.predict(pictured, "shape"), "shape")
    right = [
        (name in labels) == bool(there)
        for labels, row in zip(found, told, strict=True)
        for name, there in zip(names[0], row, strict=True)
    ]
    assert np.mean(right) > 0.75


def scenes(digits: Sequence[int], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return pictures of 16 × 24 with two real digits in each, and the class of every pixel: 0 is the background."""
    pictures, labels = load_digits(return_X_y=True)
    draw = np.random.default_rng(seed)
    x, y = np.zeros((count, 1, 16, 24), np.float32), np.zeros((count, 16, 24), np.int64)
    for scene in range(count):
        for left in (0, 12):
            digit = int(draw.choice(digits))
            ink = pictures[draw.choice(np.flatnonzero(labels == digit))].reshape(8, 8) / 16
            top, across = int(draw.integers(0, 9)), left + int(draw.integers(0, 5))
            x[scene, 0, top : top + 8, across : across + 8] = ink
            y[scene, top : top + 8, across : across + 8] = np.where(ink > 0.3, 1 + digits.index(digit), 0)
    x += draw.normal(scale=0.05, size=x.shape)
    return torch.tensor(x), torch.tensor(y)


def test_digits_are_found_in_scenes_pixel_by_pixel() -> None:
    tasks = [
        Task(f"digits {a} and {b}", *parts(*scenes([a, b], 120, seed=a)), target=found)
        for a, b in ((0, 1), (4, 7))
        for found in [Dense(names=["none", str(a), str(b)], weights=[0.3, 1, 1])]  # most pixels are background
    ]
    first, second = nn.Conv2d(1, 24, 5, padding=2), nn.Conv2d(24, 24, 5, padding=4, dilation=2)
    learner = taught(nn.Sequential(first, nn.ReLU(), second, nn.ReLU()), tasks, epochs=25, lr=0.5, c=0.1, s_max=50)
    for task, reached in zip(tasks, learner.matrix()[1], strict=True):
        assert task.test is not None
        y = task.test.on(torch.device("cpu"))[1]
        nothing = float((y == 0).float().mean()) / 3  # of answering the background everywhere
        assert reached is not None
        assert reached > 0.6 > 1.5 * max(nothing, task.target.guess() or 0)


WORDS = {
    "DET": "the a this every".split(),
    "ADJ": "old small light cold open".split(),
    "NOUN": "light dog play work door cold watch man".split(),
    "VERB": "light play work open watch see".split(),
    "PRON": "they we you".split(),
    "ADV": "often now slowly".split(),
}
TAGS = list(WORDS)
VOCABULARY = ["", *sorted({word for words in WORDS.values() for word in words})]
FORMS = ["DET NOUN", "DET ADJ NOUN", "PRON"]


def sentences(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return word numbers, parts of speech, and whether a word is inside a noun phrase; padded with −100.

    Many words are of two kinds: in "they light the light" only the neighbours tell.
    """
    draw = random.Random(0)
    words, tags, inside = torch.zeros(count, 9).long(), torch.full((count, 9), -100), torch.full((count, 9), -100)
    for row in range(count):
        subject, thing = (draw.choice(FORMS).split() for _ in range(2))
        kinds = [*subject, *(["ADV"] if draw.random() < 0.4 else []), "VERB", *thing]
        for place, kind in enumerate(kinds):
            words[row, place] = VOCABULARY.index(draw.choice(WORDS[kind]))
            tags[row, place] = TAGS.index(kind)
            inside[row, place] = int(kind in ("DET", "ADJ", "NOUN", "PRON"))
    return words, tags, inside


class Tagger(nn.Module):
    """Words, their neighbours on both sides: features (batch, words, units)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(VOCABULARY), 32)
        self.around = nn.Conv1d(32, 48, 3, padding=1)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.relu(self.around(self.words(ids).movedim(2, 1))).movedim(1, 2)


def test_short_texts_are_tagged_word_by_word() -> None:
    words, tags, inside = sentences(300)
    tasks = [
        Task("parts of speech", *parts(words, tags), target=Dense(names=TAGS)),
        Task("noun phrases", *parts(words, inside), target=Dense(names=["outside", "inside"])),
    ]
    learner = taught(Tagger(), tasks, epochs=25, lr=0.2)
    speech, phrases = learner.matrix()[1]
    assert speech is not None
    assert phrases is not None
    assert speech > 0.9  # the most frequent part of every word is right less often
    assert phrases > 0.9
    ids = torch.tensor([[VOCABULARY.index(word) for word in "they light the light".split()] + [0] * 5])
    found = learner.decode(learner.predict(ids, "parts of speech"), "parts of speech")[0][:4]
    assert found == ["PRON", "VERB", "DET", "NOUN"]
