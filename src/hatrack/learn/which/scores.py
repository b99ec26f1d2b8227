"""By what a sample's task is chosen: pure functions of what the tasks make of it, each with a name.

A score has a row a sample and a column a task, and is small where the sample fits the task. `alone`: a task's column
depends on nothing but that task, so that held-out samples of its own say how large it may be.

    mahalanobis       min_c D²_c, less its mean over the task's training samples, over its deviation there: so tasks
                      of few and of many features stand on one scale
    likelihood        min_c (D²_c + log |Σ|) / p, p features: −2/p of the log-likelihood, constants left out
    max-logit         −max_k z_k
    energy            −log Σ_k exp z_k                      (Liu et al. 2020)
    entropy           −Σ_k p_k log p_k, p the softmax of z
    entropy-gradient  ∂H/∂α_t at α = 1/T, H the entropy of softmax(Σ_t α_t z_t)   (SupSup's one shot, Wortsman et al.
                      2020; it mixes the weights' masks, here the tasks' answers are mixed)
    combined          mahalanobis + max-logit, each less its mean and over its deviation in held-out samples

z are logits. SupSup's needs heads of one width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hatrack.errors import HatrackError, unknown


class Fit(NamedTuple):
    """How samples stand to a task: D² to each of its classes, what its head gives, and what is known of the task.

    `mean`, `deviation`: of the nearest D² of its training samples; `log_determinant` and `features`: log |Σ| and p;
    `held_out`: mean and deviation of the scores of held-out samples, by name.
    """

    distances: Tensor
    logits: Tensor
    mean: Tensor
    deviation: Tensor
    log_determinant: Tensor
    features: int
    held_out: Mapping[str, tuple[Tensor, Tensor]]


def mahalanobis(fit: Fit) -> Tensor:
    return (fit.distances.amin(1) - fit.mean) / fit.deviation


def likelihood(fit: Fit) -> Tensor:
    return (fit.distances.amin(1) + fit.log_determinant) / fit.features


def max_logit(fit: Fit) -> Tensor:
    return -fit.logits.double().amax(1)


def energy(fit: Fit) -> Tensor:
    return -fit.logits.double().logsumexp(1)


def entropy(fit: Fit) -> Tensor:
    return _entropy(fit.logits.double())


def combined(fit: Fit) -> Tensor:
    return _standard(fit, "mahalanobis") + _standard(fit, "max-logit")


def _standard(fit: Fit, name: str) -> Tensor:
    mean, deviation = fit.held_out[name]
    return (ALONE[name](fit) - mean) / deviation


def _entropy(logits: Tensor) -> Tensor:
    logs = logits.log_softmax(1)
    return -(logs.exp() * logs).sum(1)


def entropy_gradient(fits: Sequence[Fit]) -> Tensor:
    widths = {fit.logits.shape[1] for fit in fits}
    if len(widths) > 1:
        raise HatrackError(
            f"score 'entropy-gradient' mixes the answers of all tasks, which have {sorted(widths)} outputs; choose "
            f"another score."
        )
    logits = torch.stack([fit.logits.double() for fit in fits], 1)
    with torch.enable_grad():
        shares = logits.new_full((len(logits), len(fits), 1), 1 / len(fits), requires_grad=True)
        (slope,) = torch.autograd.grad(_entropy((shares * logits).sum(1)).sum(), shares)
    return slope.squeeze(2)


ALONE: dict[str, Callable[[Fit], Tensor]] = {
    "mahalanobis": mahalanobis,
    "likelihood": likelihood,
    "max-logit": max_logit,
    "energy": energy,
    "entropy": entropy,
    "combined": combined,
}
TOGETHER: dict[str, Callable[[Sequence[Fit]], Tensor]] = {"entropy-gradient": entropy_gradient}
SCORES = (*ALONE, *TOGETHER)
DEFAULT = "mahalanobis"


def scored(name: str, fits: Sequence[Fit]) -> Tensor:
    """Return how badly every sample (row) fits every task (column)."""
    if name in TOGETHER:
        return TOGETHER[name](fits)
    if name not in ALONE:
        raise unknown("score", name, SCORES)
    return torch.stack([ALONE[name](fit) for fit in fits], 1)
