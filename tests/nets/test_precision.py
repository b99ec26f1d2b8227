"""TF32 is switched for our own passes only, whichever of torch's two sets of switches the caller has used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.nets import precision
from hatrack.nets.precision import resolve_precision, tf32

MATMUL: Any = torch.backends.cuda.matmul
CUDNN: Any = torch.backends.cudnn
NEWER = (MATMUL, CUDNN.conv, CUDNN.rnn)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = [place.fp32_precision for place in NEWER]
    yield
    for place, value in zip(NEWER, before, strict=True):
        place.fp32_precision = value


def newer() -> list[str]:
    return [place.fp32_precision for place in NEWER]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_older_switches_come_back(allowed: bool) -> None:
    before = MATMUL.allow_tf32, CUDNN.allow_tf32
    with tf32(allowed):
        assert (MATMUL.allow_tf32, CUDNN.allow_tf32) == (allowed, allowed)
    assert (MATMUL.allow_tf32, CUDNN.allow_tf32) == before


@pytest.mark.parametrize("allowed", [True, False])
def test_the_newer_switches_come_back(allowed: bool) -> None:
    MATMUL.fp32_precision, CUDNN.conv.fp32_precision = "tf32", "ieee"
    before = newer()
    with tf32(allowed):
        assert newer() == ["tf32" if allowed else "ieee"] * 3
    assert newer() == before


@pytest.mark.parametrize(("fast", "name"), [(True, "bf16"), (False, "float32")])
def test_auto_takes_bf16_on_a_cpu_that_multiplies_it(fast: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "multiplies_bf16", lambda: fast)
    assert resolve_precision("auto", torch.device("cpu")) == name
    assert resolve_precision("auto", torch.device("cuda")) == "tf32"
    assert resolve_precision("tf32", torch.device("cpu")) == "tf32"


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(HatrackError, match=r"precision 'fp8'"):
        resolve_precision("fp8", torch.device("cpu"))


def test_on_a_cpu_training_is_rounded_and_answers_are_not() -> None:
    kinds: list[tuple[bool, torch.dtype]] = []

    class Telling(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            out = super().forward(input)
            kinds.append((self.training, out.dtype))
            return out

    x, y = torch.randn(40, 6), torch.arange(40) % 2
    learner = Learner(Telling(6, 8), epochs=1, batch_size=10, device="cpu", precision="bf16")
    learner.learn(Task("a", train=(x, y), valid=(x, y)))
    kinds.clear()
    learner.learn(Task("b", train=(x, y), valid=(x, y)))
    learner.predict(x, "a")
    assert {kind for training, kind in kinds if training} == {torch.bfloat16}
    assert {kind for training, kind in kinds if not training} >= {torch.float32}
    assert kinds[-1] == (False, torch.float32)
    assert learner.verify().ok
    assert all(p.dtype == torch.float32 for p in learner.model.net.parameters())


def test_a_learner_that_answered_in_bf16_goes_on_so(tmp_path: Path) -> None:
    """Version 0.1 rounded answers as well; what it saved does not say in what they are computed."""
    x, y = torch.randn(40, 6), torch.arange(40) % 2
    learner = Learner(nn.Linear(6, 8), epochs=1, device="cpu", precision="bf16")
    learner.learn(Task("a", train=(x, y), valid=(x, y)))
    learner.save(tmp_path)
    assert hatrack.load(tmp_path, nn.Linear(6, 8), device="cpu").model.answers.name == "float32"
    page = json.loads((tmp_path / "learner.json").read_text())
    del page["answers"], page["sha256"], page["seals"]
    (tmp_path / "learner.json").write_text(json.dumps(page))
    assert hatrack.load(tmp_path, nn.Linear(6, 8), device="cpu").model.answers.name == "bf16"
