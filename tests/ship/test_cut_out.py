"""Cut-outs: right on every network, the same after later tasks, and free of hatrack."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hatrack
from hatrack import HAT, DivergenceWarning, HatrackError, Hats, Inputs, Learner, Task, load
from hatrack.methods import METHODS
from hatrack.methods.base import Method
from hatrack.ship.stored import digest, packed
from hatrack.targets import Classification, Dense, Regression
from zoo import ZOO, Lively, tasks, unit_map

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.CapacityWarning")
FAST = ("alexnet", "vgg", "resnet18", "lstm", "vit")
NEAR = 1e-5
MASKING = ("pmask", "packnet", "supsup", "wsn")  # weights, not units


def learned(name: str, method: Method | None = None, count: int = 1) -> tuple[Learner, list[Task]]:
    """Return a learner of some tasks on a network of the zoo."""
    kept, hat = ZOO[name], method is None
    learner = Learner(kept.build(), method or Lively(), epochs=1, batch_size=8, device="cpu")
    if hat:
        learner.model.__dict__["units"] = unit_map(name)
    given = tasks(kept, count=count)
    for task in given:
        learner.learn(task, progress=False)
    return learner, given


def of(task: Task, net: nn.Module, method: Method | None = None, **options: int) -> Learner:
    """Return a learner of one task."""
    learner = Learner(net, method or Lively(), epochs=1, batch_size=8, device="cpu", **options)
    learner.learn(task, progress=False)
    return learner


def require_same(learner: Learner, cut: nn.Module, x: Tensor, task: int = 0) -> None:
    ours, theirs = cut(x), learner.predict(x, task)
    assert float((ours - theirs).abs().max()) <= NEAR * float(theirs.abs().max())
    assert torch.equal(ours.argmax(1), theirs.argmax(1))


def require_same_on_tests(learner: Learner, cut: nn.Module, task: Task, index: int) -> None:
    assert task.test is not None
    require_same(learner, cut, task.test.first(len(task.test)), index)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in ZOO])
def test_answers_as_the_learner_does(name: str) -> None:
    learner, given = learned(name, count=2)
    for index, task in enumerate(given):
        cut = learner.cut_out(index)
        require_same_on_tests(learner, cut, task, index)
        require_same(learner, cut, ZOO[name].batch(64, seed=99), index)
        closed = int((~learner.method.unit_gates(index)).sum())
        kept_whole = sum(line.split(" ")[1] == "stays" for line in cut.notes)
        assert sum(full - left for left, full in cut.sites.values()) > 0 or kept_whole or not closed
    assert learner.verify().ok


OTHERS = [(method, name) for method in MASKING for name in ZOO]
FEW = ("mlp-relu", "vgg", "lstm", "mobile")
OTHERS += [(method, name) for method in ("pathnet", "den", "cat", "ewc") for name in FEW]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), OTHERS)
def test_other_methods(method: str, name: str) -> None:
    try:
        learner, given = learned(name, METHODS[method](), count=2)
    except (HatrackError, DivergenceWarning):
        pytest.skip("does not learn on this network")
    for index, task in enumerate(given):
        cut = learner.cut_out(index)
        require_same_on_tests(learner, cut, task, index)
        require_same(learner, cut, ZOO[name].batch(64, seed=99), index)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hat", *MASKING])
def test_every_digit_of_the_test_sets_is_the_same(method: str) -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 100), nn.ReLU(), nn.Dropout()
    )
    learner = Learner(net, METHODS[method](), epochs=5, device="cpu")
    given = hatrack.tasks("split-digits", seed=0)
    for task in given:
        learner.learn(task, progress=False)
    for index, task in enumerate(given):
        require_same_on_tests(learner, learner.cut_out(index), task, index)


def test_is_the_perceptron_of_the_open_units() -> None:
    """By plain numpy in float64; the sigmoid of a closed unit is 0 at its read, whatever its bias."""
    x = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(6, 9), nn.Sigmoid(), nn.Linear(9, 8), nn.Sigmoid())
    with torch.no_grad():
        net[0].bias.fill_(2.0)
    learner = of(Task("t", (x, torch.arange(40) % 3)), net)
    gates = learner.masks()
    assert gates is not None
    a, b = (gates[f"0/{site}"].bool().numpy() for site in ("0", "2"))
    cut = learner.cut_out("t")
    assert cut.sites == {"0": (a.sum(), 9), "2": (b.sum(), 8)}
    assert cut.notes == ()
    assert {name: tuple(t.shape) for name, t in cut.state_dict().items()} == {
        "net.0.weight": (a.sum(), 6),
        "net.0.bias": (a.sum(),),
        "net.2.weight": (b.sum(), a.sum()),
        "net.2.bias": (b.sum(),),
        "head.weight": (3, b.sum()),
        "head.bias": (3,),
    }
    w = [p.detach().double().numpy() for p in (*net.parameters(), *learner.model.heads[0].parameters())]
    h = 1 / (1 + np.exp(-(x.double().numpy() @ w[0][a].T + w[1][a])))
    h = 1 / (1 + np.exp(-(h @ w[2][b][:, a].T + w[3][b])))
    np.testing.assert_allclose(cut(x).numpy(), h @ w[4][:, b].T + w[5], rtol=1e-5, atol=1e-6)


KEEPING = [name for name in METHODS if METHODS[name].guarantee and name != "pnn"]  # of pnn there is nothing to cut
SAME = [(method, name) for method in ("hat", "pmask") for name in ("vgg", "lstm")]
MORE = [
    (method, name) for method in KEEPING for name in (*FAST, "mlp-relu", "mobile", "llama", "unet", "channels-last")
]


@pytest.mark.parametrize(
    ("method", "name"), [*SAME, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in MORE if pair not in SAME)]
)
def test_is_the_same_after_later_tasks_byte_for_byte(method: str, name: str, tmp_path: Path) -> None:
    learner, _ = learned(name, METHODS[method]() if method != "hat" else None)
    before = learner.cut_out(0)
    for task in tasks(ZOO[name], count=3)[1:]:
        learner.learn(task, progress=False)
    learner.save(tmp_path / "saved")
    for later in (learner, load(tmp_path / "saved", ZOO[name].build(seed=5), device="cpu")):
        after = later.cut_out(0)
        assert list(before.state_dict()) == list(after.state_dict())
        assert packed(before) == packed(after)
        assert digest(before) == digest(after)
        assert (before.sites, before.notes) == (after.sites, after.notes)
    assert packed(before) != packed(learner.cut_out(1))


def test_needs_no_hatrack(tmp_path: Path) -> None:
    """In a fresh process that cannot import it: from a pickle, of networks whose classes are ours, with a gate."""
    x = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for name in ("resnet18", "vit", "response-norm"):
        cut = of(Task("t", (x, torch.arange(16) % 2)), ZOO[name].build()).cut_out(0)
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(cut))
        torch.save({"x": x, "y": cut(x), "state": cut.state_dict()}, tmp_path / f"{name}.pt")
    assert "open_units" in "".join(cut.state_dict())
    code = """
