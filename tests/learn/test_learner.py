"""The learner as a user meets it: learn, predict, save, load, verify, and its refusals."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import hatrack
from hatrack import HAT, HatrackError, HatrackWarning, Learner, Task
from hatrack.learn.fit import DivergenceWarning, Epoch
from hatrack.learn.state import verify
from hatrack.methods import METHODS
from hatrack.nets import build
from sealing import edited

SHAPE = (1, 8, 8)
ENTRIES = 64 * 40 + 40 + 40 * 30 + 30  # of the network below


def net(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return build("mlp", SHAPE, widths=(40, 30), dropout=0.2, input_dropout=0.0)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:3]


def bits(t: torch.Tensor) -> torch.Tensor:
    return t.detach().contiguous().view(torch.int32)


def test_learns_real_digits_and_answers_by_name_and_number(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=25, seed=0)
    epochs: list[Epoch] = []
    for task in tasks[:2]:
        learner.learn(task, on_epoch=epochs.append)
    assert learner.finished == 2
    assert [e.epoch for e in epochs[:3]] == [1, 2, 3]
    assert all(learner.evaluate(t, i) > 0.9 for i, t in enumerate(tasks[:2]))
    x = tasks[0].test.first(7)
    assert torch.equal(learner.predict(x, "digits 0-1"), learner.predict(x, 0))
    assert learner.evaluate(tasks[1], tasks[1].name) == learner.evaluate(tasks[1], np.int64(1))  # type: ignore[arg-type]
    assert learner.predict(x.numpy(), 1).shape == (7, 2)
    assert learner.verify().ok


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("sgd", 0),
        ("pmask", 2 * math.ceil(ENTRIES / 8)),  # a bit an entry and task
        ("ewc", 2 * 4 * ENTRIES),  # Fisher and anchor
        ("one", 2 * 4 * ENTRIES),  # a network a task
    ],
)
def test_what_is_kept_besides_network_and_heads(name: str, kept: int, tasks: list[Task]) -> None:
    learner = Learner(net(), METHODS[name](), epochs=1)
    for task in tasks[:2]:
        learner.learn(task)
    assert learner.kept_bytes() == kept


def test_the_float64_array_that_a_task_was_learned_from_can_be_predicted() -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 5)), np.arange(30) % 2
    learner = Learner(build("mlp", (5,), widths=(8,)), METHODS["sgd"](), epochs=1)
    learner.learn(Task("t", (x, y), inputs=hatrack.Inputs((0.3,), (1.7,))))
    logits = learner.predict(x, "t")
    assert torch.equal(bits(logits), bits(learner.predict(x.astype(np.float32), "t")))
    assert torch.equal(bits(logits), bits(learner.predict(x.tolist(), "t")))  # type: ignore[arg-type]


def test_the_best_epoch_is_what_remains(tasks: list[Task]) -> None:
    learner, seen = Learner(net(), METHODS["sgd"](), epochs=12, seed=1), {}
    best: list[Epoch] = []

    def keep(epoch: Epoch) -> None:
        if epoch.best:
            seen.clear()
            seen.update({n: p.detach().clone() for n, p in learner.model.net.named_parameters()})
            best.append(epoch)

    learner.learn(tasks[0], on_epoch=keep)
    assert all(torch.equal(p, seen[n]) for n, p in learner.model.net.named_parameters())
    losses = [e.valid_loss for e in best]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("name", ["hat", "sgd", "sgd-frozen", "sgd-restart", "joint", "random"])
def test_saved_and_loaded_learners_agree_bit_for_bit(name: str, tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS[name](), epochs=3, seed=0)
    for task in tasks[:2]:
        learner.learn(task)
    learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, net(seed=5))
    x = tasks[0].test.first(20)
    for t in range(2):
        assert torch.equal(bits(learner.predict(x, t)), bits(loaded.predict(x, t)))
    if METHODS[name].needs_old_data:
        with pytest.raises(HatrackError, match="remember"):
            loaded.learn(tasks[2])
        for task in tasks[:2]:
            loaded.remember(task)
    learner.learn(tasks[2])
    loaded.learn(tasks[2])
    assert torch.equal(bits(learner.predict(x, 2)), bits(loaded.predict(x, 2)))
    assert not any(path.suffix in (".pt", ".pkl") for path in tmp_path.iterdir())


LATERALS = (1 + 40 * 40 + 30 * 40) + (1 + 30 * 30 + 2 * 30)  # of fc2 and the head: a scalar, V and U


@pytest.mark.parametrize(
    ("name", "networks", "added"),
    [("hat", 1, 0), ("ewc", 1, 0), ("lwf", 1, 0), ("one", 2, 0), ("finetune-copy", 2, 0), ("pnn", 2, LATERALS)],
)
def test_parameters_are_all_that_tasks_are_answered_with(name, networks, added, tasks, tmp_path) -> None:
    learner = Learner(net(), METHODS[name](), epochs=1, seed=0)
    network, head = (64 * 40 + 40) + (40 * 30 + 30), 30 * 2 + 2
    assert learner.parameters_count == network
    for task in tasks[:2]:
        learner.learn(task)
    assert learner.parameters_count == networks * network + 2 * head + added
    learner.save(tmp_path)
    assert hatrack.load(tmp_path, net(seed=5)).parameters_count == learner.parameters_count


def test_norms_that_are_one_a_task_are_counted_for_each(tasks: list[Task]) -> None:
    made = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 20, bias=False), torch.nn.BatchNorm1d(20), torch.nn.ReLU()
    )
    learner = Learner(made, HAT(), epochs=1, seed=0)
    for task in tasks[:2]:
        learner.learn(task)
    assert learner.parameters_count == 64 * 20 + 2 * (2 * 20) + 2 * (20 * 2 + 2)  # running statistics are none


@pytest.mark.parametrize("name", ["hat", "joint"])
@pytest.mark.parametrize("optimizer", [None, lambda p: torch.optim.Adam(p, lr=1e-3)], ids=["own", "adam"])
def test_a_learner_saved_in_mid_task_goes_on_as_if_nothing_had_happened(name, optimizer, tasks, tmp_path) -> None:
    whole = Learner(net(), METHODS[name](), optimizer, epochs=5, seed=0)
    for task in tasks[:2]:
        whole.learn(task)

    class Stop(Exception):
        pass

    broken = Learner(net(), METHODS[name](), optimizer, epochs=5, seed=0)

    def stop(epoch: Epoch) -> None:
        broken.save(tmp_path)
        if epoch.task == 1 and epoch.epoch == 3:
            raise Stop

    broken.learn(tasks[0], on_epoch=stop)
    with pytest.raises(Stop):
        broken.learn(tasks[1], on_epoch=stop)
    again = hatrack.load(tmp_path, net(seed=3), optimizer=optimizer)
    assert again.finished == 1
    if METHODS[name].needs_old_data:
        again.remember(tasks[0])
    left: list[Epoch] = []
    again.learn(tasks[1], on_epoch=left.append)
    assert [e.epoch for e in left] == [4, 5]
    for (n, a), (_, b) in zip(whole.model.net.named_parameters(), again.model.net.named_parameters(), strict=True):
        assert torch.equal(bits(a), bits(b)), n


def test_same_seed_same_weights_and_another_seed_others(tasks: list[Task]) -> None:
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(123 + len(runs))  # the caller's generator must not matter once the net is built
        learner = Learner(net(), HAT(), epochs=2, seed=seed)
        state = torch.random.get_rng_state()
        learner.learn(tasks[0])
        assert torch.equal(torch.random.get_rng_state(), state)  # nor be disturbed
        runs.append(torch.cat([p.detach().flatten() for p in learner.model.net.parameters()]))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_diverging_training_falls_back_to_the_best_weights() -> None:
    x, y = torch.randn(64, 5), torch.arange(64) % 2
    torch.manual_seed(0)
    learner = Learner(build("mlp", (5,), widths=(8,), dropout=0.0), METHODS["sgd"](lr=1e20, clip=1e30), epochs=8)
    seen: list[Epoch] = []
    with pytest.warns(DivergenceWarning, match=r"'t' diverged in epoch 1 at a learning rate of 1e\+20: ") as told:
        learner.learn(Task("t", (x, y), (x, y), (x, y)), on_epoch=seen.append)
    assert len(told) == 1  # though more epochs diverge
    assert not any(math.isfinite(e.valid_loss) for e in seen[:2])
    assert all(torch.isfinite(p).all() for p in learner.model.net.parameters())
    assert seen[-1].lr < seen[0].lr


@pytest.mark.filterwarnings("ignore::hatrack.learn.fit.DivergenceWarning")
@pytest.mark.parametrize(
    ("method", "optimizer"),
    [("sgd", lambda p: torch.optim.SGD(p, lr=10.0, momentum=0.9)), ("si", lambda p: torch.optim.SGD(p, lr=10.0))],
)
def test_nothing_that_is_not_finite_outlives_the_epoch_that_diverged(
    method: str, optimizer: Callable[..., torch.optim.Optimizer], tasks: list[Task]
) -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.LeakyReLU(0.2))]
    learner = Learner(torch.nn.Sequential(torch.nn.Flatten(), *layers), METHODS[method](), optimizer, epochs=40)
    epochs: list[Epoch] = []
    for task in tasks[:2]:
        learner.learn(task, on_epoch=epochs.append)
    lost = [not (math.isfinite(e.train_loss) and math.isfinite(e.valid_loss)) for e in epochs]
    assert any(lost)
    assert sum(lost) < len(lost) / 2
    assert all(torch.isfinite(t).all() for t in learner.method.state().values())
    assert learner.evaluate(tasks[1], 1) > 0.65


def test_a_task_of_one_class_is_named(tasks: list[Task]) -> None:
    alone = Task("alone", train=(tasks[0].train.first(20), [0] * 20))
    with pytest.warns(hatrack.HatrackWarning, match="task 'alone' has one class: whatever is learned"):
        Learner(net(), METHODS["sgd"](), epochs=1).learn(alone)


def test_a_learning_rate_below_the_least_is_refused(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), lambda p: torch.optim.Adam(p, lr=5e-5), epochs=2)
    with pytest.raises(HatrackError, match=r"starts at 5e-05, below lr_min 0\.0001"):
        learner.learn(tasks[0])


def test_parts_that_differ_are_refused_before_anything_is_learned(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    x, y = torch.zeros(9, 1, 8, 8), torch.arange(9) % 2
    odd = Task("odd", (x, y), (x, y), (torch.zeros(9, 1, 9, 9), y))
    with pytest.raises(HatrackError, match=r"'odd' has training inputs \(1, 8, 8\) .* test inputs \(1, 9, 9\)"):
        learner.learn(odd)
    learner.learn(tasks[0])
    assert (learner.finished, len(learner.capacities)) == (1, 1)


@pytest.mark.parametrize("wrong", [torch.zeros(9, 1, 5, 5), torch.zeros(9, 1, 8, 8, dtype=torch.float64)])
def test_a_first_task_that_the_network_cannot_take_leaves_room_for_one_that_it_can(
    wrong: torch.Tensor, tasks: list[Task]
) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    with pytest.raises(HatrackError, match="the network cannot take the inputs of task 'wrong'"):
        learner.learn(Task("wrong", (wrong, torch.arange(9) % 2)))
    learner.learn(tasks[0])
    assert learner.verify().ok


def test_a_learner_stopped_while_it_finished_a_task_says_so(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Learner(net(), HAT(), epochs=1)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(HAT, "use", stop)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[0])
    for refused in (lambda: learner.learn(tasks[0]), lambda: learner.save(tmp_path)):
        with pytest.raises(HatrackError, match="stopped while it finished task 'digits 0-1'"):
            refused()


def test_verify_finds_an_edited_checkpoint(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=3, seed=0)
    for task in tasks[:2]:
        learner.learn(task)
    learner.save(tmp_path)
    assert verify(tmp_path, net()).ok
    live = next(tmp_path.glob("live-*"))
    tensors = load_file(live)
    used = learner.method.use(0)["fc2.weight"].nonzero()[0].tolist()
    tensors["net/fc2.weight"][tuple(used)] += 1e-3
    save_file(tensors, live)
    verdict = verify(tmp_path, net())
    assert not verdict.ok
    assert "fc2" in str(verdict)
    assert "SHA-256" in str(verdict)
    assert verdict.tasks[0].drifts[0].entries == 1
    with pytest.raises(HatrackError, match="was changed after it was written"):
        hatrack.load(tmp_path, net())
    digest = hashlib.sha256(live.read_bytes()).hexdigest()  # even one that also forges the digests
    edited(tmp_path / "learner.json", lambda page: page["files"]["live"].update(sha256=digest))
    verdict = verify(tmp_path, net())
    assert not verdict.tampered
    assert not verdict.ok


def test_verify_finds_an_edited_page(tasks: list[Task], tmp_path: Path) -> None:
    """How inputs are prepared stands there, and decides what an old task answers."""
    learner = Learner(net(), HAT(), epochs=1, seed=0)
    learner.learn(tasks[0])
    learner.save(tmp_path)
    page = json.loads((tmp_path / "learner.json").read_text())
    page["tasks"][0]["inputs"]["mean"] = [0.9]
    (tmp_path / "learner.json").write_text(json.dumps(page))
    verdict = verify(tmp_path, net())
    assert not verdict.ok
    assert "learner.json was changed after it was written" in str(verdict)
    with pytest.raises(HatrackError, match=r"learner\.json was changed after it was written"):
        hatrack.load(tmp_path, net())


def test_a_save_is_loaded_with_the_method_that_it_is_of(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    learner.learn(tasks[0])
    learner.save(tmp_path)
    assert hatrack.load(tmp_path, net(), method=HAT(c=0.1)).method.c == 0.1
    with pytest.raises(HatrackError, match="holds a learner of hat, got method=pmask; leave method= out"):
        hatrack.load(tmp_path, net(), method=METHODS["pmask"]())


def test_a_save_is_loaded_with_its_optimiser_or_says_which_it_had(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), optimizer=torch.optim.AdamW, epochs=2)
    learner.learn(tasks[0])
    learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, net())
    with pytest.warns(HatrackWarning, match="was trained with AdamW; it goes on with hat's own optimiser: to keep"):
        loaded.learn(tasks[1])
    learner.learn(tasks[1], on_epoch=lambda epoch: learner.save(tmp_path) if epoch.epoch == 1 else None)
    with pytest.raises(HatrackError, match="was interrupted under AdamW, and now there is SGD; load the learner with"):
        hatrack.load(tmp_path, net()).learn(tasks[1])
    hatrack.load(tmp_path, net(), optimizer=torch.optim.AdamW).learn(tasks[1])


@pytest.mark.parametrize("method", ["hat", "pmask", "packnet", "supsup", "pathnet", "sgd-frozen", "one"])
def test_a_stop_between_optimiser_and_lock_changes_no_old_task(method: str, tasks: list[Task], tmp_path: Path) -> None:
    class Stopped(torch.optim.AdamW):
        steps = -1

        def step(self, closure: None = None) -> None:  # type: ignore[override]
            super().step(closure)
            Stopped.steps -= 1
            if Stopped.steps == 0:
                raise KeyboardInterrupt

    def factory(parameters: Any) -> torch.optim.Optimizer:
        return Stopped(parameters, lr=0.01, weight_decay=0.1)

    learner = Learner(net(), METHODS[method](), optimizer=factory, epochs=2)
    learner.learn(tasks[0])
    x = tasks[0].test.first(20)
    before = learner.predict(x, 0)
    Stopped.steps = 3
    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[1])
    assert torch.equal(learner.predict(x, 0), before)
    learner.save(tmp_path)
    for each in (learner, hatrack.load(tmp_path, net(), optimizer=factory)):
        each.learn(tasks[1])
        assert torch.equal(each.predict(x, 0), before)
        assert each.verify().ok


def test_a_checkpoint_that_is_cut_short_is_not_sent_to_verify(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS["sgd"](), epochs=1)
    learner.learn(tasks[0])
    learner.save(tmp_path)
    live = next(tmp_path.glob("live-*"))
    live.write_bytes(live.read_bytes()[:100])
    with pytest.raises(HatrackError, match=r"cannot be read as safetensors .*; load an older save") as told:
        hatrack.load(tmp_path, net())
    assert "verify" not in str(told.value)


def test_a_plain_network_forgets_and_verify_says_so(tasks: list[Task]) -> None:
    learner = Learner(net(), METHODS["sgd"](), epochs=2)
    for task in tasks[:2]:
        learner.learn(task)
    verdict = learner.verify()
    assert not verdict.ok
    assert verdict.tasks[1].ok
    assert "no promise" in str(verdict)


def test_a_task_learned_last_is_unchanged_under_soft_gates_too(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(hard=False, s_max=10), epochs=3)
    for task in tasks[:2]:
        learner.learn(task)
    use = learner.method.use(1)
    assert use is not None
    parameters = dict(learner.model.net.named_parameters())
    assert any(learner.locked_values.drifts(parameters, use))  # relied on as they were before
    verdict = learner.verify()
    assert verdict.tasks[1].ok
    assert "no promise" in str(verdict)


class Twofold(torch.nn.Module):
    """Returns its features and something else."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return self.layer(x.flatten(1)), 1


