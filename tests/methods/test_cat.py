"""CAT: the decision which tasks are similar, the lock that leaves them out, the attention, the phases."""

from __future__ import annotations

import numpy as np
import torch
from small import next_task, random_task, same_bits, start
from torch.nn.functional import cross_entropy

from hatrack import Learner, Task
from hatrack.data.feed import Batch
from hatrack.masks.gates import gate, prices, sparsity
from hatrack.methods.cat import CAT
from hatrack.methods.parts.attention import attend
from hatrack.nets import build
from hatrack.targets import Classification

MASKS = [
    torch.tensor([1, 0, 0, 1, 0, 1, 0, 0, 1]).bool(),  # five units of the first layer, four of the second
    torch.tensor([0, 1, 0, 1, 0, 0, 1, 0, 1]).bool(),
    torch.tensor([0, 0, 1, 1, 0, 0, 0, 1, 0]).bool(),
]


def in_main_phase(accuracies: list[float]) -> CAT:
    """A method that has finished three tasks with given masks and stands in the last phase of the fourth."""
    method = CAT()
    start(method)
    for t in range(4):
        next_task(method)
        if t < 3:
            method.masks.append(MASKS[t])
            method.attention.append({})
    method.accuracies.copy_(torch.tensor(accuracies))
    method.begin_phase(4)
    method.begin_epoch()
    return method


def test_a_task_is_similar_when_its_transfer_model_beats_the_reference() -> None:
    assert in_main_phase([0.8, 0.9, 0.8, 0.3]).similar_now() == [0]  # a draw is not similar
    assert in_main_phase([0.5, 0.9, 0.8, 0.3]).similar_now() == [0, 1]
    assert in_main_phase([1.0, 0.9, 0.8, 0.3]).similar_now() == []


def test_only_what_dissimilar_tasks_use_is_locked() -> None:
    method = in_main_phase([0.5, 0.9, 0.1, 0.3])  # task 0 is similar
    net = method.model.net
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    method.embedding.grad = torch.zeros_like(method.embedding)
    method.scale()  # as the loss does
    method.after_backward()
    taken = (MASKS[1] | MASKS[2]).int().tolist()
    for i in range(4):
        for j in range(5):
            assert net.fc2.weight.grad[i, j] == 1 - min(taken[5 + i], taken[j])
        assert net.fc2.bias.grad[i] == 1 - taken[5 + i]
    for j in range(5):
        assert (net.fc1.weight.grad[j] == 1 - taken[j]).all()
    # the regulariser still counts every finished task's units as taken
    assert method.taken.bool().tolist() == (MASKS[0] | MASKS[1] | MASKS[2]).tolist()


def test_the_loss_adds_the_attentions_cross_entropy_over_similar_tasks() -> None:
    method = in_main_phase([0.5, 0.9, 0.1, 0.8])  # tasks 0 and 2
    method.clock.start(1)
    x, y = torch.randn(6, 6, dtype=torch.float64), torch.arange(6) % 3
    net = method.model.net
    w1, b1, w2, b2 = (t.detach().numpy() for t in (net.fc1.weight, net.fc1.bias, net.fc2.weight, net.fc2.bias))

    def features(mask: np.ndarray) -> np.ndarray:
        h = np.maximum(x.numpy() @ w1.T + b1, 0) * mask[:5]
        return np.maximum(h @ w2.T + b2, 0) * mask[5:]

    head = method.model.heads[3]
    a = gate(method.embedding.detach(), method.s_max)
    plain = head(torch.from_numpy(features(a.double().numpy())))
    old = torch.from_numpy(np.stack([features(MASKS[k].numpy()) for k in (0, 2)], 1))
    expected = cross_entropy(plain, y) + method.c * sparsity(a, prices(method.taken))
    expected = expected + cross_entropy(attend(method.attending, old, method.heads), y)
    torch.testing.assert_close(method.loss(Batch(x, y)).double(), expected.double(), rtol=1e-6, atol=1e-6)
    method.loss(Batch(x, y)).backward()
    assert all(t.grad is not None for t in method.attending.values())


def test_reference_and_transfer_phases_leave_the_network_alone() -> None:
    torch.manual_seed(0)
    learner = Learner(build("mlp", (6,), widths=(12, 10)), CAT(), epochs=2, batch_size=8)
    learner.learn(random_task("a", 0))
    before = {n: p.detach().clone() for n, p in learner.model.net.named_parameters()}
    phases: dict[int, bool] = {}

    def look(epoch: object) -> None:
        same = all(same_bits(p, before[n]) for n, p in learner.model.net.named_parameters())
        phases[epoch.phase] = phases.get(epoch.phase, True) and same

    learner.learn(random_task("b", 1), on_epoch=look)
    assert phases == {0: True, 1: True, 2: False}
    assert set(learner.method.accuracies.tolist()) != {0.0}


def test_the_reference_leaves_the_tasks_own_statistics_alone() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.BatchNorm1d(12), torch.nn.ReLU())
    learner = Learner(net, CAT(), epochs=2, batch_size=8)
    learner.learn(random_task("a", 0))
    own, reference = [], []

    def look(epoch: object) -> None:
        if epoch.phase == 0:
            own.append(learner.model.private[1]["1.running_mean"].clone())
            reference.append(learner.method.reference["1.running_mean"].clone())

    learner.learn(random_task("b", 1), on_epoch=look)
    assert all(torch.equal(mean, torch.zeros(12)) for mean in own)
    assert all(mean.abs().min() > 0 for mean in reference)


def blobs(name: str, seed: int, n: int) -> Task:
    """Two classes that only a nonlinear network tells apart; the same for every seed but for the draw."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    tests = rng.normal(size=(400, 6))
    return Task(name, (x, y), (tests, (tests[:, 0] * tests[:, 1] > 0).astype(np.int64)))


def test_the_same_task_with_few_samples_is_found_similar_and_answers_well() -> None:
    torch.manual_seed(0)
    net = build("mlp", (6,), widths=(64, 64), dropout=0.0, input_dropout=0.0)
    learner = Learner(net, CAT(lr=0.1, c=0.1), epochs=20, batch_size=32)
    learner.learn(blobs("much", 0, 800))
    learner.learn(blobs("little", 1, 40))
    method = learner.method
    assert method.accuracies[1] > method.accuracies[0] + 0.05
    assert {task: flags.tolist() for task, flags in method.similar.items()} == {"1": [True]}
    x = torch.randn(400, 6)
    accuracy = (learner.predict(x, 1).argmax(1) == (x[:, 0] * x[:, 1] > 0)).double().mean()
    assert accuracy > method.accuracies[0]


def test_the_better_of_mask_and_attention_answers() -> None:
    for attended, masked in ((3, 2), (2, 3), (2, 2)):
        method = in_main_phase([0.5, 0.9, 0.1, 0.3])
        y = torch.zeros(4, dtype=torch.long)
        answers = [torch.eye(3)[[0] * hits + [1] * (4 - hits)] for hits in (masked, attended)]
        method.scores.add(torch.tensor(1.0), Classification(3), y, *answers)
        method.end_task(None)
        assert bool(method.attention[3]) == (attended > masked)
        assert bool(method.answering()) == (attended > masked)
        x = torch.randn(5, 6, dtype=torch.float64)
        by_mask = method.model.logits(x, 3, method.masks[3])
        assert torch.equal(method.predict(x, 3), by_mask) == (attended <= masked)
