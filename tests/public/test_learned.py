"""transformers and peft in earnest: tasks that can be learned are, and what was learned before stays bit for bit."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor

import hatrack
from hatrack.learn.proof.verification import same_bits
from hatrack.methods import METHODS

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # what other packages warn of is theirs
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("transformers", "peft")),
        reason="transformers or peft is not installed; `make test-public` has an environment with them",
    ),
]
SAMPLES = 256


def task(name: str, words: range, seed: int) -> hatrack.Task:
    """Which of two words stands in the text, somewhere among others."""
    from .padded_nets import texts

    def part(seed: int) -> tuple[dict[str, Tensor], Tensor]:
        x, y = texts(SAMPLES, seed), torch.arange(SAMPLES) % 2
        ids = x["input_ids"].masked_fill(torch.isin(x["input_ids"], torch.tensor(words)), words.stop)
        ids[:, 1] = words.start + y
        return {**x, "input_ids": ids}, y

    return hatrack.Task(name, train=part(seed), valid=part(seed + 1), test=part(seed + 2))


def tuned(rank: int) -> torch.nn.Module:
    from .catalogue import prepare
    from .peft_nets import ATTENTION, BERT, adapted

    prepare("transformers", "peft")
    torch.manual_seed(0)
    options = {"r": rank, "lora_alpha": 2 * rank, "target_modules": ATTENTION, "lora_dropout": 0.05}
    return adapted(BERT, "LoraConfig", options)


def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.01)


def test_each_task_takes_the_ranks_that_it_needs() -> None:
    from .padded_nets import mean, texts

    net = tuned(rank=8)
    base = {name: p.detach().clone() for name, p in net.named_parameters() if not p.requires_grad}
    options: dict[str, Any] = {"features": mean, "epochs": 15, "batch_size": 32, "device": "cpu"}
    learner = hatrack.Learner(net, hatrack.HAT(c=0.75), adam, **options)
    x, answers = texts(32, seed=99), list[Tensor]()
    for number in range(3):
        learner.learn(task(f"words {number}", range(1 + 3 * number, 3 + 3 * number), seed=10 * number))
        answers.append(learner.predict(x, number))
        for earlier, before in enumerate(answers):
            assert bool(same_bits(before, learner.predict(x, earlier)).all())
    assert learner.verify().ok
    for name, p in net.named_parameters():
        assert p.requires_grad or bool(same_bits(base[name], p).all())
    assert min(learner.matrix()[-1]) >= 0.95
    ranks = [int(learner.method.unit_gates(number).sum()) for number in range(3)]
    taken = [share["total"] for share in learner.capacity()]
    assert all(0 < count < 32 for count in ranks)  # of eight in each of four layers
    assert taken == sorted(taken)
    assert taken[0] == ranks[0] / 32  # A and B of a rank have as many entries as any other's


def test_the_head_alone_does_not_learn_it() -> None:
    from .padded_nets import mean

    net = tuned(rank=1).requires_grad_(False)
    options: dict[str, Any] = {"features": mean, "epochs": 15, "batch_size": 32, "device": "cpu"}
    learner = hatrack.Learner(net, METHODS["sgd"](), adam, **options)
    learner.learn(task("words 0", range(1, 3), seed=0))
    assert learner.matrix()[0][0] <= 0.9


def test_every_word_gets_an_answer_of_its_own() -> None:
    from .catalogue import prepare
    from .padded_nets import made, texts
    from .peft_nets import BERT

    def tags(name: str, divisor: int, seed: int) -> hatrack.Task:
        x = texts(SAMPLES, seed)
        y = (x["input_ids"] % divisor == 0).long().masked_fill(x["attention_mask"] == 0, -100)
        return hatrack.Task(name, train=(x, y), test=(x, y), target=hatrack.targets.Dense(ignore_index=-100))

    prepare("transformers")
    torch.manual_seed(0)
    options: dict[str, Any] = {"features": "last_hidden_state", "epochs": 4, "batch_size": 32, "device": "cpu"}
    learner = hatrack.Learner(made(*BERT), hatrack.HAT(), adam, **options)
    for number, divisor in enumerate((2, 3)):
        learner.learn(tags(f"multiples of {divisor}", divisor, seed=number))
    assert min(learner.matrix()[-1]) >= 0.95
    assert learner.verify().ok