import sys, pickle
sys.modules["hatrack"] = None
import torch
for name in ("resnet18", "vit", "response-norm"):
    cut = pickle.load(open(f"{name}.pickle", "rb"))
    known = torch.load(f"{name}.pt")
    cut.load_state_dict(known["state"])
    assert torch.equal(cut(known["x"]), known["y"])
    assert (cut.task, cut.classes) == ("t", (0, 1))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=120)


class Remembering(nn.Module):
    """Keeps what it saw last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.last = nn.Linear(4, 9), None

    def forward(self, x: Tensor) -> Tensor:
        self.last = torch.tanh(self.a(x))
        return self.last


def test_holds_nothing_of_what_it_was_tried_on() -> None:
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(0))
    cut = of(Task("t", (x, torch.arange(16) % 2)), Remembering()).cut_out(0)
    assert cut.net.last is None


def test_takes_raw_inputs_and_names_its_classes() -> None:
    numbers = torch.Generator().manual_seed(0)
    x = torch.randint(256, (24, 3, 4, 4), generator=numbers, dtype=torch.uint8)
    order = tuple(torch.randperm(48, generator=numbers).tolist())
    inputs = Inputs(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), permutation=order)
    target = Classification(names=("cat", "dog", "eel"))
    task = Task("animals", (x, torch.arange(24) % 3), target=target, inputs=inputs)
    learner = of(task, nn.Sequential(nn.Conv2d(3, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(24, 7), nn.Tanh()))
    cut = learner.cut_out("animals")
    assert cut.classes == ("cat", "dog", "eel")
    require_same(learner, cut, x)
    require_same(learner, cut, x.float() / 255)
    assert not cut.training
    assert all(not p.requires_grad for p in cut.parameters())


def test_regression_answers_in_the_unit_of_the_targets() -> None:
    x = torch.rand(24, 5, generator=torch.Generator().manual_seed(0))
    learner = of(Task("t", (x, 300 + 20 * x[:, :2]), target=Regression()), nn.Sequential(nn.Linear(5, 9), nn.Tanh()))
    require_same(learner, learner.cut_out(0), x)


def test_an_answer_for_every_pixel() -> None:
    x = torch.rand(16, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    task = Task("t", (x, (x[:, 0] > 0.5).long()), target=Dense(2))
    learner = of(task, nn.Sequential(nn.Conv2d(3, 9, 3, padding=1), nn.Tanh()))
    cut = learner.cut_out(0)
    require_same(learner, cut, x)
    assert cut.head.in_features < 9


class Pair(nn.Module):
    """Two inputs, by name, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(3, 8)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        both = torch.tanh(self.a(left)) + torch.tanh(self.b(right))
        return {"features": both, "rest": left}