@pytest.mark.parametrize("name", ["hat", "sgd"])
def test_a_network_that_returns_several_things_is_refused(name: str, tasks: list[Task]) -> None:
    with pytest.raises(HatrackError, match=r"Twofold gives a tuple of 2 as features, .* must be one tensor"):
        Learner(Twofold(), METHODS[name](), epochs=1).learn(tasks[0])


def test_random_draws_labels_by_their_frequency() -> None:
    y = (torch.arange(4000) % 10 == 0).long()
    torch.manual_seed(0)
    learner = Learner(build("mlp", (3,), widths=(4,)), METHODS["random"]())
    learner.learn(Task("t", (torch.zeros(4000, 3), y), (torch.zeros(8, 3), y[:8]), (torch.zeros(4000, 3), y)))
    share = learner.predict(torch.zeros(4000, 3), 0).argmax(1).double().mean()
    assert abs(float(share) - 0.1) < 0.02
    task = Task("t", (torch.zeros(4000, 3), y), test=(torch.zeros(4000, 3), y))
    assert learner.evaluate(task, 0) == pytest.approx(0.9**2 + 0.1**2, abs=0.03)


def test_clear_refusals(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    learner.learn(tasks[0])
    saved, made = tmp_path / "saved", torch.optim.Adam(net().parameters())
    learner.save(saved)
    for call, says in (
        (lambda: learner.learn(tasks[0]), "learned already"),
        (lambda: learner.predict(torch.zeros(1, 1, 8, 8), "digits 0-2"), "did you mean 'digits 0-1'"),
        (lambda: learner.predict(torch.zeros(1, 1, 8, 8), 4), "no task number 4"),
        (lambda: learner.learn(Task("odd", (np.zeros((9, 5), "f4"), np.arange(9) % 2))), "shape"),
        (lambda: Learner(net(), HAT(s_max=0.1)), "1.0 ≤ s_max"),
        (lambda: learner.predict(torch.zeros(1, 1, 8, 8), 0.0), "by its number or its name, got 0.0"),  # type: ignore[arg-type]
        (lambda: learner.evaluate(tasks[0], None), "by its number or its name, got None"),  # type: ignore[arg-type]
        (lambda: learner.evaluate(tasks[0], 7), "no task number 7"),
        (lambda: learner.evaluate(tasks[0], -1), "no task number -1"),
        (lambda: learner.evaluate(tasks[0], "digits"), "unknown task 'digits'"),
        (lambda: Learner(net(), epochs=0), "epochs must be a whole number, at least 1, got 0"),
        (lambda: Learner(net(), epochs="10"), "epochs must be a whole number, at least 1, got '10'"),  # type: ignore[arg-type]
        (lambda: Learner(net(), epochs=2.5), "epochs must be a whole number, at least 1, got 2.5"),  # type: ignore[arg-type]
        (lambda: Learner(net(), batch_size=8.5), "batch_size must be a whole number"),  # type: ignore[arg-type]
        (lambda: Learner(net(), seed=None), "seed must be a whole number, at least 0, got None"),  # type: ignore[arg-type]
        (lambda: Learner(net(), workers=-1), "workers must be a whole number, at least 0, got -1"),
        (lambda: Learner("mlp"), "net must be a torch module .* got str; hatrack.nets.build"),  # type: ignore[arg-type]
        (lambda: hatrack.load(saved, None), "net must be a torch module .* got NoneType"),  # type: ignore[arg-type]
        (lambda: Learner(net(), optimizer="adam"), "optimizer must be a callable .* got str"),  # type: ignore[arg-type]
        (lambda: Learner(net(), optimizer=made), "optimizer must be a callable .* got Adam"),  # type: ignore[arg-type]
        (lambda: Learner(net(), learner.method), "this hat object belongs to another learner; make a new one"),
        (lambda: hatrack.load(saved, net(), learner.method), "belongs to another learner"),
        (lambda: Learner(net(), device="cuda:7"), "cuda:7"),
        (lambda: Learner(torch.nn.ReLU()), "no parameters"),
        (lambda: Learner(net(), "ewc"), r"METHODS\['ewc'\]\(\), got 'ewc'"),  # type: ignore[arg-type]
        (lambda: Learner(net(), HAT), "such as hatrack.HAT"),  # type: ignore[arg-type]
        (lambda: learner.learn((np.zeros((9, 5)), np.zeros(9))), "learn takes a task, .* got tuple"),  # type: ignore[arg-type]
        (
            lambda: learner.predict(torch.zeros(2, 9), 0),
            r"of shape \(1, 8, 8\) and torch\.float32, got one of shape \(2, 9\)",
        ),
        (lambda: learner.predict(torch.zeros(2, 1, 8, 8).double(), 0), r"torch\.float32, got one .* torch\.float64"),
        (lambda: learner.predict(None, 0), "inputs must be numbers .* got NoneType"),  # type: ignore[arg-type]
        (lambda: hatrack.load(tmp_path / "nothing", net()), "no saved learner"),
    ):
        with pytest.raises(HatrackError, match=says) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_learner_without_tasks_says_so(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    for asked in (0, "digits 0-1"):
        with pytest.raises(HatrackError, match=f"there is no task {asked!r}: none is learned yet"):
            learner.predict(torch.zeros(1, 1, 8, 8), asked)
        with pytest.raises(HatrackError, match="none is learned yet"):
            learner.evaluate(tasks[0], asked)


def test_a_method_that_was_refused_with_its_network_is_still_free() -> None:
    method = HAT()
    with pytest.raises(HatrackError, match="no shape yet"):
        Learner(torch.nn.LazyLinear(3), method)
    assert Learner(net(), method).method is method


def test_a_load_into_another_architecture_names_what_differs(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    learner.learn(tasks[0])
    learner.save(tmp_path)
    with pytest.raises(HatrackError, match=r"fc1\.weight"):
        hatrack.load(tmp_path, build("mlp", SHAPE, widths=(41, 30)))


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, torch.AcceleratorError])
def test_a_device_that_gives_up_is_not_taken_for_a_network_that_does_not_fit(kind: type[Exception]) -> None:
    class Full(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise kind("no room")

    with pytest.raises(kind, match="no room"):
        Learner(Full(), METHODS["sgd"](), epochs=1).learn(Task("t", (torch.randn(20, 5), torch.arange(20) % 2)))


def test_one_sample_is_a_batch_of_one_and_no_device_is_none(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    learner.learn(tasks[0])
    x = tasks[0].test.first(3)
    assert torch.equal(learner.predict(x[1], 0), learner.predict(x[1:2], 0))
    with pytest.raises(HatrackError, match=r"takes a batch of inputs of shape \(1, 8, 8\)"):
        learner.predict(torch.zeros(()), 0)
    with pytest.raises(HatrackError, match="device 'None' cannot be used"):
        Learner(net(), HAT(), device=None)  # type: ignore[arg-type]
    lists = Learner(torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU()), HAT(), epochs=1)
    lists.learn(Task("t", (torch.randn(20, 3), torch.arange(20) % 2)))
    assert lists.predict([0.5, 1.0, 2.0], 0).shape == (1, 2)  # type: ignore[arg-type]


def test_values_of_another_range_are_refused_and_not_answered(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    learner.learn(tasks[0])
    learner.save(tmp_path)
    x = tasks[0].test.first(9)
    for one in (learner, hatrack.load(tmp_path, net())):
        right = one.predict(x, 0)
        assert torch.equal(bits(one.predict(x.float() / 255, 0)), bits(right))
        assert torch.isfinite(one.predict(torch.zeros(4, 1, 8, 8), 0)).all()
        for wrong in (x.float(), x.long(), x.double(), (x.float() / 255 - 0.3053) / 0.3760):
            with pytest.raises(
                HatrackError, match=r"task 'digits 0-1': got .* the task was trained on uint8 from 0 to"
            ):
                one.predict(wrong, 0)


def test_ids_that_no_embedding_holds_are_named() -> None:
    embedding = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(12, 6))
    learner = Learner(embedding, METHODS["sgd"](), epochs=1, device="cpu")
    x = torch.randint(0, 9, (30, 3), generator=torch.Generator().manual_seed(0))
    learner.learn(Task("ids", (x, torch.arange(30) % 2)))
    assert learner.verify().ok
    assert learner.predict(torch.tensor([[9, 9, 9]]), "ids").shape == (1, 2)  # beyond what was seen, and it is there
    with pytest.raises(
        HatrackError, match=r"task 'ids': got values from 0 to 10, it was trained on 0 to 8 \(index out"
    ):
        learner.predict(torch.tensor([[0, 1, 10]]), "ids")


@pytest.mark.parametrize("dtype", [torch.long, torch.float32])
def test_columns_that_look_up_different_tables_are_drawn_each_within_its_own(dtype: torch.dtype) -> None:
    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.large = torch.nn.Embedding(2, 3), torch.nn.Embedding(500, 3)
            self.layer = torch.nn.Linear(6, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            both = torch.cat([self.small(x[:, 0].long()), self.large(x[:, 1].long())], 1)
            return torch.relu(self.layer(both))

    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(0, n, (40,), generator=generator) for n in (2, 500)]
    learner = Learner(Table(), METHODS["pmask"](), epochs=1, device="cpu")
    learner.learn(Task("table", (torch.stack(columns, 1).to(dtype), torch.arange(40) % 2)))
    assert learner.verify().ok


def test_a_network_that_takes_samples_only_says_so_before_it_has_learned() -> None:
    class Particular(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not bool((x.sum(1) == 1).all()):
                raise ValueError("no share is left over")
            return torch.relu(self.layer(x))

    shares = torch.eye(3).repeat(10, 1)
    learner = Learner(Particular(), METHODS["sgd"](), epochs=1)
    seen: list[Epoch] = []
    with pytest.raises(HatrackError, match=r"not all values between .* \(no share is left over\); .* let forward take"):
        learner.learn(Task("t", (shares, torch.arange(30) % 2)), on_epoch=seen.append)
    assert not seen


def test_what_a_method_adds_up_goes_back_with_the_weights_when_an_epoch_diverges(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TAG's moments take part in every later step: one that is not finite would make them all so."""
    tag = METHODS["tag"]
    loss, steps = tag.loss, iter(range(10_000))
    monkeypatch.setattr(tag, "loss", lambda self, batch: loss(self, batch) * (math.nan if next(steps) == 7 else 1.0))
    learner, epochs = Learner(net(), tag(), epochs=5), []
    with pytest.warns(DivergenceWarning):
        learner.learn(tasks[0], on_epoch=epochs.append)
    finite = [math.isfinite(epoch.train_loss) for epoch in epochs]
    assert finite.count(False) == 1
    assert finite[-1]
    assert all(torch.isfinite(t).all() for t in learner.method.in_progress().values())
