"""predict without a task: what comes back, what it stands on, and what becomes of it on disk and in copies."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.covariance import LedoitWolf
from torch import Tensor, nn

import hatrack
from hatrack import HAT, HatrackError, Hats, Learner, Task
from hatrack.learn.which.evidence import evidence
from hatrack.learn.which.measured import measured
from hatrack.learn.which.scores import SCORES
from hatrack.learn.which.statistics import _levels
from hatrack.methods import METHODS
from hatrack.targets import Classification, Dense, Regression

OLD = Path(__file__).parents[1] / "version_0_1"


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU())


def samples(number: int, count: int = 200, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return two classes about centres of their own; those of different numbers lie far apart."""
    random = torch.Generator().manual_seed(1000 * number + seed)
    centres = 4 * torch.randn(2, 8, generator=torch.Generator().manual_seed(number))
    y = torch.arange(count) % 2
    return centres[y] + 0.5 * torch.randn(count, 8, generator=random), y


def task(number: int, names: tuple[str, str] | None = None) -> Task:
    target = Classification(2, names=names)
    return Task(f"t{number}", samples(number), test=samples(number, 100, 1), target=target)


@pytest.fixture(scope="module")
def learner() -> Learner:
    made = Learner(net(), HAT(c=0.1), epochs=10, seed=0, device="cpu")
    made.learn(task(1, ("cat", "dog")), progress=False)
    for number in (2, 3):
        made.learn(task(number), progress=False)
    return made


def test_every_sample_finds_its_task_and_is_answered_in_its_words(learner: Learner) -> None:
    x = torch.cat([samples(number, 40, 2)[0] for number in (1, 2, 3)])
    answer = learner.predict(x)
    assert len(answer) == 120
    truth = [f"t{number}" for number in (1, 2, 3) for _ in range(40)]
    assert np.mean([found in (None, name) for found, name in zip(answer.task, truth, strict=True)]) > 0.97
    known = answer.known.tolist()
    assert [name is not None for name in answer.task] == known
    assert np.mean(known) > 0.8
    for row, name in enumerate(answer.task):
        if name is None:
            assert answer.label[row] is None
            continue
        logits = learner.predict(x[row : row + 1], name)
        torch.testing.assert_close(answer.logits[row : row + 1], logits)
        assert answer.label[row] == learner.decode(logits, name)[0]
    assert answer.label[0] in ("cat", "dog", None)
    assert bool(((answer.confidence >= 0) & (answer.confidence <= 1)).all())


def test_what_lies_far_away_is_none_of_these(learner: Learner) -> None:
    answer = learner.predict(samples(9, 60)[0])
    assert float(answer.known.float().mean()) < 0.2
    assert None in answer.task


def test_the_share_of_false_alarms_is_that_of_new_samples() -> None:
    made = Learner(net(), HAT(c=0.1), epochs=3, seed=0, device="cpu")
    for number in (1, 2, 3):
        made.learn(Task(f"t{number}", samples(number, 2000)), progress=False)
    for share in (0.0, 0.05, 0.3):
        new = [made.predict(samples(n, 2000, 3)[0], false_alarms=share).known.double().mean() for n in (1, 2, 3)]
        four = 4 * np.sqrt(share * (1 - share) / 900) + 0.005  # deviations, of 300 held-out samples a task
        assert np.mean(new) == pytest.approx(1 - share, abs=four)
    some, more = (made.predict(samples(1, 100)[0], false_alarms=share).known for share in (0.3, 0.05))
    assert bool((more | ~some).all())


def test_a_threshold_of_few_held_out_samples_errs_on_the_side_of_silence() -> None:
    """Of n samples in any order, a new one is above the ⌈q·(n + 1)⌉-th with probability 1 − q, or less."""
    levels = _levels(torch.arange(9.0))
    by_hand = [min(max(int(np.ceil(round(q * 10, 6))) - 1, 0), 8) for q in np.linspace(0, 1, 201)]
    assert levels.tolist() == by_hand


