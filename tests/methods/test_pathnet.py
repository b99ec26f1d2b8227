"""PathNet: paths as masks, the tournament, mutation, freezing and re-initialisation, each by hand."""

from __future__ import annotations

import numpy as np
import torch
from small import next_task, random_task, same_bits, small_mlp, start

from hatrack import Learner, Task
from hatrack.methods.base import ScheduleState
from hatrack.methods.pathnet import PathNet
from hatrack.nets import build


def ready(**settings: int) -> PathNet:
    method = PathNet(**{"modules": 4, "active": 2, **settings})
    start(method, small_mlp((8, 6)))
    next_task(method)
    method.begin_phase(0)
    return method


def test_a_path_switches_on_the_units_of_its_modules() -> None:
    method = ready()
    path = torch.tensor([[0, 3], [1, 1]])
    # 8 units in 4 modules: two each; 6 units in 4 modules: 2, 1, 2, 1
    expected = [1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0]
    assert method.mask(path).int().tolist() == expected
    assert method._grid[2].tolist() == [4, 4]
    for first in method.paths:  # the drawn paths repeat no module
        assert all(len(set(row)) == 2 for row in first.tolist())


def test_sites_smaller_than_the_number_of_modules_have_a_module_a_unit() -> None:
    method = PathNet(modules=16, active=9)
    start(method, small_mlp((20, 4)))
    next_task(method)
    assert method._grid[2].tolist() == [16, 4]
    assert method.mask(method.paths[0])[20:].all()  # nine choices of four modules: all of them


def test_logits_are_those_of_the_network_of_active_units() -> None:
    method = ready()
    net, head = method.model.net, method.model.heads[0]
    on = method.mask(method.paths[0]).numpy()
    first, second = np.flatnonzero(on[:8]), np.flatnonzero(on[8:])
    x = np.random.default_rng(0).normal(size=(5, 6))
    w1, b1, w2, b2 = (t.detach().numpy() for t in (net.fc1.weight, net.fc1.bias, net.fc2.weight, net.fc2.bias))
    h = np.maximum(x @ w1[first].T + b1[first], 0)
    h = np.maximum(h @ w2[np.ix_(second, first)].T + b2[second], 0)
    expected = h @ head.weight.detach().numpy()[:, second].T + head.bias.detach().numpy()
    np.testing.assert_allclose(method.predict(torch.from_numpy(x), 0).detach().numpy(), expected, rtol=1e-10)


def test_generations_share_the_epochs() -> None:
    method = PathNet()
    assert list(method.phases(200)) == [10] * 40
    assert len(method.phases(25)) == 40
    assert sum(method.phases(25)) == 50
    assert list(method.phases(3)) == [1] * 6


def test_mutation_moves_a_choice_with_probability_one_over_nl_by_up_to_two() -> None:
    method = ready(modules=6, active=3)
    torch.manual_seed(0)
    path = torch.tensor([[0, 1, 2], [5, 4, 3]])
    moves = torch.cat([(method.mutated(path) - path).flatten().remainder(6) for _ in range(3000)])
    counts = torch.bincount(moves, minlength=6)
    assert counts[3] == 0  # 3 ≡ −3: farther than two
    share = 1 - counts[0].item() / counts.sum().item()
    assert abs(share - 1 / 6 * 4 / 5) < 0.01  # one step in five is no step
    assert all(abs(int(counts[k]) / len(moves) - 1 / 30) < 0.006 for k in (1, 2, 4, 5))


def test_the_loser_becomes_a_mutated_copy_and_the_winners_weights_return() -> None:
    method = ready()
    feed, weight = None, method.model.net.fc1.weight
    method.end_phase(0, feed, ScheduleState(0.05, 0.9, 2))
    loser = method.paths[0].clone()
    method.begin_phase(1)
    weight.data.add_(1.0)
    winning = weight.detach().clone()
    torch.manual_seed(3)
    method.end_phase(1, feed, ScheduleState(0.01, 0.5, 3))
    assert int(method.winner) == 1
    assert method.rates.tolist() == [0.01, 0.01]
    assert method.losses.tolist() == [float("inf"), 0.5]
    assert method.since.tolist() == [0, 3]
    torch.manual_seed(3)
    assert torch.equal(method.paths[0], method.mutated(method.paths[1]))
    assert not torch.equal(method.paths[0], loser)
    # the next generation is worse: its weights are dropped and the same path goes on
    champion = method.paths[1].clone()
    for phase, loss, known in ((2, 0.8, (float("inf"), 0)), (3, 0.5, (0.5, 3))):
        assert method.begin_phase(phase)[1:] == known
        assert method.optimizer([weight]).param_groups[0]["lr"] == 0.01
        weight.data.add_(1.0)
        method.end_phase(phase, feed, ScheduleState(0.01, loss, 5))
    assert int(method.winner) == 1
    assert same_bits(weight, winning)
    method.end_task(feed)
    assert torch.equal(method.winners[0], champion)


