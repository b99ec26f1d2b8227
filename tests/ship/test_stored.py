"""Packed cut-outs: every bit comes back, the same bytes in any process, zeros cost a bit, numpy can read them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load
from torch import Tensor, nn

from hatrack import HatrackError, Task
from hatrack.methods import METHODS
from hatrack.ship.stored import digest, packed, unpacked
from ship.test_cut_out import learned, of

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.CapacityWarning")
TYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.float16),
    *(torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.complex128),
]


class Holding(nn.Module):
    """Some tensors, as buffers."""

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)


def bits(tensor: Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    plain = tensor.detach().contiguous()
    return plain.dtype, plain.shape, plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def require_same_bits(module: nn.Module) -> None:
    again, state = unpacked(packed(module)), module.state_dict()
    assert again.keys() == state.keys()
    assert {name: bits(t) for name, t in again.items()} == {name: bits(t) for name, t in state.items()}


def made(dtype: torch.dtype, *shape: int, share: float = 1.0) -> Tensor:
    """Return a tensor of random bits (of booleans: values), of which only a share is not 0."""
    numbers = torch.Generator().manual_seed(0)
    count = torch.Size(shape).numel()
    raw = torch.randint(2 if dtype == torch.bool else 256, (count, dtype.itemsize), generator=numbers)
    some = torch.rand(count, generator=numbers) < share
    return (raw.to(torch.uint8) * some[:, None]).reshape(-1).view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_bit_comes_back(dtype: torch.dtype) -> None:
    net = Holding(
        dense=made(dtype, 50, 40),
        sparse=made(dtype, 50, 40, share=0.1),
        turned=made(dtype, 50, 40, share=0.1).T,
        zeros=torch.zeros(3, 0, 2).to(dtype),
        nothing=torch.zeros(3000).to(dtype),
        one=made(dtype),
    )
    require_same_bits(net)
    for name in ("one", "zeros", *(("dense",) if dtype != torch.bool else ())):  # half of the booleans are False
        assert f"{name}#bits" not in load(packed(net))
    for name in ("sparse", "turned", "nothing"):
        assert f"{name}#bits" in load(packed(net))


def test_minus_zero_and_nan_are_not_zero() -> None:
    values = torch.zeros(4000)
    values[5], values[7], values[9] = -0.0, float("nan"), float("-inf")
    values[11:12].view(torch.int32).fill_(0x7FC00001)  # a NaN with a payload
    require_same_bits(Holding(values=values))
    assert len(load(packed(Holding(values=values)))["values#values"]) == 4


def test_what_shares_memory_is_written_once() -> None:
    net = nn.ModuleDict({"a": nn.Linear(50, 50, bias=False), "b": nn.Linear(50, 50, bias=False)})
    apart = len(packed(net))
    net["b"].weight = net["a"].weight
    require_same_bits(net)
    assert len(packed(net)) < apart - 9000


def test_a_name_that_looks_like_a_part_is_kept() -> None:
    net = Holding(x=torch.zeros(4000))
    net.register_buffer("x#bits", torch.ones(3))
    require_same_bits(net)


def numpy_alone(path: str) -> dict[str, Any]:
    """Read packed bytes as docs/shipping.md says."""
    with safe_open(path, "numpy") as file:
        more = json.loads((file.metadata() or {}).get("packed", "{}"))
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, said in more.items():
        if "sparse" in said:
            values, marks = found.pop(f"{name}#values"), found.pop(f"{name}#bits")
            whole = np.zeros((np.prod(said["sparse"], dtype=int), *values.shape[1:]), values.dtype)
            whole[np.unpackbits(marks, count=len(whole)).astype(bool)] = values
            found[name] = whole.reshape(*said["sparse"], *values.shape[1:])
    return found | {name: found[said["same"]] for name, said in more.items() if "same" in said}


def test_can_be_read_with_numpy_alone(tmp_path: Any) -> None:
    shared = made(torch.float32, 40, 30, share=0.2)
    net = Holding(a=shared, b=shared, c=made(torch.int64, 7), d=made(torch.bfloat16, 60, 50, share=0.1))
    (tmp_path / "x").write_bytes(packed(net))
    found = numpy_alone(str(tmp_path / "x"))
    assert found.keys() == net.state_dict().keys()
    for name, tensor in net.state_dict().items():
        assert found[name].tobytes() == bits(tensor)[2]
        assert found[name].shape[: tensor.ndim] == tensor.shape


CODE = """
import sys
sys.path[:0] = sys.argv[1:]
from hashlib import sha256
from ship.test_cut_out import learned, of
from hatrack.methods import METHODS
from hatrack.ship.stored import digest, packed
for method in ("hat", "pmask"):
    learner, _ = learned("vgg", METHODS["pmask"]() if method == "pmask" else None)
    cut = learner.cut_out(0)
    print(sha256(packed(cut)).hexdigest(), digest(cut))
