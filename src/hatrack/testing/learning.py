"""What a method must do while it learns, when it is saved, and when it has promised something."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.optim import SGD, AdamW
from torch.utils._python_dispatch import TorchDispatchMode

from hatrack.learn.fit import Epoch
from hatrack.methods.hyper import hyperparameters
from hatrack.testing.behaviour import behaviour, refusal, require, require_unchanged
from hatrack.testing.case import NETS, Case, differing, digits

LEARNED = 0.85  # accuracy on two digits that shows that something was learned


@behaviour("say what it is, and take what its search ranges hold", "mlp")
def says_what_it_is(case: Case) -> None:
    method = case.method
    for word in ("name", "family", "source", "summary", "stores"):
        said = getattr(method, word, "")
        require(bool(said) and "\n" not in said, f"{word} must be a line of text, got {said!r}")
    require(method().promises() == method.guarantee, "guarantee must say what promises() does by default")
    for h in hyperparameters(method).values():
        require(bool(h.help), f"{h.name} has no line of help")
        if h.search is None:
            continue
        ranged = h.search[-1] in ("log", "linear")
        for value in h.search[:2] if ranged else h.search:
            method(**{h.name: value})
        if ranged:
            low, high = h.search[:2]
            require(low < high, f"{h.name}: the search range is empty")
            require(low <= h.default <= high or h.default == 0, f"{h.name}: the default is outside of the search range")


@behaviour("learn and keep what it promises, or refuse before training begins in one line that says why", *NETS)
def learns_or_refuses(case: Case) -> str | None:
    case.refusal = refusal(partial(case.learner, epochs=2), digits(48)[:2])
    return case.refusal


@behaviour("learn two tasks", "mlp", "conv")
def learns(case: Case) -> str | None:
    if not case.method.trains:
        return "does not train"
    reached = case.trained.right_after
    require(min(reached) >= LEARNED, f"accuracies are {reached}, and {LEARNED} at least were expected of each")
    return None


@behaviour("be the same bit for bit, and verify alike, when saved and loaded", "mlp", "conv")
def loads_the_same(case: Case) -> None:
    learner = case.trained.learner
    learner.save(case.folder / "saved")
    loaded = case.loaded(case.folder / "saved", case.tasks)
    odd = differing(case.answers(loaded), case.answers(learner))
    require(not odd, f"differ after a load: {', '.join(odd)}")
    verdicts = [[str(t) for t in each.verify().tasks] for each in (loaded, learner)]
    require(verdicts[0] == verdicts[1], f"verifies otherwise after a load: {verdicts[0]}, not {verdicts[1]}")


@behaviour("go on in the middle of a task as if nothing had happened", "mlp", "conv")
def resumes_the_same(case: Case) -> str | None:
    if not case.method.trains:
        return "has no middle of a task"
    mid = case.trained.mid
    require(bool(mid), "no epoch of the second task was heard of")
    for phase in {min(mid), max(mid)}:
        resumed = case.loaded(mid[phase], case.tasks, seed=3)
        require(resumed.finished == 1, f"{resumed.finished} tasks are finished, not 1")
        resumed.learn(case.tasks[1])
        odd = differing(case.answers(resumed), case.answers(case.trained.learner))
        require(not odd, f"saved in phase {phase} and resumed, these differ: {', '.join(odd)}")
    return None


@behaviour("draw from the seeds that it is given, and leave the caller's random numbers alone", "mlp", "conv")
def is_deterministic(case: Case) -> None:
    again, task = case.learner(), case.tasks[0]  # whose making draws
    torch.manual_seed(77)

    def drawn() -> bytes:
        return pickle.dumps((torch.random.get_rng_state().tolist(), random.getstate(), np.random.get_state()))

    before = drawn()
    again.learn(task)
    after = drawn()
    odd = differing(case.answers(again), case.trained.first)
    require(not odd, f"learned twice, these differ: {', '.join(odd)}")
    require(after == before, "the caller's random numbers were used up")


@behaviour("keep its promise, and say what finished tasks use", "mlp", "conv")
def keeps_its_promise(case: Case) -> None:
    learner = case.trained.learner
    verdict, method = learner.verify(), learner.method
    if not method.promises():
        require("no promise" in str(verdict), f"makes no promise, and verify says {verdict}")
        return
    require(verdict.ok, str(verdict))
    shapes = {name: p.shape for name, p in learner.model.net.named_parameters()}
    used = [method.use(task) for task in range(2)]
    for task, use in enumerate(used):
        require(use is not None, f"use({task}) is None, though a promise is made")
        for name, amount in (use or {}).items():
            require(amount.shape == shapes[name], f"use({task}) has {tuple(amount.shape)} for {name}")
            require(bool(((amount >= 0) & (amount <= 1)).all()), f"use({task}) is not within 0 and 1 for {name}")
    occupied = method.occupied()
    require(occupied is not None, "occupied() is None, though a promise is made")
    for name, amount in (occupied or {}).items():
        require(all(bool((amount >= use[name]).all()) for use in used if use), f"occupied() is below use() for {name}")


@behaviour("keep finished tasks under optimisers that move entries without a gradient", "residual")
def keeps_under_pushy_optimisers(case: Case) -> str | None:
    if not case.promises:
        return "makes no promise"
    pushy, heavy = partial(AdamW, lr=0.02, weight_decay=0.1), partial(SGD, lr=0.05, momentum=0.9, weight_decay=0.1)
    for optimizer in (pushy, heavy):
        line = refusal(partial(case.learner, optimizer=optimizer, epochs=2), digits(48))
        require(line is None, f"refused: {line}")
    return None


class _NoRoundTrips(TorchDispatchMode):
    """Refuses what would make a device wait for the host: numbers read back, shapes that depend on data."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "equal", "is_nonzero")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        mask_index = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        require(name not in self.FORBIDDEN and not mask_index, f"{name} in the inner step waits for the device")
        return func(*args, **(kwargs or {}))


def _watched(verb: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with _NoRoundTrips():  # type: ignore[no-untyped-call]
            return verb(*args)

    return run


@behaviour("learn in bf16, and let no step wait for the host", "mlp", "conv")
def learns_in_bf16_without_round_trips(case: Case) -> None:
    seen: list[Epoch] = []
    with patch("hatrack.learn.step.fast", nullcontext):  # a device has none of it
        learner = case.learner(epochs=2, batch_size=80, precision="bf16")
        for verb in ("loss", "after_backward", "after_step"):
            setattr(learner.method, verb, _watched(getattr(learner.method, verb)))
        for task in case.tasks:
            learner.learn(task, on_epoch=seen.append)
    odd = [name for name, t in case.answers(learner).items() if not bool(torch.isfinite(t).all())]
    require(not odd, f"not finite: {', '.join(odd)}")
    require(bool(torch.isfinite(torch.tensor([(e.train_loss, e.valid_loss) for e in seen])).all()), "infinite losses")
    require_unchanged(learner)


@behaviour("learn on a GPU, and answer alike on the CPU", "mlp", "conv")
def runs_on_a_gpu(case: Case) -> str | None:
    if not torch.cuda.is_available():
        return "needs a CUDA device"
    learner = case.learner(epochs=4, device="cuda", precision="bf16")
    for task in case.tasks:
        learner.learn(task)
    require_unchanged(learner)
    learner.save(case.folder / "gpu")
    loaded = case.loaded(case.folder / "gpu", case.tasks)
    x = case.tasks[0].train.first(40)
    for t in range(2):
        torch.testing.assert_close(loaded.predict(x, t), learner.predict(x, t).cpu(), atol=1e-3, rtol=1e-3)
    return None
