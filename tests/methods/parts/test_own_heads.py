"""The loss of a batch that mixes tasks, sample by sample."""

from __future__ import annotations

import numpy as np
import torch
from tiny import arrays, cross_entropy, samples
from tiny import model as new_model

from hatrack.data.feed import Batch
from hatrack.methods.parts.own_heads import OwnHeads


def test_every_sample_counts_by_its_own_head_and_no_other_head_learns_from_it() -> None:
    sizes = (3, 2, 4)
    model = new_model(heads=sizes)
    heads = OwnHeads(model)
    rng = np.random.default_rng(0)
    source = rng.integers(2, size=20)  # none of task 2
    y = np.array([rng.integers(sizes[t]) for t in source])
    x, _ = samples(0, n=20)
    expected = [cross_entropy(arrays(model, t), x[i : i + 1], y[i : i + 1]) for i, t in enumerate(source)]
    batch = Batch(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(source))
    loss = heads.loss(model.features(batch.x, 0), batch, 0)
    assert abs(float(loss.detach()) - float(np.mean(expected))) < 1e-12
    loss.backward()
    grads = {name: float(p.grad.abs().max()) for name, p in heads.parameters().items()}
    assert list(grads) == [f"heads/{t}/{kind}" for t in range(3) for kind in ("weight", "bias")]
    assert all((g > 0) == (not name.startswith("heads/2/")) for name, g in grads.items())