"""


def test_is_the_same_in_another_process() -> None:
    """With another seed for hashing names, so that no order depends on it."""
    said = [
        subprocess.run(
            [sys.executable, "-c", CODE, *sys.path],
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            check=True, capture_output=True, text=True, timeout=300,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1]
    assert len(set(said[0].split())) == 4


@pytest.mark.parametrize("method", ["pmask", "packnet", "supsup", "wsn"])
def test_zeros_cost_a_bit(method: str) -> None:
    """Of each entry the smaller form, counted by numpy; what the header takes is told by the file itself."""
    x = torch.rand(16, 30, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(30, 80), nn.ReLU(), nn.Linear(80, 60), nn.ReLU())
    cut = of(Task("t", (x, torch.arange(16) % 2)), net, METHODS[method]()).cut_out(0)
    arrays = [t.numpy() for t in cut.state_dict().values()]
    assert all(a.dtype == np.float32 for a in arrays)
    forms = [(a.nbytes, -(-a.size // 8) + int((a.view(np.uint32) != 0).sum()) * 4) for a in arrays]
    smaller = sum(sparse if sparse + 200 < dense else dense for dense, sparse in forms)
    data, whole = packed(cut), sum(dense for dense, _ in forms)
    assert len(data) == 8 + int.from_bytes(data[:8], "little") + smaller
    assert smaller < 0.75 * whole
    assert len(data) < whole
    require_same_bits(cut)


def test_the_digest_changes_with_whatever_changes_the_answers() -> None:
    learner, _ = learned("encoder-first", METHODS["ewc"]())
    cut = learner.cut_out(0)
    known = digest(cut)
    assert known == digest(learner.cut_out(0))
    changes = {
        "bit": lambda c: c.head.bias.data[:1].view(torch.int32).bitwise_xor_(1),
        "class": lambda c: setattr(c, "classes", (1, 0)),
        "mode": lambda c: c.train(),
        "heads": lambda c: setattr(c.get_submodule("net.encoder.layers.0.self_attn"), "num_heads", 1),
        "hook": lambda c: c.head.register_forward_pre_hook(lambda module, args: args),
        "layer": lambda c: c.net.add_module("encoder", nn.Identity()),
        "code": lambda c: (c.graph.erase_node(n) if (n := next(reversed(c.graph.nodes))) else 0, c.recompile()),
        "outside of the state dict": lambda c: c.net.register_buffer("own", torch.ones(2), persistent=False),
    }
    seen = {known}
    for change in changes.values():
        other = learner.cut_out(0)
        change(other)
        seen.add(digest(other))
    assert len(seen) == 1 + len(changes)


def test_refusals() -> None:
    with pytest.raises(HatrackError, match=r"^x of this cut-out is no plain tensor"):
        packed(Holding(x=torch.eye(3).to_sparse()))
    good = packed(Holding(x=torch.zeros(4000)))
    for bad in (b"", b"1234567890", good[:-1], good.replace(b"4000", b"9999"), good.replace(b"#bits", b"#bats")):
        with pytest.raises(HatrackError, match=r"^these bytes are no packed cut-out \(.*\)\.$"):
            unpacked(bad)
