"""An oracle for unit maps that knows nothing of how they are made: it only changes numbers and looks at the result.

The map claims, for a choice of open units, which parameter entries matter. The oracle overwrites every entry that is
claimed not to matter by garbage and compares the gated features bit by bit; and it asks autograd which entries the
gated features really depend on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hatrack.masks.gates import Gating
from hatrack.masks.unitmap import UnitMap

DENSITIES = (0.15, 0.5, 0.85)


@dataclass(frozen=True)
class Finding:
    """Where a map is wrong: entries claimed not to matter that do."""

    parameter: str
    entries: int
    why: str


def gated_features(
    net: nn.Module, units: UnitMap, gates: Tensor, x: Tensor, swapped: dict[str, Tensor] | None = None
) -> Tensor:
    """Return what heads see of x under `gates`, with tensors of the network replaced by name."""
    gating = Gating(net, units)
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers()), **(swapped or {})}
    with gating.on_inputs(gates):
        out = functional_call(net, {**(swapped or {}), **gating.weights(gates, tensors)}, (x,))
    return gating.features(gates, out)


def random_gates(units: UnitMap, density: float, seed: int) -> Tensor:
    return torch.rand(units.size, generator=torch.Generator().manual_seed(seed)) < density


def garbage_findings(net: nn.Module, units: UnitMap, x: Tensor, seed: int = 0) -> list[Finding]:
    """Overwrite all entries that no open unit uses, at once; where the features change, find the parameters.

    Evaluation mode without gradients: also where PyTorch takes short cuts of its own.
    """
    net.eval()
    findings = []
    for i, density in enumerate(DENSITIES):
        gates = random_gates(units, density, seed + i)
        used = units.used(gates.float())
        noise = torch.Generator().manual_seed(seed + i)
        fake = {}
        for name, parameter in net.named_parameters():
            garbage = 3 * torch.randn(parameter.shape, generator=noise, dtype=parameter.dtype)
            free = used[name] == 0 if name in used else torch.ones_like(parameter, dtype=torch.bool)
            # PyTorch picks kernels by requires_grad, also where no gradient is taken; so the flag must be the same.
            fake[name] = torch.where(free, garbage, parameter.detach()).requires_grad_(parameter.requires_grad)
        with torch.no_grad():
            clean = gated_features(net, units, gates, x)
            assert torch.isfinite(clean).all()
            if same_bits(clean, gated_features(net, units, gates, x, fake)):
                continue
            for name in fake:
                now = gated_features(net, units, gates, x, {name: fake[name]})
                if not same_bits(clean, now):
                    count = int((used[name] == 0).sum()) if name in used else fake[name].numel()
                    findings.append(Finding(name, count, f"garbage in entries not used at density {density}"))
    return findings


def dependence(
    net: nn.Module, units: UnitMap, x: Tensor, density: float = 0.6, seed: int = 0
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return for every parameter (claimed to matter, really has a gradient), entry by entry, in float64."""
    net = net.double().eval()
    gates = random_gates(units, density, seed)
    parameters = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
    x = x.double() if x.is_floating_point() else x
    out = gated_features(net, units, gates, x, parameters)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=out.dtype)
    gradients = torch.autograd.grad((out * weights).sum(), list(parameters.values()), allow_unused=True)
    net.float()
    used = units.used(gates.float())
    table = {}
    for (name, p), gradient in zip(parameters.items(), gradients, strict=True):
        claimed = used[name] > 0 if name in used else torch.zeros(p.shape, dtype=torch.bool)
        table[name] = (claimed, torch.zeros_like(claimed) if gradient is None else gradient != 0)
    return table


def same_bits(a: Tensor, b: Tensor) -> bool:
    words = {4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(words), b.contiguous().view(words))