def test_the_distance_is_that_of_scikit_learns_covariance_of_the_task_s_own_training_samples(learner: Learner) -> None:
    made = task(2)
    train, _ = learner._samples.parts(made, 1)
    x, rows, y = train.split.placed(learner.device)
    with learner.model.alone():
        features = evidence(learner.method, x[rows], 1).features.numpy().astype(np.float64)
        asked = evidence(learner.method, samples(3)[0], 1).features
    means = np.stack([features[y == c].mean(0) for c in (0, 1)])
    inverse = np.linalg.inv(LedoitWolf(assume_centered=True).fit(features - means[y]).covariance_)
    nearest = [
        np.einsum("ncp,pq,ncq->nc", apart, inverse, apart).min(1)
        for apart in ((f[:, None] - means) for f in (features, asked.numpy()))
    ]
    which = learner.tasks[1].which
    assert which is not None
    np.testing.assert_allclose(which.gaussian.distances(asked).min(1).values, nearest[1], rtol=1e-3)
    assert float(which.mean) == pytest.approx(nearest[0].mean(), rel=1e-3)
    assert float(which.deviation) == pytest.approx(nearest[0].std(), rel=1e-3)


def test_of_many_samples_some_are_looked_at_of_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Learner(net(), HAT(c=0.1), epochs=2, seed=0, device="cpu")
    monkeypatch.setattr("hatrack.learn.which.statistics.VALUES", 50 * 40)  # about 40 of 170, whose classes alternate
    made.learn(task(1), progress=False)
    which = made.tasks[0].which
    assert which is not None
    assert len(which.gaussian.means) == 2
    assert float(made.predict(samples(1, 200, 2)[0]).known.float().mean()) > 0.8


def test_later_tasks_change_nothing_of_what_was_noted(learner: Learner) -> None:
    alone = Learner(net(), HAT(c=0.1), epochs=10, seed=0, device="cpu")
    alone.learn(task(1), progress=False)
    first, later = alone.tasks[0].which, learner.tasks[0].which
    assert first is not None
    assert later is not None
    assert all(torch.equal(t, later.tensors()[name]) for name, t in first.tensors().items())


@pytest.mark.parametrize("score", SCORES)
def test_every_score_can_be_asked_by_name(learner: Learner, score: str) -> None:
    answer = learner.predict(samples(2, 20, 5)[0], score=score)
    assert len(answer) == 20
    assert bool(answer.confidence.isfinite().all())


def test_one_sample_without_a_batch_axis_is_a_batch_of_one(learner: Learner) -> None:
    assert len(learner.predict(samples(1)[0][0])) == 1


def test_saved_loaded_copied_and_verified(learner: Learner, tmp_path: Path) -> None:
    x = samples(2, 30, 4)[0]
    before = learner.predict(x)
    learner.save(tmp_path)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(row.numpy().tobytes() in stored for row in samples(1)[0])
    for one in (hatrack.load(tmp_path, net(), device="cpu"), copy.deepcopy(learner)):
        again = one.predict(x)
        assert again.task == before.task
        assert torch.equal(again.confidence, before.confidence)
        assert one.verify().ok
        which = one.tasks[0].which
        assert which is not None
        words = which.gaussian.directions.view(torch.uint8).view(-1)
        words[5] ^= 1
        assert "which/directions" in str(one.verify())
    assert learner.verify().ok


def test_a_saved_file_without_them_loads_and_says_what_is_missing(learner: Learner, tmp_path: Path) -> None:
    loaded = hatrack.load(OLD / "hat", _old_net(), device="cpu")
    assert loaded.verify().ok
    with pytest.raises(HatrackError, match=r"has no statistics .* saved by an earlier version"):
        loaded.predict(torch.rand(2, 1, 3, 3))


def _old_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.ReLU())


def test_statistics_are_as_small_as_the_open_units(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path)
    page = json.loads((tmp_path / "learner.json").read_text())
    held = load_file(tmp_path / page["files"]["tasks"]["name"])
    masks = learner.masks()
    assert masks is not None
    opened = sum(int(mask.sum()) for name, mask in masks.items() if name.startswith("0/"))
    assert held["which/0/directions"].shape == (opened, opened)
    assert held["which/0/means"].shape == (2, opened)


def test_a_task_that_failed_or_was_given_up_leaves_none() -> None:
    made = Learner(net(), HAT(), epochs=2, device="cpu")
    made.learn(task(1), progress=False)

    def fails(_: object) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        made.learn(task(2), on_epoch=fails, progress=False)
    assert [learned.which is not None for learned in made.tasks] == [True]
    assert set(made.predict(samples(2, 10)[0]).task) <= {"t1", None}


