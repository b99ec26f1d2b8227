"""What is refused before anything is made or moved: networks, methods, optimisers and settings that are unfit."""

from __future__ import annotations

from collections.abc import Container, Mapping
from numbers import Integral

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hatrack.data.samples import RANDOM_ACCESS
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.learn.machine.parallel import process_group
from hatrack.methods.base import Method
from hatrack.targets import Target


def refuse_unfit(net: object, method: object, optimizer: object = None) -> None:
    """Refuse what no learner can be made of."""
    if not isinstance(net, nn.Module):
        raise HatrackError(
            f"net must be a torch module x → features, got {type(net).__name__}; hatrack.nets.build makes some."
        )
    _refuse_network(net)
    if not isinstance(method, Method):
        raise HatrackError(
            f"method must be an object such as hatrack.HAT() or hatrack.methods.METHODS['ewc'](), got {method!r}."
        )
    if hasattr(method, "model"):  # it knows that learner's network and tasks, and would answer for both
        raise HatrackError(f"this {method.name} object belongs to another learner; make a new one.")
    if optimizer is not None and not callable(optimizer):
        raise HatrackError(
            f"optimizer must be a callable that takes parameters and returns a torch optimiser, such as "
            f"lambda p: torch.optim.Adam(p), got {type(optimizer).__name__}."
        )
    if process_group() is not None and not method.shares_batches:
        raise HatrackError(
            f"{method.name} cannot be spread over several processes: its loss is not a mean over samples; "
            f"start one process."
        )


def refuse_own_loop(method: Method) -> None:
    """Refuse, for a loop of the user's, a method that needs whole batches, old data, or phases."""
    if not isinstance(method, Method):
        return  # which is refused for what it is
    kind = type(method)
    why = (
        "it learns in phases" if method.phased
        else "it goes on learning the data of old tasks" if method.needs_old_data
        else "it trains nothing" if not method.trains
        else "its loss needs the whole batch" if kind.loss is not Method.loss
        else None
    )  # fmt: skip
    if why is not None:
        raise HatrackError(f"{method.name} needs a loop of its own ({why}); teach with hatrack.Learner(net, method).")


def refuse_target(method: Method, task: str, target: Target) -> None:
    """Refuse what the method cannot predict."""
    name = method.name
    if method.targets is not None and target.name not in method.targets:
        raise HatrackError(
            f"{name} cannot learn task {task!r}, whose target is {target.name}: it does "
            f"{', '.join(method.targets)}; choose another method."
        )
    if method.distils and type(target).distance is Target.distance:
        raise HatrackError(
            f"{name} cannot learn task {task!r}: it compares old answers with new ones, and target "
            f"{target.name!r} does not say how (Target.distance)."
        )


def refuse_stream(method: Method, task: Task) -> None:
    """Refuse samples that come one after the other where the method goes back to them."""
    parts = [task.train] if task.valid is None else [task.train, task.valid]
    if (method.needs_old_data or method.keeps_samples) and any(part.streams for part in parts):
        raise HatrackError(
            f"{method.name} keeps samples of task {task.name!r}, which an iterable Dataset gives only one after the "
            f"other; {RANDOM_ACCESS}"
        )


