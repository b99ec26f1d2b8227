"""What the verdict on old tasks says, what it compares, and how closely logits of another machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import hatrack
from hatrack import HAT, Learner, Task
from hatrack.learn.proof import verification as proof
from hatrack.learn.proof.verification import TaskProof
from hatrack.learn.state import verify
from hatrack.methods import METHODS
from hatrack.methods.base import Method
from hatrack.nets import build


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)


def net() -> torch.nn.Module:
    return build("mlp", (1, 8, 8), widths=(20,))


def elsewhere(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(proof, "environment", lambda device: {"torch": "0.1", device.type: name})


def test_logits_of_another_machine_are_compared_within_a_tolerance(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as there:
        elsewhere(there, "abacus")
        learner = Learner(net(), HAT(), epochs=2, device="cpu")
        learner.learn(tasks[0])
        learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, net(), device="cpu")
    loaded.learn(tasks[1])
    loaded.save(tmp_path)  # the first task's logits are still those of the other machine
    for probe, off in zip(loaded.probes, (5e-5, 0.0), strict=True):
        probe.logits += off
    verdict = loaded.verify()
    assert verdict.ok
    lines = str(verdict).splitlines()
    first, second = verdict.tasks
    assert lines[0] == (
        f"digits 0-1: unchanged (128 probe logits within 0.0001 and {first.entries:,} entries ({first.bytes:,} bytes) "
        f"bit-identical)"
    )
    assert lines[1].startswith(f"digits 2-3: unchanged (128 probe logits and {second.entries:,} entries (")
    assert lines[2].startswith("In all 256 probe logits and ")
    assert lines[3].startswith("1 of 2 tasks stored their logits under {'torch': '0.1', 'cpu': 'abacus'}, here is ")
    assert str(verify(tmp_path, net(), "cpu")) == str(verdict)
    loaded.probes[0].logits += 1e-3
    assert [t.ok for t in loaded.verify().tasks] == [False, True]
    loaded.probes[1].logits += 5e-5  # of this machine: bit by bit
    assert [t.ok for t in loaded.verify().tasks] == [False, False]


def test_logits_of_another_machine_may_differ_by_their_size(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=1, device="cpu")
    learner.learn(tasks[0])
    with torch.no_grad():
        learner.model.heads[0].weight.mul_(1000)
    logits = proof.probe_logits(learner.method, learner._drawn(0), 0)
    learner.probes[0] = proof.Probe(logits + 1e-5 * logits.abs().amax(1, keepdim=True), {})
    assert learner.verify().tasks[0].ok
    learner.probes[0].logits[:, 0] += 2e-4 * logits.abs().amax()
    assert not learner.verify().tasks[0].ok


def test_probes_are_computed_in_float32_whatever_the_precision(tasks: list[Task]) -> None:
    features = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 30), torch.nn.Tanh())
    learner = Learner(features, METHODS["sgd"](), epochs=3, device="cpu", precision="bf16")
    learner.learn(tasks[0])
    drawn = learner._drawn(0)
    x = drawn.flatten(1).double().numpy()
    layer, head = features[1], learner.model.heads[0]
    hidden = np.tanh(x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy())
    expected = hidden @ head.weight.detach().double().numpy().T + head.bias.detach().double().numpy()
    np.testing.assert_allclose(learner.probes[0].logits.numpy(), expected, atol=1e-5)
    learner.model.answers = learner.model.precision  # as on a CUDA device
    rounded = learner.method.predict(drawn, 0).detach().numpy()
    assert np.abs(rounded - expected).max() > 1e-3, "the check means nothing if bf16 is as exact"
    assert learner.model.precision.name == "bf16"


def test_a_save_of_an_earlier_version_has_one_environment(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=1, device="cpu")
    learner.learn(tasks[0])
    learner.save(tmp_path)
    page = json.loads((tmp_path / "learner.json").read_text())
    for newer in ("sha256", "seals", "own_probes"):
        del page[newer]
    page["environment"] = page.pop("environments")[0]
    (tmp_path / "learner.json").write_text(json.dumps(page))
    assert hatrack.load(tmp_path, net(), device="cpu").probes[0].environment == page["environment"]


@pytest.mark.parametrize("method", [METHODS["ewc"](), HAT(hard=False)])
def test_entries_are_counted_only_where_any_are_held(method: Method, tasks: list[Task]) -> None:
    learner = Learner(net(), method, epochs=1, device="cpu")
    learner.learn(tasks[0])
    assert str(learner.verify().tasks[0]) == "digits 0-1: unchanged (128 probe logits bit-identical)"


@pytest.mark.parametrize(
    ("then", "now"),
    [(-(2**31), 0), (0, -(2**31)), (0x7FC00000, 0x7FC00001), (0x7FC00000, 0x7FC00000 - 2**31)],
    ids=["-0 to 0", "0 to -0", "NaN's payload", "NaN's sign"],
)
def test_a_drift_in_bits_alone_is_found(then: int, now: int) -> None:
    """Numbers that are equal, or that equal nothing, not even themselves."""
    before, after = torch.tensor([then, now], dtype=torch.int32).view(torch.float32)
    assert torch.equal(before, after) or bool(before.isnan() & after.isnan())
    held = proof.LockedValues()
    held.add({"a.weight": before.expand(2, 2).clone()}, {"a.weight": torch.ones(2, 2)})
    moved = torch.stack([before, before, before, after]).view(2, 2)
    assert not list(held.drifts({"a.weight": before.expand(2, 2).clone()}, {"a.weight": torch.ones(2, 2)}))
    [drift] = held.drifts({"a.weight": moved}, {"a.weight": torch.ones(2, 2)})
    assert (drift.parameter, drift.entries) == ("a.weight", 1)


def test_verify_compares_bits_not_numbers(tasks: list[Task]) -> None:
    """A locked 0 that has become −0 gives the same logits, and is found all the same."""
    learner = Learner(net(), HAT(), epochs=1, device="cpu")
    learner.learn(tasks[0])
    name, used = next((n, u > 0) for n, u in (learner.method.use(0) or {}).items() if bool((u > 0).any()))
    entry = tuple(used.nonzero()[0])
    parameter = dict(learner.model.net.named_parameters())[name]
    parameter.data[entry] = learner.locked_values.values[name][entry] = 0.0
    learner.probes[0].logits = proof.probe_logits(learner.method, learner._drawn(0), 0)
    assert learner.verify().ok
    parameter.data[entry] = -0.0
    [verdict] = learner.verify().tasks
    assert not verdict.ok
    assert [(drift.parameter, drift.entries, drift.largest) for drift in verdict.drifts] == [(name, 1, 0.0)]


def test_logits_of_this_machine_are_compared_by_their_bits(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(net(), HAT(), epochs=1, device="cpu")
    learner.learn(tasks[0])
    logits = learner.probes[0].logits = torch.zeros_like(learner.probes[0].logits)
    monkeypatch.setattr(proof, "probe_logits", lambda *_: logits.clone())
    assert learner.verify().ok
    monkeypatch.setattr(proof, "probe_logits", lambda *_: -logits)
    assert learner.verify().tasks[0].changed_logits == logits.numel()


def test_only_what_is_held_can_drift() -> None:
    parameters = {"a.weight": torch.ones(2, 2), "b.weight": torch.ones(3)}
    held = proof.LockedValues()
    held.add(parameters, {"a.weight": torch.tensor([[1.0, 0.0], [1.0, 0.0]])})
    everything = {name: torch.ones_like(p) for name, p in parameters.items()}
    assert not list(held.drifts(parameters, everything))
    moved = {"a.weight": torch.tensor([[1.0, 5.0], [4.0, 5.0]]), "b.weight": torch.zeros(3)}
    [drift] = held.drifts(moved, everything)
    assert (drift.layer, drift.entries, drift.largest) == ("a", 1, 3.0)


def test_a_task_s_name_forges_no_line_of_the_verdict() -> None:
    name = "a\nb: unchanged (9 probe logits bit-identical)\x1b[8m"
    for changed, said in ((0, "unchanged"), (1, "CHANGED")):
        line = str(TaskProof(name, changed, 9, 0.0, ()))
        assert line.startswith(rf"a\nb: unchanged (9 probe logits bit-identical)\x1b[8m: {said}")
