"""Whatever a finished task is answered from is compared: one bit of it that is changed in memory is found and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import HAT, Inputs, Learner, Task
from hatrack.learn.proof.seals import fingerprint
from hatrack.methods import METHODS
from hatrack.targets import Classification

PROMISING = sorted(name for name, method in METHODS.items() if method.guarantee)


class Kept(nn.Module):
    """A network with a batch norm, a parameter that nobody trains and a buffer that nothing moves."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)
        self.fixed = nn.Linear(5, 5)
        self.fixed.requires_grad_(False)
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.fixed(torch.relu(self.second(hidden)))) * self.scale


def tasks(count: int = 2) -> list[Task]:
    made = []
    for i in range(count):
        x = torch.randn(40, 6, generator=torch.Generator().manual_seed(i))
        made.append(Task(f"t{i}", (x, (x[:, i] > 0).long()), inputs=Inputs((0.1,), (0.9,))))
    return made


def taught(name: str, net: type[nn.Module] = Kept) -> Learner:
    torch.manual_seed(0)
    learner = Learner(net(), METHODS[name](), epochs=2, batch_size=10, device="cpu")
    for task in tasks():
        learner.learn(task)
    return learner


def flip(tensor: Tensor, entry: int = 0) -> Callable[[], None]:
    """Flip the lowest bit of an entry; return what flips it back."""
    words = tensor.detach().view(-1)[entry : entry + 1].view(torch.uint8)
    words[0] ^= 1

    def back() -> None:
        words[0] ^= 1

    return back


def own_tensors(learner: Learner, task: int) -> Iterator[tuple[str, Tensor]]:
    """Yield, by hand, what a finished task has for itself in memory."""
    for name, p in learner.model.heads[task].named_parameters():
        yield f"head/{name}", p
    buffers = dict(learner.model.net.named_buffers())
    for name, t in learner.model.private[task].items():
        yield ("buffer/" if name in buffers else "own/") + name, t
    for name, b in buffers.items():
        if name not in learner.model.private[task]:
            yield f"buffer/{name}", b
    yield "frozen/fixed.weight", learner.model.net.fixed.weight  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
@pytest.mark.parametrize("name", PROMISING)
def test_one_bit_of_anything_that_is_a_task_s_own_is_named(name: str) -> None:
    learner = taught(name)
    assert learner.verify().ok, str(learner.verify())
    use = learner.method.use(0)
    for part, tensor in own_tensors(learner, 0):
        shared = part == "frozen/fixed.weight" and use is not None and "fixed.weight" in use
        back = flip(tensor, int(use["fixed.weight"].flatten().argmax()) if shared else 0)  # type: ignore[index]
        verdict = learner.verify()
        back()
        assert not verdict.ok, part
        if shared:
            assert verdict.tasks[0].drifts[0].parameter == "fixed.weight"
        else:
            assert verdict.tasks[0].parts == (part,)
            assert f"no longer as it was: {part}" in str(verdict)
    assert learner.verify().ok


@pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
@pytest.mark.parametrize("name", PROMISING)
def test_one_bit_of_what_the_method_left_is_noticed(name: str) -> None:
    """Through `state` and `load_state`, as a file would bring it."""
    learner = taught(name)
    for key, tensor in learner.method.state().items():
        if tensor.numel() == 0 or key == "finished" or key.startswith("scores/"):  # WSN's: where the next mask starts
            continue
        state = {k: t.detach().clone() for k, t in learner.method.state().items()}
        bad = {k: t.clone() for k, t in state.items()}
        flat = bad[key].view(-1)
        if flat.dtype.is_floating_point:
            flip(flat)
        else:
            flat[0] = flat[0] ^ 1
        learner.method.load_state({k: _as_was(learner, k, t) for k, t in bad.items()}, learner.finished, learner.device)
        assert not learner.verify().ok, key
        learner.method.load_state(
            {k: _as_was(learner, k, t) for k, t in state.items()}, learner.finished, learner.device
        )
    assert learner.verify().ok


def _as_was(learner: Learner, key: str, tensor: Tensor) -> Tensor:
    return tensor.requires_grad_() if key.startswith("lateral/") else tensor


def test_the_preparation_of_inputs_and_the_classes_are_sealed() -> None:
    learner = taught("hat")
    for changed in (
        replace(learner.tasks[0], inputs=Inputs((0.1,), (0.9000001,))),
        replace(learner.tasks[0], inputs=Inputs((0.1,), (0.9,), permutation=(0, 1, 2, 3, 5, 4))),
        replace(learner.tasks[0], target=Classification(3)),
    ):
        kept, learner.tasks[0] = learner.tasks[0], changed
        verdict = learner.verify()
        learner.tasks[0] = kept
        assert verdict.tasks[0].parts == ("inputs",)
        assert verdict.tasks[1].ok
    assert learner.verify().ok


