"""What is timed is real training: parameters move, locked ones do not."""

from __future__ import annotations

import torch
from hatrack.bench.sides import BATCH, SHAPE, Case, Member, alone, cohort

from hatrack.methods.hat import HAT
from hatrack.nets import build

CPU = torch.device("cpu")


def case(finished: int) -> Case:
    return Case(lambda: HAT(lr=0.1), finished, net=lambda: build("mlp", SHAPE, widths=(8,)))


def test_a_member_trains_its_task_with_the_lock_of_those_before() -> None:
    member = Member(case(1), CPU, 2)
    assert member.method.lock is not None
    before = {name: p.detach().clone() for name, p in member.model.parameters().items()}
    assert len(list(member.epoch())) == 1
    locked = member.method.use(0)
    for name, p in member.model.parameters().items():
        changed = p.detach() != before[name]
        assert bool(changed.any())
        assert not bool(changed[locked[name] >= 1].any())


def test_sides_run_an_epoch_a_call() -> None:
    for side in (alone(case(0), CPU, 2), cohort(case(0), CPU, 2, 3)):
        side()
    member = Member(case(0), CPU, 3)
    assert len(member.engine.feed) == 3 * BATCH
