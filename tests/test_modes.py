"""Modes that callers have switched on are theirs: away while we compute, back in every pause and at the end."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack

import pytest
import torch

from hatrack.modes import in_turns_undisturbed, undisturbed

Modes = tuple[bool, bool, bool]
PLAIN: Modes = (False, False, True)


def modes() -> Modes:
    return torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled()


@pytest.mark.parametrize(
    "theirs",
    [
        [],
        [lambda: torch.autocast("cpu", torch.bfloat16)],
        [torch.inference_mode],
        [torch.no_grad],
        [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16), torch.no_grad],
    ],
    ids=["none", "autocast", "inference", "no_grad", "all"],
)
def test_they_are_away_inside_and_back_outside(theirs: list) -> None:  # type: ignore[type-arg]
    seen: list[Modes] = []

    def turns() -> Generator[None, None, None]:
        for _ in range(3):
            seen.append(modes())
            yield
        raise KeyError

    with ExitStack() as stack:
        for mode in theirs:
            stack.enter_context(mode())
        outside = modes()
        with undisturbed():
            assert modes() == PLAIN
            assert not (torch.ones(2, 2) @ torch.ones(2, 2)).is_inference()
        assert modes() == outside
        taken = in_turns_undisturbed(turns())
        for _ in range(3):
            next(taken)
            assert modes() == outside
        with pytest.raises(KeyError):
            next(taken)
        assert modes() == outside
    assert seen == [PLAIN] * 3


def test_who_stops_taking_turns_ends_them() -> None:
    ended: list[bool] = []

    def turns() -> Generator[None, None, None]:
        try:
            yield
        finally:
            ended.append(True)

    taken = in_turns_undisturbed(turns())
    next(taken)
    taken.close()  # type: ignore[attr-defined]
    assert ended == [True]
