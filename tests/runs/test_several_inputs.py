"""Runs over samples of several tensors, and what is refused before the first task is learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.cli import main

CODE = """
import torch
from torch import nn
from hatrack import Task, targets


class Count(targets.Target):
    name = "count"
    outputs = 1

    def loss(self, output, y):
        return (output[:, 0] - y).square().mean()

    def new_score(self):
        return targets.Gathered(lambda output, y: -(output[:, 0] - y).abs().mean())


def make(seed: int, own: bool = False):
    random = torch.Generator().manual_seed(seed)
    made = []
    for name in ("a", "b"):
        ids, mask = torch.randint(0, 20, (60, 7), generator=random), torch.ones(60, 7)
        rows = (slice(40), slice(40, 50), slice(50, 60))
        parts = [({"ids": ids[r], "mask": mask[r]}, (ids[r, 0] > 9).long()) for r in rows]
        made.append(Task(name, *parts, target=Count() if own and name == "b" else None))
    return made


class Texts(nn.Module):
    def __init__(self, shape):
        super().__init__()
        assert shape == {"ids": (7,), "mask": (7,)}
        self.words, self.layer = nn.Embedding(20, 8), nn.Linear(8, 12)

    def forward(self, ids, mask):
        pooled = torch.relu(self.layer((self.words(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)))
        return {"words": self.words(ids), "pooled": pooled}
"""


def test_a_dict_of_tensors_goes_through_run_verify_and_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)
    words = ["--benchmark", "mine.py:make", "--net", "mine.py:Texts"]
    assert main(["run", *words, "--epochs", "1", "--out", "other", "--device", "cpu"]) == 2
    assert "say which part of the output they are" in capsys.readouterr().err
    features = ["--set", "features=pooled"]
    assert main(["run", *words, *features, "--epochs", "1", "--out", "run", "--device", "cpu"]) == 0
    assert 'features = "pooled"' in Path("run/spec.toml").read_text()
    assert main(["verify", "run", *words]) == 0
    assert main(["resume", "run", *words]) == 0
    assert main(["verify", "run/checkpoint", "--net", "mine.py:Texts"]) == 0
    capsys.readouterr()


def test_a_later_task_that_the_method_cannot_learn_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)
    words = ["--benchmark", "mine.py:make", "--net", "mine.py:Texts", "--set", "own=true", "--method", "lwf"]
    assert main(["run", *words, "--out", "run", "--device", "cpu"]) == 2
    assert "lwf cannot learn task 'b'" in capsys.readouterr().err
    assert not Path("run").exists()
