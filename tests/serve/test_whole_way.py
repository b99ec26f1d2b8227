"""Learned, exported, served: the answers are the learner's."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import hatrack
from hatrack import HAT, Learner, Task, targets
from targets import mixed

from .asking import once, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple[Learner, Task]]]:
    """Return five tasks of four targets, exported; two of them learned from bytes."""
    folder, known = tmp_path_factory.mktemp("exported"), {}
    figures = mixed.make(0)
    random = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (60, 1, 6, 6), generator=random, dtype=torch.uint8)
    inside = (x[:, 0] > 127).long()
    places = targets.Dense(names=["dark", "light"])
    bright = targets.Classification(names=["dim", "bright"])
    pictures = [
        Task("places", train=(x[:40], inside[:40]), test=(x[40:], inside[40:]), target=places),
        Task("bright", train=(x[:40], inside[:40, 0, 0]), test=(x[40:], inside[40:, 0, 0]), target=bright),
    ]
    over_pictures = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU())
    for net, tasks in ((mixed.net((6,)), figures), (over_pictures, pictures)):
        learner = hatrack.Learner(net, HAT(), epochs=3, seed=0)
        for task in tasks:
            learner.learn(task)
        for task in tasks:
            learner.export(task.name, folder)
            known[task.name] = learner, task
    return folder, known


def test_the_server_answers_what_the_learner_answers(learned: tuple[Path, dict[str, tuple[Learner, Task]]]) -> None:
    folder, known = learned
    asked, wanted, words = [], [], []
    for name, (learner, task) in known.items():
        x = task.test.first(20)
        asked.append({"task": name, "inputs": x.tolist(), "logits": True})
        answer = learner.predict(x, task=name)
        wanted.append(answer)
        words.append(learner.decode(answer, task=name))
    with serving(folder) as port:
        said = once(port, asked)[1]
    assert [one["status"] for one in said] == [200] * 5
    for one, answer, decoded in zip(said, wanted, words, strict=True):
        found = np.array([row.get("logits", row.get("values")) for row in one["answers"]])
        np.testing.assert_allclose(found, answer, atol=1e-5 * float(answer.abs().max()), rtol=0)
        assert found.std() > 0
        if one["task"] == "places":
            flat: Any = [[one["classes"][i] for row in a["labels"] for i in row] for a in one["answers"]]
            assert flat == decoded
        elif one["task"] == "each":
            assert [row["labels"] for row in one["answers"]] == decoded
        elif one["task"] != "sum":
            assert [row["label"] for row in one["answers"]] == decoded


def test_a_picture_file_is_answered_as_its_bytes_are(learned: tuple[Path, dict[str, tuple[Learner, Task]]]) -> None:
    folder, known = learned
    learner, task = known["bright"]
    x = task.test.first(1)
    file = io.BytesIO()
    Image.fromarray(x[0, 0].numpy()).save(file, "PNG")
    with serving(folder) as port:
        status, said = once(port, {"task": "bright", "inputs": base64.b64encode(file.getvalue()).decode()})
        refused = once(port, {"task": "bright", "inputs": (x / 255).tolist()})
    assert status == 200
    answer = learner.predict(x, task="bright")[0]
    np.testing.assert_allclose(said["answers"][0]["logits"], answer, atol=1e-5 * float(answer.abs().max()), rtol=0)
    assert refused[0] == 400
