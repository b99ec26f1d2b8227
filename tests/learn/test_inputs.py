"""Samples that are no single tensor, outputs that are not either, and lengths and sizes that vary: from end to end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import Learner, Task
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