def test_a_head_that_no_probe_sees_is_compared_too() -> None:
    """What a head adds for a feature that is 0 for all probes shows in no answer."""
    learner = taught("hat")
    closed = (learner.model.units.features.new_tensor(0) == learner.method.unit_gates(0).long()).nonzero()
    assert len(closed), "the check means nothing if no unit is closed"
    drawn = learner._drawn(0)
    with torch.no_grad():
        features = learner.model.features(drawn, 0, learner.method.unit_gates(0))
    dead = (features == 0).all(0).nonzero().flatten().tolist()
    assert dead
    with torch.no_grad():
        learner.model.heads[0].weight[:, dead[0]] += 7
    verdict = learner.verify()
    assert verdict.tasks[0].changed_logits == 0
    assert verdict.tasks[0].parts == ("head/weight",)


def test_a_tensor_of_its_own_that_is_put_in_place_of_a_shared_one_is_named() -> None:
    learner = taught("hat")
    learner.model.private[0]["second.bias"] = dict(learner.model.net.named_parameters())["second.bias"].detach().clone()
    assert "own/second.bias" in learner.verify().tasks[0].parts


def test_what_answering_itself_moves_is_no_change() -> None:
    class Counting(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x)

    learner = taught("pmask", Counting)
    for _ in range(2):
        learner.predict(torch.randn(3, 6), 0)
        assert learner.verify().ok, str(learner.verify())
    assert "buffer/scale" in learner.probes[0].seal  # type: ignore[operator]


def test_nothing_is_sealed_where_nothing_is_promised() -> None:
    for method in (METHODS["ewc"](), HAT(hard=False), HAT(norm="shared")):
        learner = Learner(Kept(), method, epochs=1, device="cpu")
        learner.learn(tasks(1)[0])
        assert learner.probes[0].seal == {}


def test_a_fingerprint_is_that_of_type_shape_and_bits() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    assert fingerprint(x) == fingerprint(x.T.contiguous().T)
    others = [x.flatten(), x.double(), -x, x.view(torch.int32), torch.tensor([[-0.0, 1.0], [2.0, 3.0]])]
    assert len({fingerprint(t) for t in (x, *others)}) == 6
    for odd in (torch.tensor(True), torch.zeros(0, 3), torch.tensor(1 + 2j), torch.ones(2, dtype=torch.bfloat16)):
        assert fingerprint(odd) == fingerprint(odd.clone())


def test_entries_and_bytes_are_counted_by_hand() -> None:
    learner = taught("one")
    proof = learner.verify().tasks[0]
    net = [*learner.model.net.parameters(), *learner.model.net.buffers(), *learner.model.heads[0].parameters()]
    assert (proof.entries, proof.bytes) == counted([*net, *known_by(learner)])
    learner = taught("sgd-frozen")
    proof = learner.verify().tasks[0]
    assert (proof.entries, proof.bytes) == counted([*net, *known_by(learner)])


def known_by(learner: Learner) -> list[torch.Tensor]:
    """Return the statistics by which samples of the first task are known."""
    which = learner.tasks[0].which
    assert which is not None
    return list(which.tensors().values())


def counted(tensors: list[torch.Tensor]) -> tuple[int, int]:
    return sum(t.numel() for t in tensors), sum(t.nbytes for t in tensors)


def test_probes_of_the_user_are_compared_when_they_are_handed_in_again(tmp_path) -> None:  # type: ignore[no-untyped-def]
    task = tasks(1)[0]
    mine = torch.randn(5, 6)
    learner = Learner(Kept(), HAT(), epochs=2, device="cpu")
    learner.learn(Task("mine", task.train, inputs=task.inputs, probes=mine))
    learner.save(tmp_path)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert mine.numpy().tobytes() not in stored
    for one in (learner, hatrack.load(tmp_path, Kept(), device="cpu")):
        without = one.verify()
        assert without.ok
        assert "mine has probes of its own, which were not handed in: verify(probes={'mine': x})" in str(without)
        both = one.verify(probes={"mine": mine})
        assert both.ok
        assert both.tasks[0].logits == without.tasks[0].logits + 10
        assert "handed in" not in str(both)
        with pytest.raises(hatrack.HatrackError, match="had others"):
            one.verify(probes={0: mine + 1})
        one.probes[0].own.logits[0] += 1  # type: ignore[union-attr]
        assert one.verify(probes={0: mine}).tasks[0].changed_logits == 2
    learner = Learner(Kept(), HAT(), epochs=2, device="cpu")
    learner.learn(task)
    with pytest.raises(hatrack.HatrackError, match="was learned without probes of its own"):
        learner.verify(probes={0: mine})
    with pytest.raises(hatrack.HatrackError, match=r"has training inputs .* probes' inputs"):
        learner.learn(Task("odd", tasks(2)[1].train, probes=torch.randn(5, 7)))