def test_a_new_task_finds_the_winners_modules_frozen_and_the_others_as_at_the_start() -> None:
    method = ready()
    net = method.model.net
    initial = {n: p.detach().clone() for n, p in net.named_parameters()}
    for p in net.parameters():
        p.data.add_(torch.randn_like(p))
    trained = {n: p.detach().clone() for n, p in net.named_parameters()}
    method.end_task(None)
    on = method.mask(method.winners[0]).tolist()
    next_task(method)
    weight, bias = net.fc2.weight.detach(), net.fc2.bias.detach()
    for i in range(6):
        for j in range(8):
            source = trained if on[8 + i] and on[j] else initial
            assert weight[i, j] == source["fc2.weight"][i, j]
        assert bias[i] == (trained if on[8 + i] else initial)["fc2.bias"][i]
    kept = {n: p.detach().clone() for n, p in net.named_parameters()}
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    method.after_backward()
    for p in net.parameters():
        p.data.sub_(p.grad)
    method.after_step()
    moved = (net.fc2.weight != kept["fc2.weight"]).tolist()
    assert all(moved[i][j] != (on[8 + i] and on[j]) for i in range(6) for j in range(8))


def test_patience_outlasts_a_generation() -> None:
    """Phases of two epochs are shorter than the patience; where nothing can be learned, the rate falls all the same."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 6), torch.randint(3, (60,))
    learner = Learner(build("mlp", (6,), widths=(24, 20)), PathNet(generations=20, lr=0.5), epochs=40, batch_size=8)
    rates = []
    learner.learn(Task("noise", (x, y), (x.flip(0), y)), on_epoch=lambda epoch: rates.append(epoch.lr))
    assert rates[0] == 0.5
    assert min(rates) < 0.5 / 2


def test_finished_tasks_do_not_change() -> None:
    torch.manual_seed(0)
    learner = Learner(build("mlp", (6,), widths=(24, 20)), PathNet(generations=3), epochs=3, batch_size=8)
    for i in range(3):
        learner.learn(random_task(f"t{i}", i))
    assert learner.verify().ok
    assert learner.capacity()[-1]["total"] > learner.capacity()[0]["total"] * 0.99


def test_modules_of_hats_paper_are_the_branches_of_a_network() -> None:
    method = PathNet()
    model = start(method, build("alexnet", (3, 32, 32), part=0.258, branches=16).double(), (3, 32, 32))
    next_task(method, shape=(3, 32, 32))
    method.begin_phase(0)
    assert [s.size for s in model.units.sites] == [16 * n for n in (16, 33, 66, 528, 528)]
    for site, part in model.units.by_site(method._grid[1]):
        assert (part == torch.arange(16).repeat_interleave(site.size // 16)).all()
    # a module reads the sum of those below, so that a path has exactly its modules: 3 of 16
    used = method._used(method.paths[0])
    assert len(used) == 10
    assert all(float(amount.mean()) == 3 / 16 for amount in used.values())


def test_only_the_modules_of_the_path_are_computed() -> None:
    torch.manual_seed(0)
    net = build("alexnet", (3, 32, 32), part=0.05, branches=16)
    computed: dict[bool, list[int]] = {True: [], False: []}  # modules of the last layer, in training and in answers
    net.fc2.register_forward_hook(lambda module, args, out: computed[module.training].append(out.shape[1] // 102))
    learner = Learner(net, PathNet(generations=2), epochs=2, batch_size=8)
    for i in range(2):
        learner.learn(random_task(f"t{i}", i, (3, 32, 32)))
    assert len(computed[True]) == 2 * 2 * 2 * 3  # tasks, epochs, paths, batches
    assert set(computed[True]) <= {1, 2, 3}  # a mutated path may choose a module twice
    assert learner.verify().ok
    computed[False].clear()
    learner.predict(torch.randn(2, 3, 32, 32), task="t0")
    assert len(computed[False]) == 1
    assert computed[False][0] <= 3
