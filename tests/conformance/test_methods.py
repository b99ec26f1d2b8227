"""What every method must do, on every network: one table, method × network. A method is done when it passes.

A new entry in METHODS is covered without further ado. A method that cannot learn with default settings in so few
epochs on so small a network gets its settings in SETTINGS; one that by its nature cannot run on a network is listed
in REFUSES, and is then held to a clear refusal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.learn.fit import Epoch
from hatrack.methods import METHODS
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyperparameters
from hatrack.nets import build

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.learn.capacity.CapacityWarning")

SHAPE = (1, 8, 8)
SAMPLES = 160
SETTINGS: dict[str, dict[str, Any]] = {}
EPOCHS: dict[str, int] = {"ucl": 12}  # 25 at most, where a net's own number does not do
REFUSES: set[tuple[str, str]] = set()
FAMILIES = {
    "references", "hard masks", "soft masks", "regularisation", "distillation, replay, optimisation",
}  # fmt: skip


def mlp() -> nn.Module:
    return build("mlp", SHAPE, widths=(64, 64), dropout=0.1, input_dropout=0.0)


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(),
    )  # fmt: skip


NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {"mlp": (mlp, 8), "conv": (conv, 5)}  # and its epochs


class Branching(nn.Module):
    """A network whose forward pass asks the data which way to go: no unit map can be traced through it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 24)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(x.flatten(1))
        return torch.relu(h) if float(h.detach().sum()) > 0 else torch.tanh(h)


def fresh(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make()


def new_learner(name: str, net: str, **options: Any) -> Learner:
    make, epochs = NETS[net]
    method = METHODS[name](**SETTINGS.get(name, {}))
    epochs = EPOCHS.get(name, epochs)
    return Learner(fresh(make), method, **{"epochs": epochs, "batch_size": 20, "device": "cpu"} | options)


@dataclass
class Trained:
    """A learner of two tasks, and what was kept on the way."""

    learner: Learner
    tasks: list[Task]
    x: Tensor
    right_after: list[float] = field(default_factory=list)  # accuracy of each task when it had just been learned
    first: dict[str, Tensor] = field(default_factory=dict)  # all that answers for the first task, when just learned
    mid: dict[int, Path] = field(default_factory=dict)  # saved in the middle of the second task, by phase


def answers(learner: Learner, x: Tensor) -> dict[str, Tensor]:
    """Return what must be the same bit for bit in two learners that are the same."""
    logits = {f"logits of task {t}": learner.predict(x, t) for t in range(learner.finished)}
    return {name: t.detach().clone() for name, t in (logits | learner.model.tensors()).items()}


def differing(a: dict[str, Tensor], b: dict[str, Tensor]) -> list[str]:
    """Name what is not the same, bit by bit, in two sets of tensors."""
    raw = [{name: t.contiguous().flatten().view(torch.uint8) for name, t in c.items()} for c in (a, b)]
    return [n for n in a.keys() | b.keys() if n not in a or n not in b or not torch.equal(raw[0][n], raw[1][n])]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute with one thread: on nets this small a second one only costs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    """Two tasks of real digits, with a part of their samples."""
    whole = hatrack.tasks("split-digits", seed=0)[:2]
    some = torch.arange(SAMPLES)
    return [Task(t.name, t.train.take(some), t.valid, t.test, inputs=t.inputs) for t in whole]


CASES = [(name, net) for name in METHODS for net in NETS if (name, net) not in REFUSES]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def trained(request: pytest.FixtureRequest, tasks: list[Task], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    name, net = request.param
    folder = tmp_path_factory.mktemp("learner")
    kept = Trained(new_learner(name, net), tasks, tasks[0].test.first(40))

    seen: Counter[int] = Counter()

    def save(epoch: Epoch) -> None:
        seen[epoch.phase] += 1
        if seen[epoch.phase] in (
            1,
            3,
        ):  # a phase may have one epoch only
            kept.mid[epoch.phase] = folder / f"phase{epoch.phase}"
            kept.learner.save(kept.mid[epoch.phase])

    kept.learner.learn(tasks[0])
    kept.right_after.append(kept.learner.evaluate(tasks[0], 0))
    kept.first = answers(kept.learner, kept.x)
    kept.learner.learn(tasks[1], on_epoch=save)
    kept.right_after.append(kept.learner.evaluate(tasks[1], 1))
    return kept


def case(trained: Trained) -> tuple[str, str]:
    name = trained.learner.method.name
    return name, "mlp" if hasattr(trained.learner.model.net, "fc1") else "conv"


def test_learns_two_real_tasks(trained: Trained) -> None:
    if not trained.learner.method.trains:
        pytest.skip("does not learn, and does not claim to")
    assert min(trained.right_after) >= 0.85, trained.right_after


def test_saved_and_loaded_is_the_same_bit_for_bit(trained: Trained, tmp_path: Path) -> None:
    _, net = case(trained)
    trained.learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, fresh(NETS[net][0], seed=5), device="cpu")
    assert not differing(answers(loaded, trained.x), answers(trained.learner, trained.x))


def test_verifies_alike_after_a_load(trained: Trained, tmp_path: Path) -> None:
    _, net = case(trained)
    trained.learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, fresh(NETS[net][0], seed=5), device="cpu")
    assert [str(t) for t in loaded.verify().tasks] == [str(t) for t in trained.learner.verify().tasks]


