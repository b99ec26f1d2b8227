"""The trial itself: each way of failing is found, and named."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

import pytest
import torch
from torch import Tensor, nn

from hatrack import HAT

from . import apart, page
from .architectures import Public
from .trial import CRASHED, DRIFTED, LEAKED, OK, REFUSED, VOID, Outcome, trial


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.first = nn.Linear(6, 12)
        self.norm = nn.BatchNorm1d(12)
        self.second = nn.Linear(12, 9)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(torch.relu(self.second(torch.relu(self.norm(self.first(x))))))

    def after(self, h: Tensor) -> Tensor:
        return h


class Restless(Small):
    """Changes its answers with every step of training, which the check of its map can not notice."""

    steps = count()
    moved = 0.0

    def after(self, h: Tensor) -> Tensor:
        if self.training:
            Restless.moved = 0.001 * next(self.steps)
        return h + Restless.moved


class Mute(Small):
    def after(self, h: Tensor) -> Tensor:
        return h.clamp(max=-1)


class Pair(Small):
    def after(self, h: Tensor) -> Tensor:
        return h, h


class Failing(Small):
    def after(self, h: Tensor) -> Tensor:
        if self.training:
            raise RuntimeError("first line\nsecond line")
        return h


class Dying(Small):
    def after(self, h: Tensor) -> Tensor:
        if self.training:
            os._exit(7)
        return h


class Endless(Small):
    def after(self, h: Tensor) -> Tensor:
        while self.training:
            pass
        return h


def public(make: Callable[[], nn.Module]) -> Public:
    return Public(make, (6,))


def test_a_plain_network_goes_through() -> None:
    found = trial("small", public(Small))
    assert (found.outcome, found.line, found.traceback) == (OK, "", "")
    assert found.units == 12 + 9
    assert found.frozen == 0
    assert 0 < found.moved < 1
    used, all_ = (8 * 6 + 8) + (8 * 6 + 6), (12 * 6 + 12) + (12 * 9 + 9)  # two thirds of the units are open
    assert found.used == pytest.approx(used / all_)


@pytest.mark.parametrize(
    ("make", "outcome", "said"),
    [
        (Restless, DRIFTED, "task 0: CHANGED"),
        (Mute, VOID, "do not depend"),
        (Pair, REFUSED, "one tensor of features"),
        (Failing, CRASHED, "RuntimeError: first line"),
    ],
)
def test_each_failure_has_a_name(make: Callable[[], nn.Module], outcome: str, said: str) -> None:
    found = trial("bad", public(make))
    assert found.outcome == outcome, found.traceback
    assert said in found.line
    assert "\n" not in found.line


def test_what_is_used_in_secret_is_found_by_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = HAT.use

    def use(self: HAT, task: int) -> Mapping[str, Tensor]:
        return {name: amount * (name != "second.bias") for name, amount in honest(self, task).items()}

    monkeypatch.setattr(HAT, "use", use)
    found = trial("secret", public(Small))
    assert found.outcome == LEAKED
    assert found.line.endswith("through second.bias")


def test_a_process_that_dies_or_never_ends_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "NETS", {"dying": public(Dying), "small": public(Small), "endless": public(Endless)})
    monkeypatch.setattr(apart, "prepare", lambda: None)
    each_alone = [*apart.put_through(["dying", "endless"], workers=2, limit=4), *apart.put_through(["small"], 1, 60)]
    found = {each.name: each for each in each_alone}
    assert {name: each.outcome for name, each in found.items()} == {"dying": CRASHED, "endless": CRASHED, "small": OK}
    assert "exit code 7" in found["dying"].line
    assert "its limit is 4 s" in found["endless"].line


def test_a_refusal_is_expected_only_where_its_reason_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "NETS", {"a": public(Small), "b": replace(public(Small), refused="it branches")})
    cases = [("a", OK), ("a", REFUSED), ("b", REFUSED), ("b", OK), ("a", CRASHED), ("b", DRIFTED)]
    outcomes = [Outcome(name, outcome, line="why | how") for name, outcome in cases]
    assert [page.unexpected(each) for each in outcomes] == [False, True, False, True, True, True]
    assert page.summary(outcomes).splitlines()[0] == "6 networks: 2 ok, 2 refused, 1 crashed, 1 drifted"
    assert len(page.summary(outcomes).splitlines()) == 2 + 4
    rows = [row for row in page.markdown(outcomes, "Made by hand.").splitlines() if row.startswith(("| a", "| b"))]
    assert len(rows) == 6
    assert "why \\| how (it branches)" in rows[2]
