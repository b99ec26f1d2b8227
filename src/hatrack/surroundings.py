"""What a caller has switched on in torch around a call of ours, switched off while it lasts."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compute as if the caller had switched nothing on: no autocast, no inference mode, gradients allowed.

    What an old task answers must not depend on where it is asked, nor what a new one learns on where it is learned.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def in_turns_undisturbed(turns: Generator[None, None, None]) -> Iterator[None]:
    """Run a generator so, and between its turns give the caller's modes back."""
    try:
        while True:
            with undisturbed():
                try:
                    next(turns)
                except StopIteration:
                    return
            yield
    finally:
        turns.close()