def _refuse_network(net: nn.Module) -> None:
    if isinstance(net, torch.jit.ScriptModule):
        raise HatrackError("a scripted network does not let its layers be looked into; give the one it was made from.")
    if "_orig_mod" in net._modules:  # its trace would end where the compiler begins, and all of it be frozen
        raise HatrackError(
            "a network that torch.compile has wrapped does not let its layers be looked into; give the one it was made "
            "from (net._orig_mod)."
        )
    if not any(True for _ in net.parameters()):
        raise HatrackError(f"{type(net).__name__} has no parameters to learn with.")
    for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
        if nn.parameter.is_lazy(tensor):  # what has no shape can neither be copied nor masked
            raise HatrackError(f"{name} has no shape yet (a lazy layer); run the network on one batch first.")
        if tensor.is_inference():  # it can be changed only in that mode, and nothing can be learned there
            raise HatrackError(f"{name} was made in inference mode, where nothing can learn; make the network outside.")
    for name, p in net.named_parameters():
        if hasattr(p, "device_mesh"):  # a DTensor: fully_shard, tensor parallel
            raise HatrackError(
                f"{name} is sharded over processes (fully_shard), and each holds a part of it; gates, locks and proofs "
                f"are of whole parameters: hand the network in unsharded, and use DistributedDataParallel."
            )
        # Methods compare and rank parameters, and optimisers fuse their steps; complex numbers allow none of it.
        if p.requires_grad and p.dtype.is_complex:
            raise HatrackError(
                f"{name} is complex ({str(p.dtype).removeprefix('torch.')}), and only real parameters can be learned; "
                f"hold its torch.view_as_real and put it together with torch.view_as_complex in forward."
            )
    for name, module in net.named_modules():
        # Gradients are clipped by their common norm and edited entry by entry, which torch does to dense ones only.
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and module.weight.requires_grad:
            raise HatrackError(
                f"{name or type(module).__name__} is an embedding with sparse gradients, which cannot be clipped; "
                f"make it with sparse=False."
            )


def refuse_shared_memory(net: nn.Module) -> None:
    """Refuse two parameters in one memory: they would be locked apart, and the one would move the other."""
    seen: dict[int, list[tuple[int, int, str]]] = {}
    for name, p in net.named_parameters():
        if p.numel() == 0 or p.is_sparse:
            continue
        start = int(p.storage_offset()) * p.element_size()
        last = sum((int(size) - 1) * int(step) for size, step in zip(p.shape, p.stride(), strict=True))
        end = start + (last + 1) * p.element_size()
        others = seen.setdefault(p.untyped_storage().data_ptr(), [])
        for first, behind, other in others:
            if start < behind and first < end:
                raise HatrackError(
                    f"{other} and {name} are two parameters in one memory; make them one: let the second module hold "
                    f"the first one's parameter itself (b.weight = a.weight)."
                )
        others.append((start, end, name))


def refuse_unfit_optimizer(made: object, trainable: Mapping[str, Tensor], gates: Container[str] = ()) -> None:
    """Refuse an optimiser that leaves out what is to be trained, or moves what no method watches.

    `gates`, by name, may be left out all together: then they have a rule of their own.
    """
    if not isinstance(made, Optimizer):
        raise HatrackError(
            f"optimizer must be a callable that takes parameters and returns a torch optimiser, "
            f"got {type(made).__name__} from it."
        )
    every = [id(p) for group in made.param_groups for p in group["params"]]
    held = set(every)
    taken = any(id(tensor) in held for name, tensor in trainable.items() if name in gates)
    missing = [n for n, tensor in trainable.items() if id(tensor) not in held and (taken or n not in gates)]
    others = held - {id(tensor) for tensor in trainable.values()}
    if missing or others or len(held) < len(every):
        what = "holds some of them twice" if len(held) < len(every) else f"holds {len(others)} that it was not given"
        what = f"lacks {missing[0]}" if missing else what
        raise HatrackError(
            f"the optimiser must hold exactly the parameters that its callable is given, and {type(made).__name__} "
            f"{what}; pass them on, as lambda p: torch.optim.Adam(p) does, and freeze what is not to be trained."
        )
    if any("lr" not in group for group in made.param_groups):
        raise HatrackError(
            f"{type(made).__name__} has parameters without a learning rate 'lr', which is lowered when the validation "
            f"loss stalls; give one to every group."
        )


def whole(name: str, value: object, least: int) -> int:
    """Return a setting that must be a whole number."""
    if not isinstance(value, Integral) or value < least:
        raise HatrackError(f"{name} must be a whole number, at least {least}, got {value!r}.")
    return int(value)