def test_a_resumed_task_has_the_same_bits(tmp_path: Path) -> None:
    made = [Learner(net(), HAT(), epochs=4, device="cpu") for _ in range(2)]
    made[0].learn(task(1), progress=False)

    def stop(epoch: hatrack.Epoch) -> None:
        if epoch.epoch == 2:
            made[1].save(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made[1].learn(task(1), on_epoch=stop, progress=False)
    resumed = hatrack.load(tmp_path, net(), device="cpu")
    resumed.learn(task(1), progress=False)
    one, other = made[0].tasks[0].which, resumed.tasks[0].which
    assert one is not None
    assert other is not None
    assert all(torch.equal(t, other.tensors()[name]) for name, t in one.tensors().items())


def test_heads_of_several_widths_are_padded_and_a_task_of_other_inputs_is_left_out() -> None:
    made = Learner(net(), HAT(c=0.1), epochs=5, device="cpu")
    made.learn(task(1), progress=False)
    x, y = samples(2)
    made.learn(Task("three", (x, y + (x[:, 0] > x[:, 0].median())), classes=3), progress=False)
    made.learn(Task("figures", (samples(3)[0], samples(3)[0][:, :1]), target=Regression()), progress=False)
    answer = made.predict(torch.cat([samples(1, 20, 2)[0], samples(2, 20, 2)[0], samples(3, 20, 2)[0]]))
    assert answer.logits.shape == (60, 3)
    assert bool(answer.logits[:20, 2].isneginf().all())
    assert answer.task.count("figures") > 10
    assert answer.logits.softmax(1).argmax(1)[:20].max() < 2


def test_what_cannot_be_asked_is_one_line(learner: Learner) -> None:
    with pytest.raises(HatrackError, match="false_alarms is a share"):
        learner.predict(torch.rand(1, 8), false_alarms=5)
    with pytest.raises(HatrackError, match="unknown score"):
        learner.predict(torch.rand(1, 8), score="nearest")
    with pytest.raises(HatrackError, match="task 't1': got float32"):
        learner.predict(1e6 * torch.ones(1, 8))
    with pytest.raises(HatrackError, match="no task is learned yet"):
        Learner(net(), HAT(), device="cpu").predict(torch.rand(1, 8))
    by_place = Learner(nn.Conv2d(1, 4, 3, padding=1), METHODS["sgd"](), epochs=1, device="cpu")
    x = torch.rand(20, 1, 4, 4)
    by_place.learn(Task("places", (x, (x[:, 0] > 0.5).long()), target=Dense(2, axis=1)), progress=False)
    with pytest.raises(HatrackError, match="answers at every position"):
        by_place.predict(x)


def test_hats_find_tasks_that_were_begun_with_their_data() -> None:
    hats = Hats(net(), HAT(c=0.1))
    for number in (1, 2):
        x, y = samples(number)
        hats.begin(f"t{number}", Classification(2), steps=4, data=(x, y))
        optimizer = hats.guard(torch.optim.AdamW(hats.trainable(), lr=0.01))
        for _ in range(20):
            optimizer.zero_grad()
            (nn.functional.cross_entropy(hats(x), y) + hats.penalty()).backward()
            optimizer.step()
        hats.end()
    answer = hats.predict(samples(2, 40, 2)[0])
    assert not isinstance(answer, Tensor)
    assert answer.task.count("t2") > 30
    assert torch.equal(hats.predict(samples(2)[0], "t2"), hats.wear("t2")(samples(2)[0]))


def test_measured_counts_what_predict_says(learner: Learner) -> None:
    found = measured(learner)
    assert found is not None
    for index, number in enumerate((1, 2, 3)):
        x, y = samples(number, 100, 1)
        right = learner.predict(x, index).argmax(1) == y
        nearest = torch.tensor([bool(n == f"t{number}") for n in _nearest(learner, x)])
        assert found["found"][index][index] == pytest.approx(float(nearest.float().mean()))
        assert found["accuracy"][index] == pytest.approx(float((nearest & right).float().mean()))
        assert found["none"][index] == pytest.approx(1 - float(learner.predict(x).known.float().mean()))
        assert sum(found["found"][index]) == pytest.approx(1)
    assert found["auroc"] > 0.9


def _nearest(learner: Learner, x: Tensor) -> list[str]:
    """Choose by the formula: D² to the nearest class less its mean over its deviation, in the training samples."""
    values = []
    for index, learned in enumerate(learner.tasks):
        which = learned.which
        assert which is not None
        with learner.model.alone():
            nearest = which.gaussian.distances(evidence(learner.method, x, index).features).min(1).values
        values.append((nearest - which.mean) / which.deviation)
    return [learner.tasks[place].name for place in torch.stack(values, 1).argmin(1).tolist()]


def test_nothing_is_measured_where_a_test_part_is_not_at_hand(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path)
    assert measured(hatrack.load(tmp_path, net(), device="cpu")) is None
