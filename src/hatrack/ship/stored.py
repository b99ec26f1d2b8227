"""A cut-out as bytes: safetensors that are the same whenever it is taken, and small where most weights are 0.

    name                an entry of the state dict as it is
    name#bits, #values  one of which most entries are 0: which are not, as eight bits a byte (numpy.packbits), and these
    metadata "packed"   JSON by name, where more must be known: {"sparse": shape, "dtype": name, "same": name}

`dtype` is given where numpy has no such type: what is stored are then bytes, those of one number along a last axis.
`same` names the entry whose memory this one shares. What is 0 is decided by bits: -0.0 and NaN are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from math import prod
from typing import Any

import torch
from safetensors.numpy import load, save
from torch import Tensor, fx, nn

from hatrack.errors import HatrackError, one_line
from hatrack.methods.parts.weight_masks import pack, unpack

KEY = "packed"
SPARSE_COSTS = 200  # bytes that the names and the shape of a sparse entry take
NUMPY = tuple(
    getattr(torch, name)
    for name in "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64".split()
)


def packed(module: nn.Module) -> bytes:
    """Return the state dict of a cut-out as safetensors, the same bytes for the same tensors."""
    written: dict[str, Tensor] = {}
    more: dict[str, dict[str, Any]] = {}
    known: dict[Any, str] = {}
    state = module.state_dict()
    for name, tensor in sorted(state.items()):
        memory = _memory(name, tensor)
        if tensor.numel() and memory in known:
            more[name] = {"same": known[memory]}
            continue
        known[memory] = name
        said: dict[str, Any] = {} if tensor.dtype in NUMPY else {"dtype": str(tensor.dtype).partition(".")[2]}
        rows = _rows(tensor)
        some = (rows != 0).any(1)
        parts = {f"{name}#bits": pack(some), f"{name}#values": _typed(rows[some], tensor.dtype)}
        sparse = sum(part.nbytes for part in parts.values()) + SPARSE_COSTS < tensor.nbytes
        if sparse and not parts.keys() & state.keys():
            written |= parts
            said["sparse"] = list(tensor.shape)
        else:
            written[name] = _typed(rows, tensor.dtype, tensor.shape)
        if said:
            more[name] = said
    metadata = {KEY: json.dumps(more, sort_keys=True)} if more else None
    return bytes(save({name: tensor.numpy() for name, tensor in written.items()}, metadata))


def unpacked(data: bytes) -> dict[str, Tensor]:
    """Return the state dict that was `packed`, bit for bit."""
    try:
        stored = {name: torch.tensor(array) for name, array in load(data).items()}
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        more: dict[str, dict[str, Any]] = json.loads(header.get("__metadata__", {}).get(KEY, "{}"))
        for name, said in more.items():
            if "same" not in said:
                stored[name] = _restored(name, said, stored)
        return stored | {name: stored[said["same"]] for name, said in more.items() if "same" in said}
    except Exception as error:  # bytes that are something else fail in any way
        raise HatrackError(f"these bytes are no packed cut-out ({one_line(error)}).") from None


def digest(module: nn.Module) -> str:
    """Return the SHA-256 of a cut-out: of its packed bytes, and of what it does with them.

    That is, for every part in its order: its class by name, the settings of torch's layers, the code that torch.fx has
    written, hooks, tensors that the state dict leaves out; and the task and its classes. Of code of the user's own that
    was not written out by torch.fx it has the name alone.
    """
    found = sha256(json.dumps([*_described(module)]).encode())
    found.update(packed(module))
    return found.hexdigest()


# ---- numbers as bytes


def _memory(name: str, tensor: Any) -> Any:
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_quantized:
        raise HatrackError(f"{name} of this cut-out is no plain tensor, so that it cannot be packed.")
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _rows(tensor: Tensor) -> Tensor:
    """Return the bytes of every number as a row."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).reshape(tensor.numel(), tensor.element_size())


def _typed(rows: Tensor, dtype: torch.dtype, shape: torch.Size | None = None) -> Tensor:
    """Return numbers from their bytes; of types that numpy has not, the bytes."""
    shape = rows.shape[:1] if shape is None else shape
    return rows.reshape(-1).view(dtype).reshape(shape) if dtype in NUMPY else rows.reshape(*shape, rows.shape[1])


def _restored(name: str, said: Mapping[str, Any], stored: dict[str, Tensor]) -> Tensor:
    if "sparse" not in said:
        return _numbers(stored[name], said)
    bits, values = stored.pop(f"{name}#bits"), _numbers(stored.pop(f"{name}#values"), said)
    count = prod(said["sparse"])
    if not 0 <= count <= 8 * len(bits):
        raise ValueError(f"{name} has the shape {said['sparse']}, and {len(bits)} bytes of bits")
    some = unpack(bits, count)
    if int(some.sum()) != len(values):
        raise ValueError(f"{name} has {int(some.sum())} bits that are on, and {len(values)} values")
    rows = torch.zeros(count, values.element_size(), dtype=torch.uint8)
    rows[some] = _rows(values)
    return rows.reshape(-1).view(values.dtype).reshape(said["sparse"])


def _numbers(stored: Tensor, said: Mapping[str, Any]) -> Tensor:
    if "dtype" not in said:
        return stored
    dtype = getattr(torch, said["dtype"])
    return stored.reshape(-1).view(dtype).reshape(stored.shape[:-1])


# ---- what is done with them


def _described(module: nn.Module) -> Iterator[Any]:
    yield str(getattr(module, "task", "")), [str(name) for name in getattr(module, "classes", ())]
    kept = {id(tensor) for tensor in module.state_dict(keep_vars=True).values()}
    for path, part in module.named_modules(remove_duplicate=False):
        yield path, type(part).__module__, type(part).__qualname__, part.training, part.extra_repr()
        if isinstance(part, fx.GraphModule):
            yield part.code
        elif type(part).__module__.startswith("torch."):
            yield [(name, _said(value)) for name, value in sorted(vars(part).items()) if not name.startswith("_")]
        for hook in (*part._forward_pre_hooks.values(), *part._forward_hooks.values()):
            yield hook.code if isinstance(hook, fx.GraphModule) else _said(hook)
        held = {**part._parameters, **part._buffers, **vars(part)}
        for name, tensor in sorted((n, t) for n, t in held.items() if isinstance(t, Tensor) and id(t) not in kept):
            yield name, str(tensor.dtype), tuple(tensor.shape), sha256(_rows(tensor).numpy().tobytes()).hexdigest()


def _said(value: Any) -> Any:
    """Return a setting of a layer as plain data; of functions and objects the name."""
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, tuple | list):
        return [_said(part) for part in value]
    return getattr(value, "__qualname__", type(value).__qualname__)