@pytest.mark.parametrize("pick", ["features", lambda out: out["features"]], ids=["name", "function"])
def test_several_inputs_and_outputs(pick: object) -> None:
    numbers = torch.Generator().manual_seed(0)
    x = {"left": torch.rand(16, 4, generator=numbers), "right": torch.rand(16, 3, generator=numbers)}
    learner = of(Task("t", (x, torch.arange(16) % 2)), Pair(), features=pick)  # type: ignore[arg-type]
    cut = pickle.loads(pickle.dumps(learner.cut_out(0))) if pick != "features" else learner.cut_out(0)
    torch.testing.assert_close(cut(**x), learner.predict(x, 0), rtol=NEAR, atol=1e-6)


class Chosen(HAT):
    """HAT with gates that are chosen, and weights between open units that are set to 0."""

    name = "hat"

    def __init__(self, gates: list[int], zero: Callable[[], None]) -> None:
        super().__init__()
        self.chosen, self.zero = gates, zero

    def end_task(self, feed: object) -> None:
        self.masks.append(torch.tensor(self.chosen).bool())
        with torch.no_grad():
            self.zero()


def small() -> tuple[Task, nn.Sequential]:
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    net = nn.Sequential(OrderedDict(a=nn.Linear(4, 3), t=nn.Tanh(), b=nn.Linear(3, 3), u=nn.Sigmoid()))
    return Task("t", (x, torch.arange(16) % 2)), net


def test_units_that_nobody_reads_go_too() -> None:
    """Unit 1 of the first layer is open, and read by unit 0 of the second alone, which is closed."""
    task, net = small()
    learner = of(task, net, Chosen([1, 1, 0, 0, 1, 1], lambda: net.b.weight[1:, 1].zero_()))
    cut = learner.cut_out(0)
    assert cut.sites == {"a": (1, 3), "b": (2, 3)}
    require_same(learner, cut, task.train.first(16))


def test_units_that_read_closed_ones_alone_go_into_a_bias() -> None:
    """Unit 0 of the second layer is open, and reads nothing: it is σ(bias) for the head."""
    task, net = small()
    learner = of(task, net, Chosen([1, 0, 0, 1, 1, 0], lambda: net.b.weight[0, 0].zero_()))
    cut, head = learner.cut_out(0), learner.model.heads[0]
    assert cut.sites == {"a": (1, 3), "b": (1, 3)}
    require_same(learner, cut, task.train.first(16))
    constant = torch.sigmoid(net.b.bias[0]) * head.weight[:, 0]
    torch.testing.assert_close(cut.head.bias, (head.bias + constant).detach())


