"""Samples that are no single tensor, outputs that are not either, and lengths and sizes that vary: from end to end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.methods import METHODS
from hatrack.tree import at, mapped

NAMES = ("hat", "ewc", "sgd")
WORDS, WIDTH = 20, 12


class Output(OrderedDict[str, Tensor]):
    """What transformers returns: a dict that also has attributes and places."""

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: Any) -> Any:
        return tuple(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


class Encoder(nn.Module):
    """Token ids and a mask of what is no padding → an Output of states and a pooled state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.first, self.second = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Output:
        states = torch.relu(self.second(torch.relu(self.first(self.embed(input_ids)))))
        states = states * attention_mask[..., None].to(states.dtype)
        return Output(last_hidden_state=states, pooler_output=states.mean(1))


class Two(nn.Module):
    """Two inputs → what `out` makes of the features."""

    def __init__(self, out: Callable[[Tensor], Any] = lambda h: h) -> None:
        super().__init__()
        self.left, self.right, self.joined = nn.Linear(3, 8), nn.Linear(2, 8), nn.Linear(16, 10)
        self.out = out

    def forward(self, a: Tensor, b: Tensor) -> Any:
        return self.out(torch.relu(self.joined(torch.relu(torch.cat([self.left(a), self.right(b)], 1)))))


def mean_of_words(output: Output, given: dict[str, Tensor]) -> Tensor:
    mask = given["attention_mask"][..., None].float()
    return (output.last_hidden_state * mask).sum(1) / mask.sum(1)


def one() -> Tensor:
    return torch.randn(60, 5)


def pair() -> tuple[Tensor, Tensor]:
    return torch.randn(60, 3), torch.randn(60, 2)


def named() -> dict[str, Tensor]:
    return dict(zip("ab", pair(), strict=True))


def texts(length: int = 6, dtype: torch.dtype = torch.long) -> dict[str, Tensor]:
    lengths = torch.randint(2, length + 1, (60, 1))
    mask = (torch.arange(length) < lengths).long()
    return {"input_ids": (torch.randint(1, WORDS, (60, length)) * mask).to(dtype), "attention_mask": mask}


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 10), nn.ReLU())


KINDS: dict[str, tuple[Callable[[], Any], Callable[[], nn.Module], Any]] = {
    "tensor": (one, plain, None),
    "tuple": (pair, Two, None),
    "dict": (named, Two, None),
    "out tuple": (pair, lambda: Two(lambda h: (h.sum(), h)), 1),
    "out dict": (named, lambda: Two(lambda h: {"loss": h.sum(), "features": h}), "features"),
    "out object": (texts, Encoder, "pooler_output"),
    "out place": (texts, Encoder, 1),
    "first word": (texts, Encoder, lambda out: out.last_hidden_state[:, 0]),
    "masked mean": (texts, Encoder, mean_of_words),
    "bytes": (lambda: texts(dtype=torch.uint8), Encoder, mean_of_words),
}


def labels(x: Any) -> Tensor:
    part = at(x, slice(None))
    first = part if isinstance(part, Tensor) else next(iter(part.values())) if isinstance(part, dict) else part[0]
    return (first.double().flatten(1).sum(1) > first.double().flatten(1).sum(1).median()).long()


def task(name: str, make: Callable[[], Any], **options: Any) -> Task:
    x = make()
    y = labels(x)
    train, test = slice(None, 45), slice(45, None)
    return Task(name, (at(x, train), y[train]), test=(at(x, test), y[test]), classes=2, **options)


