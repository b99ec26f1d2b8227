"""Classes as Gaussians with one covariance, shrunk (Ledoit & Wolf 2004): how far a sample is from each of them.

    r_i = f_i − μ_c(i)                    what is left of a sample's p features without the mean of its class
    S   = Σ r_i r_iᵀ / n
    Σ   = (1 − ρ)·S + ρ·m·I               m = tr S / p
    ρ   = min(β, δ)/δ                     β = (Σ ‖r_i‖⁴/n − ‖S‖²)/(n·p),  δ = (‖S‖² − p·m²)/p
    D²  = (f − μ_c)ᵀ Σ⁻¹ (f − μ_c)

Σ is kept by its eigenvectors, each once. Of wide features those of the DIRECTIONS largest eigenvalues are kept, and the
others count with their mean, which leaves tr Σ as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

DIRECTIONS = 512
LEAST = 1e-12  # of the mean variance: features that never move must not be divided by 0


@dataclass(frozen=True, eq=False)
class Gaussian:
    """`means`: a row a class; `directions`: orthonormal columns; `variances` along them; `rest`: across them."""

    means: Tensor
    directions: Tensor
    variances: Tensor
    rest: Tensor

    def distances(self, features: Tensor) -> Tensor:
        """Return D² of every sample (row) to every class (column), in float64: small differences of large sums."""
        return torch.cdist(self._whitened(features), self._classes).square()

    def _whitened(self, features: Tensor) -> Tensor:
        directions, deviations, centre = self._doubles
        centred = features.double() - centre
        along = centred @ directions
        if directions.shape[0] == directions.shape[1]:
            return along / deviations
        across = torch.addmm(centred, along, directions.T, alpha=-1)
        return torch.cat([along / deviations, across / self.rest.double().sqrt()], dim=1)

    @cached_property
    def _doubles(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.directions.double(), self.variances.double().sqrt(), self.means.double().mean(0)

    @cached_property
    def _classes(self) -> Tensor:
        return self._whitened(self.means)

    @cached_property
    def log_determinant(self) -> Tensor:
        """log |Σ|."""
        across = self.directions.shape[0] - self.directions.shape[1]
        return self.variances.double().log().sum() + across * self.rest.double().log()


def fit(features: Tensor, labels: Tensor) -> Gaussian:
    """Return the Gaussians of samples (rows) with these labels, computed in float64; a class without any has none."""
    x = features.double()
    classes, label = labels.unique(return_inverse=True)
    means = torch.zeros(len(classes), x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, label, x)
    means /= torch.bincount(label)[:, None]
    left = x - means[label]
    values, vectors, rho, average = _spectrum(left)
    order = values.argsort(descending=True)[:DIRECTIONS]
    variances = (1 - rho) * values[order] + rho * average
    across = x.shape[1] - len(order)
    rest = ((x.shape[1] * average - variances.sum()) / across).clamp(min=LEAST) if across else average
    return Gaussian(means.float(), vectors[:, order].float(), variances.float(), rest.float())


def _spectrum(left: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of S, ρ and m; of as many directions as there can be."""
    n, p = left.shape
    wide = n < p
    products = (left @ left.T if wide else left.T @ left) / n
    values, vectors = torch.linalg.eigh(products)  # S and the products of samples have the same above 0
    average = (values.sum() / p).clamp(min=LEAST)
    size = values.square().sum()
    beta = (left.square().sum(1).square().mean() - size) / (n * p)
    delta = (size - p * average.square()) / p
    rho = torch.where(delta > 0, torch.minimum(beta, delta) / delta, 1.0).clamp(0, 1)
    if wide:
        found = values > values[-1] * n * torch.finfo(values.dtype).eps
        values, vectors = values[found], left.T @ vectors[:, found]
        vectors /= torch.linalg.vector_norm(vectors, dim=0)
    return values.clamp(min=0), vectors, rho, average
