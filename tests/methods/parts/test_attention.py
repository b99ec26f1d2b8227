"""Knowledge-transfer attention against numpy, head by head."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hatrack.methods.parts.attention import attend, new_attention


@pytest.mark.parametrize(("width", "heads"), [(10, 5), (7, 3), (3, 5)])
def test_equals_numpy(width: int, heads: int) -> None:
    tensors = {n: t.double() for n, t in new_attention(width, 4, heads, torch.Generator().manual_seed(0)).items()}
    tensors["bias"] += 0.3
    a = {n: t.numpy() for n, t in tensors.items()}
    h = np.random.default_rng(0).normal(size=(6, 3, width))
    size = max(1, width // heads)
    logits = np.zeros((6, 4))
    for i in range(6):
        mixed = []
        for k in range(heads):
            part = slice(k * size, (k + 1) * size)
            query = a["queries"][part] @ a["query"]
            scores = np.array([query @ (a["keys"][part] @ h[i, j]) for j in range(3)]) / np.sqrt(size)
            weights = np.exp(scores) / np.exp(scores).sum()
            mixed.append(sum(weights[j] * (a["values"][part] @ h[i, j]) for j in range(3)))
        logits[i] = a["weight"] @ (a["out"] @ np.concatenate(mixed)) + a["bias"]
    np.testing.assert_allclose(attend(tensors, torch.from_numpy(h), heads).numpy(), logits, rtol=1e-9)
