"""Members take turns, and one that fails leaves nothing behind but its error."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch

from hatrack.learn.machine.side_by_side import OwnStream, take_turns

CPU = torch.device("cpu")


class Held:
    """Something large."""


def test_what_a_failed_member_held_is_let_go_while_its_error_is_kept() -> None:
    held: list[weakref.ref[Held]] = []

    def failing() -> Iterator[None]:
        large = Held()
        held.append(weakref.ref(large))
        yield
        try:
            raise ValueError("first")
        except ValueError:
            raise RuntimeError("then") from None

    def lasting() -> Iterator[None]:
        for _ in range(4):
            yield

    ends = take_turns([(OwnStream(CPU), failing()), (OwnStream(CPU), lasting())])
    number, error = next(ends)
    assert (number, str(error)) == (0, "then")
    assert held[0]() is None
    assert [end for end, _ in ends] == [1]