def learner_of(net: nn.Module, method: str, features: Any, **options: Any) -> Learner:
    options = {"epochs": 2, "batch_size": 16, "device": "cpu", **options}
    return Learner(net, METHODS[method](), features=features, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", NAMES)
def test_any_form_is_learned_verified_saved_and_loaded(kind: str, method: str, tmp_path: Path) -> None:
    make, build, features = KINDS[kind]
    torch.manual_seed(0)
    learner = learner_of(build(), method, features)
    for name in ("a", "b"):
        learner.learn(task(name, make))
    x = mapped(lambda part: part[:7], make())
    before = learner.predict(x, "a")
    assert before.shape == (7, 2)
    alone = learner.predict(mapped(lambda part: part[0], x), "a")
    torch.testing.assert_close(alone[0], before[0], rtol=1e-5, atol=1e-6)
    assert learner.verify().ok or not learner.method.promises()
    learner.save(tmp_path / "saved")
    other = hatrack.load(tmp_path / "saved", build(), METHODS[method](), features=features)
    assert torch.equal(other.predict(x, "a"), before)
    other.learn(task("c", make))
    if learner.method.promises():
        assert other.verify().ok
        assert torch.equal(other.predict(x, "a"), before)
        assert other.masks()


def test_features_that_are_a_function_are_asked_for_again(tmp_path: Path) -> None:
    learner = learner_of(Encoder(), "hat", mean_of_words)
    learner.learn(task("a", texts))
    learner.save(tmp_path)
    with pytest.raises(HatrackError, match=r"features come from a function, .* hatrack\.load\(…, features=f\)"):
        hatrack.load(tmp_path, Encoder())
    named = learner_of(Encoder(), "hat", "pooler_output")
    named.learn(task("a", texts))
    named.save(tmp_path / "named")
    x = texts()
    again = hatrack.load(tmp_path / "named", Encoder(), device="cpu")  # a name is stored
    assert torch.equal(again.predict(x, "a"), named.predict(x, "a"))
    assert hatrack.learn.state.verify(tmp_path / "named", Encoder()).ok


class Texts(Dataset[Any]):
    """Texts as they are, each of its own length."""

    def __init__(self, seed: int, longest: int, count: int = 40) -> None:
        numbers = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, longest + 1, (count,), generator=numbers)
        self.targets = torch.arange(count) % 2
        # Words below 10 stand in one class, those above in the other.
        self.texts = [
            torch.randint(1 + 10 * int(label), 10 + 10 * int(label), (int(length),), generator=numbers)
            for length, label in zip(lengths, self.targets, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.texts[row], self.targets[row]


def padded(samples: list[tuple[Tensor, Tensor]]) -> tuple[dict[str, Tensor], Tensor]:
    texts, labels = zip(*samples, strict=True)
    ids = pad_sequence(list(texts), batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}, torch.stack(labels)


@pytest.mark.parametrize("method", NAMES)
def test_texts_of_any_length_are_padded_by_collate_and_tasks_have_other_lengths(method: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = learner_of(Encoder(), method, mean_of_words, epochs=25, batch_size=4)
    for number, longest in enumerate((9, 3)):
        parts = [Texts(10 * number + part, longest) for part in range(3)]
        learner.learn(Task(f"up to {longest}", *parts, collate=padded))
    scores = learner.matrix()[-1]
    assert scores[-1] is not None
    assert scores[-1] > 0.9
    x, _ = padded([Texts(7, 12)[row] for row in range(6)])  # longer than any that was learned
    before = learner.predict(x, "up to 3")
    assert before.shape == (6, 2)
    longer = {name: nn.functional.pad(part, (0, 4)) for name, part in x.items()}
    torch.testing.assert_close(learner.predict(longer, "up to 3"), before)  # padding says nothing
    if learner.method.promises():
        assert learner.verify().ok
        assert scores[0] == learner.matrix()[0][0]
    learner.save(tmp_path)
    again = hatrack.load(tmp_path, Encoder(), features=mean_of_words, device="cpu")
    assert torch.equal(again.predict(x, "up to 3"), before)


def test_texts_of_several_lengths_without_collate_are_one_line() -> None:
    with pytest.raises(
        HatrackError, match=r"first training samples of task 't' make no batch .* give Task\(\.\.\., collate=f\)"
    ):
        learner_of(Encoder(), "hat", mean_of_words).learn(Task("t", Texts(0, 5)))


def squares(side: int, wide: int = 0) -> Tensor:
    return torch.randint(256, (60, 1, side, wide or side), dtype=torch.uint8)


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


@pytest.mark.parametrize("method", NAMES)
def test_tasks_may_have_pictures_of_another_size_where_the_network_pools(method: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = learner_of(pooled(), method, None)
    for number, (high, wide) in enumerate(((6, 6), (9, 7), (4, 8))):
        learner.learn(task(str(number), lambda high=high, wide=wide: squares(high, wide)))
    x = squares(9, 7)[:5]
    before = learner.predict(x, "0")  # learned at 6 by 6
    assert learner.verify().ok or not learner.method.promises()
    learner.save(tmp_path)
    assert torch.equal(hatrack.load(tmp_path, pooled(), device="cpu").predict(x, "0"), before)


@pytest.mark.parametrize("method", NAMES)
def test_pictures_of_a_size_that_moves_units_are_refused_in_one_line(method: str) -> None:
    flat = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten())
    learner = learner_of(flat, method, None)
    learner.learn(task("a", lambda: squares(6)))
    with pytest.raises(
        HatrackError, match=r"features of shape \(144,\); the new task's inputs .* give \(256,\)"
    ) as raised:
        learner.learn(task("b", lambda: squares(8)))
    assert "\n" not in str(raised.value)
    with pytest.raises(HatrackError, match=r"the network cannot take|features of shape \(144,\)"):
        learner.learn(task("b", lambda: squares(3, 12).flatten(1)))
    assert learner.finished == 1
    learner.learn(task("c", lambda: squares(6)))


def test_parts_of_other_forms_are_refused_in_one_line() -> None:
    x = pair()
    y = torch.zeros(60).long()
    with pytest.raises(HatrackError, match=r"task 't': test inputs are one tensor, training inputs a tuple of 2"):
        Task("t", (x, y), test=(x[0], y))
    with pytest.raises(HatrackError, match=r"task 't', train: 59 inputs '1' but 60 labels"):
        Task("t", ((x[0], x[1][:59]), y))
    learner = learner_of(Two(), "hat", None)
    learner.learn(task("a", pair))
    for wrong in (x[0], {"a": x[0], "b": x[1]}, (x[0], x[1], x[1])):
        with pytest.raises(HatrackError, match=r"task 'a': got .*, and the task was trained on a tuple of 2"):
            learner.predict(wrong, "a")
    with pytest.raises(
        HatrackError, match=r"has learned inputs of another form: expected a tuple of 2, got a dict of a, b"
    ):
        learner.learn(task("b", named))
    assert learner.finished == 1


def test_an_output_that_is_no_tensor_says_how_to_name_the_features() -> None:
    with pytest.raises(HatrackError, match=r"Encoder gives a Output of last_hidden_state, pooler_output .* features=…"):
        learner_of(Encoder(), "hat", None).learn(task("a", texts))
    with pytest.raises(HatrackError, match=r"in which there is no 'hidden'; give features= another name"):
        learner_of(Encoder(), "hat", "hidden").learn(task("a", texts))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(256, 8), nn.Linear(8, 12)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.relu(self.out(self.embed(ids).mean(1)))


@pytest.mark.parametrize("method", NAMES)
def test_bytes_that_a_network_looks_up_are_ids_also_after_a_load(method: str, tmp_path: Path) -> None:
    def ids() -> Tensor:
        return torch.randint(256, (60, 5), dtype=torch.uint8)

    torch.manual_seed(0)
    learner = learner_of(Words(), method, None)
    learner.learn(task("a", ids))
    x = ids()[:8]
    before = learner.predict(x, "a")
    assert torch.equal(learner.predict(x.long(), "a"), before)
    with torch.no_grad():
        features = learner.model.net.eval()(x.long())
    if method == "sgd":
        torch.testing.assert_close(before, learner.model.heads[0](features))
    learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, Words(), device="cpu")
    assert torch.equal(loaded.predict(x, "a"), before)
    loaded.learn(task("b", ids))
    assert loaded.verify().ok or not loaded.method.promises()


@pytest.mark.parametrize(
    ("collate", "words"),
    [
        (3, "task 't', train: collate must be a function of a list of samples that returns .* got 3"),
        (lambda samples: 3, r"task 't': collate must return \(inputs, targets\), got int"),
    ],
)
def test_a_collate_that_makes_no_batch_names_the_task(collate: Any, words: str) -> None:
    rows = torch.utils.data.TensorDataset(torch.rand(20, 4), torch.arange(20) % 2)
    learner = hatrack.Learner(nn.Linear(4, 3), epochs=1, device="cpu")
    with pytest.raises(HatrackError, match=words):
        learner.learn(hatrack.Task("t", rows, classes=2, collate=collate))
    assert learner.finished == 0
