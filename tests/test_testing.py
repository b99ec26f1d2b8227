"""`hatrack.testing.conforms`: a sound method passes, and every way to be wrong is named."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import hatrack
from hatrack import HAT
from hatrack.learn.before import Before
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.sgd import SGD
from hatrack.testing import BEHAVIOURS, NETS, Case, conforms


@dataclass
class Decayed(Method):
    """Plain training, pulled towards zero."""

    name: ClassVar[str] = "decayed"
    family: ClassVar[str] = "mine"
    source: ClassVar[str] = "this file"
    summary: ClassVar[str] = "weights are pulled towards zero"
    stores: ClassVar[str] = "nothing"

    pull: float = hyper(1e-4, "strength of the pull", low=0.0, search=(1e-6, 1e-2, "log"))

    def penalised(self, loss: Tensor) -> Tensor:
        norms = torch._foreach_norm(list(self.model.parameters().values()))
        return super().penalised(loss) + self.pull * torch.stack(norms).square().sum()


def test_a_sound_method_of_ones_own_conforms() -> None:
    lines = conforms(Decayed, epochs=9, pull=1e-5)
    assert len(lines) == sum(len(behaviour.nets) for behaviour in BEHAVIOURS)
    assert "mlp: learn two tasks" in lines


def test_conforms_is_there_at_once() -> None:
    assert hatrack.testing.conforms is conforms


# ---- broken ones


class ForgetsToLock(HAT):
    def begin_task(self, *given: Any) -> None:
        super().begin_task(*given)
        self.lock = None


class MasksGradientsOnly(HAT):
    def begin_task(self, *given: Any) -> None:
        super().begin_task(*given)
        self.mine, self.lock = self.lock, None

    def after_backward(self) -> None:
        super().after_backward()
        if self.mine is not None:
            self.mine.on_gradients()


class SaysNothingOfUse(HAT):
    def use(self, task: int) -> Any:
        return {name: 2 * used for name, used in super().use(task).items()}


class ForgetsToDeclare(SGD):
    def end_task(self, feed: Any) -> None:
        self.anchor = self.model.heads[0].weight.detach().clone()


class CountsInPython(SGD):
    steps = 0

    def loss(self, batch: Any) -> Tensor:
        return super().loss(batch) / (1 + self.steps)

    def after_step(self) -> None:
        super().after_step()
        self.steps += 1


class DrawsOutsideTheSeeds(SGD):
    def loss(self, batch: Any) -> Tensor:
        return super().loss(batch) * random.random()


class UsesUpNumbers(SGD):
    def end_task(self, feed: Any) -> None:
        random.random()


class ReadsBack(SGD):
    def loss(self, batch: Any) -> Tensor:
        loss = super().loss(batch)
        return loss / max(1.0, float(loss.detach()))


class DoesNotLearn(SGD):
    def loss(self, batch: Any) -> Tensor:
        return super().loss(batch) * 0


class RefusesLate(SGD):
    def end_task(self, feed: Any) -> None:
        raise hatrack.HatrackError("this network is not to my taste; take another one.")


class RefusesInManyLines(SGD):
    def begin_task(self, *given: Any) -> None:
        raise hatrack.HatrackError("this network\nis not to my taste; take another one.")


class AnswersLater(HAT):
    busy = False

    def begin_task(self, *given: Any) -> None:
        super().begin_task(*given)
        self.busy = True

    def end_task(self, feed: Any) -> None:
        super().end_task(feed)
        self.busy = False

    def predict(self, x: Tensor, task: int) -> Tensor:
        if self.busy and task < self.task:
            raise RuntimeError("come back later")
        return super().predict(x, task)


class HasNoSummary(SGD):
    summary = ""


@dataclass
class HasAnEmptyRange(SGD):
    pull: float = hyper(0.5, "strength of the pull", search=(1.0, 0.1, "log"))


@pytest.mark.parametrize(
    ("method", "check", "net", "says"),
    [
        (HasNoSummary, "says_what_it_is", "mlp", "say what it is, .*: summary must be a line of text"),
        (HasAnEmptyRange, "says_what_it_is", "mlp", "pull: the search range is empty"),
        (ForgetsToLock, "learns_or_refuses", "mlp", "keep what it promises.* the first task's logits did"),
        (ForgetsToDeclare, "learns_or_refuses", "mlp", r"ForgetsToDeclare\.anchor holds a tensor that is neither"),
        (RefusesLate, "learns_or_refuses", "mlp", "or refuse before training begins.*only after training had begun"),
        (RefusesInManyLines, "learns_or_refuses", "mlp", "refused in more than a line"),
        (DoesNotLearn, "learns", "mlp", r" learn two tasks \(network: mlp\): accuracies are"),
        (DrawsOutsideTheSeeds, "is_deterministic", "mlp", "draw from the seeds.*learned twice, these differ"),
        (UsesUpNumbers, "is_deterministic", "mlp", "the caller's random numbers were used up"),
        (CountsInPython, "resumes_the_same", "mlp", "go on in the middle of a task as if nothing had happened"),
        (SaysNothingOfUse, "keeps_its_promise", "mlp", "keep its promise.*not within 0 and 1"),
        (MasksGradientsOnly, "keeps_under_pushy_optimisers", "residual", "keep finished tasks under optimisers"),
        (ReadsBack, "learns_in_bf16_without_round_trips", "mlp", "_local_scalar_dense in the inner step waits"),
        (AnswersLater, "answers_while_it_learns", "residual", "answer for finished .*come back later"),
    ],
)
def test_a_broken_method_is_told_what_it_breaks(
    method: type[Method], check: str, net: str, says: str, tmp_path: Path
) -> None:
    behaviour = next(b for b in BEHAVIOURS if b.check.__name__ == check)
    with pytest.raises(AssertionError, match=f"^{method.__name__} must.*{says}") as broken:
        behaviour.hold(Case(method, net, tmp_path))
    assert "\n" not in str(broken.value)


def test_the_first_broken_behaviour_ends_it() -> None:
    with pytest.raises(AssertionError, match=r"^ForgetsToLock must learn and keep what it promises"):
        conforms(ForgetsToLock)


def test_a_method_that_refuses_every_network_does_not_conform() -> None:
    class Refuses(SGD):
        def begin_task(self, *given: Any) -> None:
            raise hatrack.HatrackError("no network is to my taste; take another method.")

    with pytest.raises(AssertionError, match="Refuses must learn one network at least: no network"):
        conforms(Refuses)


@pytest.mark.parametrize("check", ["forgets_what_fails", "forgets_what_is_given_up"])
def test_a_learner_that_does_not_go_back_is_found_out(
    check: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Before, "restore", lambda *_: None)
    behaviour = next(b for b in BEHAVIOURS if b.check.__name__ == check)
    with pytest.raises(AssertionError, match="SGD must be what it was before a task that"):
        behaviour.hold(Case(SGD, "residual", tmp_path))


def test_every_network_is_looked_at() -> None:
    assert {net for behaviour in BEHAVIOURS for net in behaviour.nets} == set(NETS)
