"""One network's trial: explain it, teach it two tasks, compare bits, overwrite all that task 1 leaves, compare again.

Tasks are a few random samples: what is tried is not whether a network learns, but whether the first task's answers
stay. AdamW with decay moves whatever is not locked, by much; and after that, noise stands in every entry, shared or
another task's, that the first task is said not to use.
"""

from __future__ import annotations

import time
import traceback
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hatrack import HatrackError, Learner, explain
from hatrack.data.feed import Feed
from hatrack.errors import HatrackWarning
from hatrack.learn.capacity import CapacityWarning
from hatrack.learn.proof.verification import same_bits
from hatrack.masks.explain import Explanation
from zoo import Lively, tasks

from .architectures import Public

SAMPLES = 16
BATCH = 8
EPOCHS = 3
NOISE = 100.0
NAMED = 3  # parameters at most, of those through which an answer changed
LIVELY = 0.1  # share of the units that must be closed in the first task: Lively closes a third

OK = "ok"
DRIFTED = "drifted"  # an answer changed while the second task was learned
LEAKED = "leaked"  # an answer changed by noise in entries that are said not to matter
REFUSED = "refused"
CRASHED = "crashed"
VOID = "void"  # nothing was tried: answers that do not depend on the input, or no unit closed


class LivelySites(Lively):
    """Every third unit of a site is closed, others for each task; a site of fewer than three units stays open.

    Such a site can be all there is of a stage whose channels are mixed by a convolution along them.
    """

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        for site, gates in self.model.units.by_site(self.embedding.data):
            closed = (torch.arange(site.size) + task) % 3 == 0
            gates.copy_(torch.where(closed, -1.0, 1.0) if site.size >= 3 else torch.ones(site.size))


@dataclass
class Outcome:
    """What became of one network; shares are of all trained entries of the parameters that tasks share."""

    name: str
    outcome: str = OK
    line: str = ""  # the refusal, what changed, or the last line of the traceback
    parameters: int = 0
    units: int = 0
    frozen: float = 0.0  # share that stays as the first task leaves it, whatever its gates are
    used: float = 0.0  # share that the first task uses
    moved: float = 0.0  # share that the second task moved
    closed: float = 0.0  # share of the units that the first task closed
    seconds: float = 0.0  # of processor time
    frozen_by: dict[str, str] = field(default_factory=dict)  # parameter → how much of it is frozen, and why
    notes: list[str] = field(default_factory=list)
    traceback: str = ""


def trial(name: str, kept: Public) -> Outcome:
    """Put one network through and say what became of it."""
    found = Outcome(name)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            for expected in (HatrackWarning, CapacityWarning):  # they are in the notes
                warnings.simplefilter("ignore", expected)
            _put_through(kept, found)
    except HatrackError as error:
        found.outcome, found.line, found.traceback = REFUSED, str(error), traceback.format_exc()
    except Exception as error:  # a crash is an outcome, too
        found.outcome, found.traceback = CRASHED, traceback.format_exc()
        found.line = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    found.seconds = round(time.process_time() - began, 1)
    return found