@pytest.mark.parametrize("padding", [0, 1])
def test_a_constant_channel_goes_into_a_bias_where_there_is_no_border(padding: int) -> None:
    x = torch.rand(16, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Sigmoid(), nn.Conv2d(4, 5, 3, padding=padding), nn.Tanh(), nn.Flatten())
    learner = of(
        Task("t", (x, torch.arange(16) % 2)), net, Chosen([1, 1, 0, 1, 1, 1, 1, 0, 1], lambda: net[0].weight[1].zero_())
    )
    cut = learner.cut_out(0)
    assert cut.sites == {"0": (2 + padding, 4), "2": (4, 5)}
    require_same(learner, cut, x)


class Told(nn.Module):
    """Knows its own width by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.b(torch.tanh(self.a(x)).view(-1, 6)))


def test_a_site_that_cannot_be_cut_stays_and_is_named() -> None:
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(0))
    learner = of(Task("t", (x, torch.arange(16) % 2)), Told())
    cut = learner.cut_out(0)
    require_same(learner, cut, x)
    assert cut.sites["a"] == (6, 6)
    assert cut.sites["b"][0] < 6
    (note,) = cut.notes
    assert note.startswith("a stays at 6 of 6 units, 2 of them 0: shape")


def test_closed_units_count_in_norms() -> None:
    """Six units, of which some are closed, under a layer norm: its divisor stays six."""
    learner, _ = learned("channels-last")
    cut = learner.cut_out(0)
    assert all(left < full for left, full in cut.sites.values())
    open_units = learner.method.unit_gates(0)[:6]
    x = torch.randn(5, 6)
    norm = learner.model.net.get_submodule("1.norm")
    want = F.layer_norm(x * open_units, (6,), norm.weight, norm.bias)[:, open_units]
    torch.testing.assert_close(cut.net.get_submodule("1.norm")(x[:, open_units]), want)


def test_weights_that_a_mask_leaves_out_are_zeros() -> None:
    learner, _ = learned("mlp-relu", METHODS["pmask"]())
    mask = learner.method.use(0)
    cut = learner.cut_out(0)
    assert mask is not None
    for name, weight in cut.net.named_parameters():
        assert int((weight != 0).sum()) <= int(mask[name].sum())


def test_leaves_the_learner_as_it_is() -> None:
    learner, _ = learned("weight-norm")
    before = {name: t.clone() for name, t in learner.model.tensors().items()}
    learner.cut_out(0)
    assert all(torch.equal(t, before[name]) for name, t in learner.model.tensors().items())
    assert learner.verify().ok
    assert not any(m._forward_pre_hooks for m in learner.model.net.modules())


class Branching(nn.Module):
    """Asks the data which way to go, so that no unit map can be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 9)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        return torch.relu(x) if float(x.detach().sum()) > 0 else torch.tanh(x)


def test_without_a_unit_map_masks_are_written_out_and_nothing_is_cut() -> None:
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(0))
    learner = of(Task("t", (x, torch.arange(16) % 2)), Branching(), METHODS["pmask"]())
    cut, mask = learner.cut_out(0), learner.method.use(0)
    require_same(learner, cut, x)
    assert "nothing is cut: Branching cannot be traced" in cut.notes[0]
    assert mask is not None
    assert not cut.net.a.weight[mask["a.weight"] == 0].any()


def test_soft_gates_are_kept() -> None:
    learner, _ = learned("mlp-gelu", METHODS["hat"](hard=False, s_max=2.0))
    cut = learner.cut_out(0)
    require_same(learner, cut, ZOO["mlp-gelu"].batch(64, seed=99))


def test_hats_have_it_too() -> None:
    x, y = torch.rand(8, 4), torch.arange(8) % 2
    hats = Hats(nn.Sequential(nn.Linear(4, 9), nn.ReLU()), Lively())
    hats.begin("t", Classification(2), steps=3, example=x)
    optimizer = hats.guard(torch.optim.SGD(hats.trainable(), lr=0.1))
    for _ in range(3):
        loss = F.cross_entropy(hats(x), y) + hats.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hats.end()
    hats.wear("t")
    torch.testing.assert_close(hats.cut_out("t")(x), hats(x).detach(), rtol=NEAR, atol=1e-6)


def test_refusals() -> None:
    learner, _ = learned("mlp-relu", METHODS["pnn"]())
    with pytest.raises(HatrackError, match="'task 0' cannot be cut out: pnn computes its answers from more than one"):
        learner.cut_out(0)
    with pytest.raises(HatrackError, match="unknown task 'another'"):
        learner.cut_out("another")
