"""Operations on lists, taken apart while a step is traced: the same numbers, and no list left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from hatrack.learn.machine.foreach import FOREACH

A = [[1.0, -2.0, 3.0], [[4.0, -0.5]]]
B = [[0.5, 2.0, -1.0], [[2.0, 8.0]]]
Work = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


def in_place(work: Callable[[list[Tensor], list[Tensor]], None]) -> Work:
    def call(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        work(a, b)
        return a

    return call


WORK: dict[str, tuple[Work, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "lists": (lambda a, b: list(torch._foreach_sub(a, b)), lambda a, b: a - b),
    "one number": (lambda a, b: list(torch._foreach_mul(a, 3.0)), lambda a, b: a * 3),
    "one tensor": (lambda a, b: list(torch._foreach_mul(a, b[0][1])), lambda a, b: a * 2),
    "no other": (lambda a, b: list(torch._foreach_sign(a)), lambda a, b: np.sign(a)),
    "in place": (in_place(lambda a, b: torch._foreach_mul_(a, b)), lambda a, b: a * b),
    "a factor by name": (in_place(lambda a, b: torch._foreach_add_(a, b, alpha=0.5)), lambda a, b: a + b / 2),
    "three lists": (in_place(lambda a, b: torch._foreach_addcmul_(a, b, b, value=-1)), lambda a, b: a - b * b),
    "copied": (in_place(lambda a, b: torch._foreach_copy_(a, b)), lambda a, b: b),
    "bounded": (in_place(lambda a, b: torch._foreach_clamp_min_(a, 0.0)), lambda a, b: np.maximum(a, 0)),
}


@pytest.mark.parametrize("kind", WORK)
def test_the_parts_make_the_whole(kind: str) -> None:
    work, expected = WORK[kind]

    def call(a0: Tensor, a1: Tensor, b0: Tensor, b1: Tensor) -> list[Tensor]:
        return work([a0.clone(), a1.clone()], [b0, b1])

    given = [torch.tensor(values, dtype=torch.float64) for values in (*A, *B)]
    code = make_fx(call, decomposition_table=FOREACH)(*given)
    assert not any("_foreach" in str(node.target) for node in code.graph.nodes)
    for made, a, b in zip(code(*given), A, B, strict=True):
        np.testing.assert_allclose(made.numpy(), expected(np.array(a), np.array(b)), rtol=1e-15)
