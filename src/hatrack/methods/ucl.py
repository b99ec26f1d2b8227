"""UCL, uncertainty-based continual learning with adaptive regularisation. Ahn, Cha, Lee & Moon 2019.

Every weight is Gaussian, N(μ, σ²), with one σ for all weights into a node. Training draws the weights once a batch,
w = μ + σ·ε; evaluation uses the means. With σ₀ the starting value, B the batch size, * the values after the last task
(before the first: the starting ones), and s = σ₀/σ* the strength of a node:

    loss = cross-entropy
         + α/(2B)·Σ (max(s_out, s_in)·(μ − μ*))²      α counts in the first task only, later it is 1
         + 1/B·Σ (σ₀·μ*/σ*)²·|μ − μ*|                 after the first task
         + β/(2B)·Σ_nodes [σ²/σ*² − log(σ²/σ*²) + σ² − log σ²]

s_in is the strength of the node that a weight reads, 0 for inputs of the network. Biases are plain parameters with
the strength of their node; heads are plain and their task's own. σ = log(1 + e^ρ) and σ₀² = ratio·2/fan, with the
fan-in of linear layers and the fan-out of convolutions. Adam, with a learning rate of its own for ρ. Defaults are
those for permuted MNIST; for split CIFAR-10/100 β 2e-4, ratio 0.125, lr_rho 0.01, α 0.3; CIFAR-100 β 0.002, α 5;
Omniglot β 1e-5, lr_rho 0.02, α 5. They are meant for 100 epochs: in a few hundred steps lr_rho = 0.001 leaves every σ
where it started, no node counts as certain and none is held; a short training needs a larger one.

Deviations. The means start at the weights that were handed over, instead of being drawn at a variance of
(1 − ratio)·2/fan. Which nodes a weight reads comes from the unit map; a node written by several layers has the
largest of their strengths. Norms with running statistics are one a task. Other layers with parameters are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log, sqrt
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from hatrack.data.feed import Feed
from hatrack.errors import HatrackError
from hatrack.masks.unitmap import layer_of
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept, scratch
from hatrack.methods.parts.nodes import written
from hatrack.nets.model import Model

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass
class UCL(Method):
    """A Gaussian for every weight, one uncertainty a node; certain nodes are held."""

    name: ClassVar[str] = "ucl"
    family: ClassVar[str] = "regularisation"
    source: ClassVar[str] = "Ahn et al. 2019"
    summary: ClassVar[str] = "Bayesian weights with an uncertainty a node; certain nodes resist change"
    stores: ClassVar[str] = "4·P + 4·U bytes in all: means, a deviation a node"
    norms: ClassVar[str] = "task"
    shares_batches: ClassVar[bool] = False  # a sum over the batch stands beside its mean

    lr: float = hyper(0.001, "learning rate of the means at the start of a task", low=0.0, search=(1e-4, 1e-2, "log"))
    lr_rho: float = hyper(0.001, "learning rate of the uncertainties", low=0.0, search=(1e-4, 1e-1, "log"))
    lr_min: float = hyper(0.001 / 3**5, "training on a task stops when the learning rate falls below", low=0.0)
    beta: float = hyper(0.03, "weight of the uncertainties' regulariser", low=0.0, search=(1e-4, 0.1, "log"))
    ratio: float = hyper(0.5, "share of a weight's variance that is uncertainty at the start", low=0.0, high=1.0)
    alpha: float = hyper(0.01, "weight of the pull to the starting weights in the first task", low=0.0)

    anchors: dict[str, Tensor] = kept("")  # μ* and b*, and ρ* under "rho/…"; empty before the first task ends
    mu_old: dict[str, Tensor] = scratch()
    sigma_old: dict[str, Tensor] = scratch()
    strength: dict[str, Tensor] = scratch()

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.gaussian: dict[str, nn.Parameter] = {}  # weights with an uncertainty
        self.plain: dict[str, nn.Parameter] = {}  # their biases
        for name, parameter in model.parameters().items():
            layer = model.net.get_submodule(layer_of(name))
            if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
                (self.gaussian if parameter.ndim > 1 else self.plain)[name] = parameter
            elif not isinstance(layer, _NormBase):
                raise HatrackError(
                    f"ucl knows linear and convolution layers and batch norm; {name!r} belongs to a "
                    f"{type(layer).__name__}: freeze it (requires_grad_(False)) or choose another method."
                )
        self.start = {name: self._start(name) for name in self.gaussian}
        self.rho = {name: self._new_rho(name) for name in self.gaussian}

    def _start(self, name: str) -> float:
        """σ₀ of a layer."""
        shape = self.gaussian[name].shape
        convolution = isinstance(self.model.net.get_submodule(layer_of(name)), CONVOLUTIONS)
        fan = shape[0 if convolution else 1] * shape[2:].numel()
        return sqrt(self.ratio * 2 / fan)

    def _new_rho(self, name: str) -> Tensor:
        """ρ of every node of a layer, so that softplus(ρ) = σ₀, as a column beside the weights."""
        weight = self.gaussian[name]
        shape = (len(weight), *(1,) * (weight.ndim - 1))
        value = log(expm1(self.start[name])) if self.start[name] > 0 else -torch.inf
        return torch.full(shape, value, dtype=weight.dtype, device=weight.device, requires_grad=True)

    # ---- learning

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        anchored = {**self.gaussian, **self.plain}
        self.mu_old = {name: self.anchors.get(name, self.model.initial[name]) for name in anchored}
        rho_old = {name: self.anchors.get(f"rho/{name}", self._new_rho(name).detach()) for name in self.gaussian}
        self.sigma_old = {name: softplus(rho) for name, rho in rho_old.items()}
        self.strength = self.strengths()
        with torch.no_grad():
            for name, rho in self.rho.items():
                rho.copy_(rho_old[name])

    def strengths(self) -> dict[str, Tensor]:
        """Return max(s_out, s_in) of every weight, and s_out of every bias."""
        units = self.model.units
        by_node = {name: self.start[name] / sigma for name, sigma in self.sigma_old.items()}
        nodes = torch.zeros(units.size + 2, device=self.model.device)  # two more: the unit map's "never" and "always"
        for name, own in by_node.items():
            for rows in written(units, name):
                at = rows.to(nodes.device).remainder(len(nodes))
                nodes.scatter_reduce_(0, at, own.flatten().to(nodes.dtype), "amax")
        nodes[units.size :] = 0
        found: dict[str, Tensor] = {}
        for name, own in by_node.items():
            total = own.expand_as(self.gaussian[name])
            for use in units.uses.get(name, []):
                for index in use.units:
                    total = torch.maximum(total, nodes[index.to(nodes.device)].to(own.dtype))
            found[name] = total.contiguous()
            bias = f"{layer_of(name)}.bias".removeprefix(".")
            if bias in self.plain:
                found[bias] = own.flatten()
        return found

    def learned_besides(self, tasks: int) -> int:
        return sum(rho.numel() for rho in self.rho.values())

    def trainable(self) -> dict[str, Tensor]:
        return {**super().trainable(), **{f"rho/{name}": rho for name, rho in self.rho.items()}}

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        rhos = {id(rho) for rho in self.rho.values()}
        groups = [
            {"params": [p for p in parameters if id(p) not in rhos], "lr": self.lr},
            {"params": [p for p in parameters if id(p) in rhos], "lr": self.lr_rho},
        ]
        return torch.optim.Adam(groups, fused=True)

    def sampled(self) -> dict[str, Tensor]:
        """w = μ + σ·ε for every Gaussian weight."""
        return {name: mu + softplus(self.rho[name]) * torch.randn_like(mu) for name, mu in self.gaussian.items()}

    def forward(self, x: Any) -> Tensor:
        logits = self.model.logits(x, self.task, weights=self.sampled())
        self._batch = len(logits)
        return logits

    def penalty(self) -> Tensor:
        return self.regulariser() / self._batch

    def regulariser(self) -> Tensor:
        """Return the three sums, to be divided by the batch size."""
        anchored = {**self.gaussian, **self.plain}
        pull, hold, spread = [], [], []
        for name, mu in anchored.items():
            moved = mu - self.mu_old[name]
            pull.append((self.strength[name] * moved).square().sum())
            if self.task:
                hold.append((self._certainty(name) * moved).abs().sum())
        for name, rho in self.rho.items():
            variance = softplus(rho).square()
            change = variance / self.sigma_old[name].square()
            spread.append((change - change.log() + variance - variance.log()).sum())
        total = (self.alpha if self.task == 0 else 1.0) / 2 * torch.stack(pull).sum()
        total = total + self.beta / 2 * torch.stack(spread).sum()
        return total + torch.stack(hold).sum() if hold else total

    def _certainty(self, name: str) -> Tensor:
        """(σ₀·μ*/σ*)² of a weight or a bias."""
        weight = name if name in self.gaussian else f"{layer_of(name)}.weight".removeprefix(".")
        relative = self.start[weight] / self.sigma_old[weight]
        return (self.mu_old[name] * (relative if name == weight else relative.flatten())).square()

    def end_task(self, feed: Feed) -> None:
        means = {name: p.detach().clone() for name, p in {**self.gaussian, **self.plain}.items()}
        self.anchors = {**means, **{f"rho/{name}": rho.detach().clone() for name, rho in self.rho.items()}}
