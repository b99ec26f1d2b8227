"""What both CLArena sides share: the import, and HAT's settings.

Import this before anything of clarena: it makes torchvision importable (torchvision_operators.py).

What CLArena 1.1.0's HAT computes differently from the paper and its published code:

- s: the formula counts batches from 1, Lightning from 0. The first batch of an epoch has s = 1/s_max − (s_max −
  1/s_max)/(n − 1), a negative number of about −s_max/(n − 1), so its gates are turned around; the second has 1/s_max;
  the last stays one increment short of s_max.
- Embeddings are not clamped to ±6, and no gradient norm is clipped.
- A unit is used when its embedding is above 0; validation takes the gate at s_max, test the binary mask.
- The regulariser is the paper's (over all layers), but 0 when 10 units or fewer are free.
- Every step also computes the network's capacity (the mean of the lock over all parameters) and accuracy, and fresh
  lock matrices; the results are the same, the time is not.
- The last batch of an epoch is dropped when it is not full.
"""

from __future__ import annotations

import torchvision_operators  # noqa: F401

# As in the HAT paper; clamp_threshold is the compensation's.
SETTINGS = {
    "adjustment_mode": "hat",
    "s_max": 400.0,
    "clamp_threshold": 50.0,
    "mask_sparsity_reg_factor": 0.75,
    "mask_sparsity_reg_mode": "original",
    "task_embedding_init_mode": "N01",
}
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