def test_resumed_in_mid_task_is_as_if_nothing_had_happened(trained: Trained) -> None:
    _, net = case(trained)
    if not trained.learner.method.trains:
        pytest.skip("has no middle of a task")
    assert trained.mid
    for phase in {min(trained.mid), max(trained.mid)}:
        resumed = hatrack.load(trained.mid[phase], fresh(NETS[net][0], seed=3), device="cpu")
        assert resumed.finished == 1
        if resumed.method.needs_old_data:
            resumed.remember(trained.tasks[0])
        resumed.learn(trained.tasks[1])
        odd = differing(answers(resumed, trained.x), answers(trained.learner, trained.x))
        assert not odd, f"saved in phase {phase}"


def test_is_deterministic(trained: Trained) -> None:
    again = new_learner(*case(trained))
    torch.manual_seed(77)  # the caller's random numbers must not matter, nor be used up
    state = torch.random.get_rng_state()
    again.learn(trained.tasks[0])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not differing(answers(again, trained.x), trained.first)


def test_keeps_its_promise(trained: Trained) -> None:
    learner = trained.learner
    verdict = learner.verify()
    if not learner.method.promises():
        assert "no promise" in str(verdict)
        return
    assert verdict.ok, str(verdict)
    shapes = {name: p.shape for name, p in learner.model.net.named_parameters()}
    for task in range(2):
        use = learner.method.use(task)
        assert use is not None
        for name, amount in use.items():
            assert amount.shape == shapes[name], name
            assert ((amount >= 0) & (amount <= 1)).all(), name
    occupied = learner.method.occupied()
    assert occupied is not None
    for name, amount in occupied.items():
        assert all((amount >= learner.method.use(t)[name]).all() for t in range(2)), name


class NoRoundTrips(TorchDispatchMode):
    """Refuses what would make a device wait for the host: numbers read back, shapes that depend on data."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "equal", "is_nonzero")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        mask_index = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        waits = name in self.FORBIDDEN or mask_index
        assert not waits, f"{name} in the inner step waits for the device"
        return func(*args, **(kwargs or {}))


def watch(method: Method) -> None:
    """Let the verbs of the inner step run under the eye of NoRoundTrips."""

    def watched(verb: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with NoRoundTrips():
                return verb(*args)

        return run

    for verb in ("loss", "after_backward", "after_step"):
        setattr(method, verb, watched(getattr(method, verb)))


@pytest.mark.parametrize(("name", "net"), CASES)
def test_learns_under_bf16_autocast_without_host_round_trips(
    name: str, net: str, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hatrack.learn.step.FastOnCpu", nullcontext)  # a device has none of it
    learner = new_learner(name, net, epochs=2, batch_size=80, precision="bf16")
    watch(learner.method)
    seen: list[Epoch] = []
    for task in tasks:
        learner.learn(task, on_epoch=seen.append)
    assert all(torch.isfinite(t).all() for t in answers(learner, tasks[0].test.first(40)).values())
    assert all(torch.isfinite(torch.tensor([e.train_loss, e.valid_loss])).all() for e in seen)
    assert learner.verify().ok or not learner.method.promises(), str(learner.verify())


@pytest.mark.parametrize(("name", "net"), sorted(REFUSES) + [(name, "branching") for name in METHODS])
def test_learns_with_an_odd_network_or_refuses_it_clearly(name: str, net: str, tasks: list[Task]) -> None:
    method = METHODS[name](**SETTINGS.get(name, {}))
    make = Branching if net == "branching" else NETS[net][0]
    seen: list[Epoch] = []
    refusal: str | None = None
    try:
        learner = Learner(fresh(make), method, epochs=2, device="cpu")
        for task in tasks:
            learner.learn(task, on_epoch=seen.append)
    except HatrackError as error:
        refusal = str(error)
    if refusal is None:
        assert (name, net) not in REFUSES, "listed in REFUSES, but learns"
        assert learner.verify().ok or not method.promises(), str(learner.verify())
    else:
        assert not seen, "refused only after training had begun"
        assert "\n" not in refusal
        assert len(refusal) > 30, "says neither what is unsupported nor what to do"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("name", "net"), CASES)
def test_runs_on_a_gpu_and_loads_on_the_cpu(name: str, net: str, tasks: list[Task], tmp_path: Path) -> None:
    learner = new_learner(name, net, epochs=4, device="cuda", precision="bf16")
    for task in tasks:
        learner.learn(task)
    assert learner.verify().ok or not learner.method.promises(), str(learner.verify())
    learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, fresh(NETS[net][0], seed=5), device="cpu")
    x = tasks[0].test.first(40)
    for t in range(2):
        torch.testing.assert_close(loaded.predict(x, t), learner.predict(x, t).cpu(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_declares_what_it_is(name: str) -> None:
    method = METHODS[name]
    assert method.name == name
    assert method.family in FAMILIES
    assert method.source
    assert method.summary
    assert "\n" not in method.summary
    assert method().promises() == method.guarantee  # as it is by default; the defaults are valid
    for h in hyperparameters(method).values():
        assert h.help, h.name
        if h.search is None:
            continue
        ends = h.search[:2] if h.search[-1] in ("log", "linear") else h.search
        for value in ends:
            method(**{h.name: value})  # every end of a search range is a valid value
        if h.search[-1] in ("log", "linear"):
            low, high = ends
            assert low < high
            assert low <= h.default <= high or h.default == 0, f"{h.name}: the default is outside of the search range"