def _put_through(kept: Public, found: Outcome) -> None:
    _describe(explain(kept.build(), kept.batch(1), kept.features), found)
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "device": "cpu"}
    learner = Learner(kept.build(), LivelySites(), _pushy, features=kept.features, **settings)
    first, second = tasks(kept, count=2, samples=SAMPLES)
    x = kept.batch(SAMPLES, seed=1)
    learner.learn(first)
    _look_at_masks(learner, found)
    before = {name: p.detach().clone() for name, p in learner.model.net.named_parameters()}
    answers = learner.predict(x, 0)
    learner.learn(second)
    after = dict(learner.model.net.named_parameters())
    shared = before.keys() - learner.model.private[0].keys()
    moved = sum(int((after[name] != before[name]).sum()) for name in shared)
    found.moved = moved / max(1, sum(before[name].numel() for name in shared))
    if not bool(torch.isfinite(answers).all()) or float(answers.std(0).min()) == 0:
        found.outcome, found.line = VOID, "its answers do not depend on the input, or are not finite"
    elif found.units > 0 and found.closed < LIVELY:
        found.outcome, found.line = VOID, f"only {found.closed:.0%} of its units were closed in the first task"
    elif found.moved == 0 and found.frozen < 1:
        found.outcome, found.line = VOID, "nothing moved while the second task was learned"
    verdict = learner.verify()
    if not verdict.ok or _changed(answers, learner.predict(x, 0)):
        moves = {name: (p, before[name], p.detach().clone()) for name, p in after.items()}
        through = _through(learner, x, moves)
        found.outcome, found.line = DRIFTED, f"{str(verdict).splitlines()[0]}; through {through}"
        return
    noises = _noises(learner)
    for tensor, _, noisy in noises.values():
        tensor.data.copy_(noisy)
    if _changed(answers, learner.predict(x, 0)):
        found.outcome, found.line = LEAKED, f"noise where task 0 uses nothing, through {_through(learner, x, noises)}"


def _pushy(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1)


def _describe(page: Explanation, found: Outcome) -> None:
    assert page.text()
    found.parameters = page.parameters
    found.units = sum(site.size for site in page.sites)
    found.frozen_by = page.frozen
    found.notes = [str(note) for note in page.notes]


def _look_at_masks(learner: Learner, found: Outcome) -> None:
    units, own = learner.model.units, learner.model.private[0]
    trained = [name for name in learner.model.parameters() if name not in own]
    use = {name: amount for name, amount in _use(learner).items() if name in trained}
    entries = sum(learner.model.parameters()[name].numel() for name in trained)
    always = units.used(torch.zeros(units.size))
    found.frozen = sum(int((always[name] > 0).sum()) for name in use) / entries
    found.used = sum(int((amount > 0).sum()) for amount in use.values()) / entries
    gates = learner.method.unit_gates(0)
    assert gates is not None
    found.closed = float((gates == 0).sum() / max(1, len(gates)))


def _use(learner: Learner) -> dict[str, Tensor]:
    use = learner.method.use(0)
    assert use is not None
    return dict(use)


def _changed(a: Tensor, b: Tensor) -> bool:
    return not bool(same_bits(a, b).all())


Change = tuple[Tensor, Tensor, Tensor]  # a tensor of the network, its old and its new values


def _noises(learner: Learner) -> dict[str, Change]:
    """Return noise for whatever the first task is said not to use: shared entries, and what is the second task's."""
    use, model = _use(learner), learner.model
    spare = {n: (p, use[n] == 0 if n in use else torch.ones_like(p) > 0) for n, p in model.net.named_parameters()}
    others = {f"private {name}": tensor for name, tensor in model.private[1].items()}
    others |= {f"head {name}": p for name, p in model.heads[1].named_parameters()}
    spare |= {f"the second task's {name}": (t, torch.ones_like(t) > 0) for name, t in others.items()}
    generator = torch.Generator().manual_seed(0)
    changes = {}
    for name, (tensor, free) in spare.items():
        if tensor.is_floating_point():
            old = tensor.detach().clone()
            noise = NOISE * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
            changes[name] = tensor, old, torch.where(free, noise, old)
    return changes


@torch.no_grad()
def _through(learner: Learner, x: Tensor, changes: dict[str, Change]) -> str:
    """Name the tensors of which the change alone changes the first task's answers."""
    for tensor, old, _ in changes.values():
        tensor.copy_(old)
    answers = learner.predict(x, 0)
    found = []
    for name, (tensor, old, new) in changes.items():
        tensor.copy_(new)
        if _changed(answers, learner.predict(x, 0)):
            found.append(name)
        tensor.copy_(old)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more or "none of its parameters alone"
