"""The sizes of cut-outs, and where it can be the answers, against torch-pruning, which finds out by itself what goes
with a unit: it is told the closed outputs of one layer a site, and follows them through its own graph.

Left out is what torch-pruning 1.6.1 does not take: transposed convolutions in groups, RNNs, torch's RMS norms, linear
layers over positions, one layer for queries, keys and values. In a convolution in groups it takes the same places out
of every group, so that it agrees where a task closes the same ones. Its norms count what is left, ours what there was:
of layer and group norms sizes are compared alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hatrack import Learner, Task
from hatrack.masks.trace import derive
from ship.test_cut_out import NEAR, Chosen, learned, of
from zoo import ZOO, Mobile

pytestmark = pytest.mark.filterwarnings("ignore:Unwrapped parameters detected")  # it takes their last axis: right here
pruning = pytest.importorskip("torch_pruning")

PLAIN = ["mlp-relu", "mlp-gelu", "mlp-tanh", "mlp-sigmoid", "alexnet", "flatten", "vgg", "resnet18", "resnet50"]
PLAIN += ["dense", "conv1d", "series", "instance-norm", "frozen-stem", "last-word", "zeroed"]
COUNTING = ["group-norm", "one-group", "channels-last"]


def pruned(learner: Learner, x: Tensor) -> nn.Module:
    """Return network and head of the first task without its closed units, by torch-pruning."""
    model, gates = learner.model, learner.masks()
    assert gates is not None
    head, own = model.heads[0], model.private[0]
    plain = nn.Linear(head.in_features, head.out_features)
    plain.load_state_dict({"weight": head.weight.detach(), "bias": head.bias.detach()})
    net = copy.deepcopy(model.net)
    net.load_state_dict({**net.state_dict(), **{name: tensor.detach() for name, tensor in own.items()}})
    whole = nn.Sequential(net, nn.Flatten(), plain).eval().requires_grad_(True)  # it follows gradients
    graph = pruning.DependencyGraph().build_dependency(whole, example_inputs=x)
    for site in model.units.sites:
        closed = site.start + (gates[f"0/{site.name}"] == 0).nonzero().flatten()
        layer = net.get_submodule(site.writers[0])
        outputs = model.units.uses[f"{site.writers[0]}.weight"][0].units[0]
        places = torch.isin(outputs.flatten(), closed).nonzero().flatten().tolist()
        left = layer.weight.shape[outputs.shape.index(outputs.numel())]
        if places and left == outputs.numel():  # else gone already, with those around a depthwise convolution
            prune = graph.get_pruner_of_module(layer).prune_out_channels
            graph.get_pruning_group(layer, prune, idxs=places).prune()
    return whole.requires_grad_(False)


def require_agreement(learner: Learner, x: Tensor, answers: bool = True) -> None:
    cut, gates = learner.cut_out(0), learner.masks()
    theirs, full = pruned(learner, x), nn.ModuleList([learner.model.net, learner.model.heads[0]])
    ours, same, before = (sum(p.numel() for p in module.parameters()) for module in (cut, theirs, full))
    assert gates is not None
    assert cut.sites == {s: (int(gates[f"0/{s}"].sum()), len(gates[f"0/{s}"])) for s in cut.sites}
    assert ours == same < before
    if answers:
        reference = theirs(x)
        assert float((cut(x) - reference).abs().max()) <= NEAR * float(reference.abs().max())


@pytest.mark.parametrize("name", [*PLAIN, *COUNTING])
def test_agrees_on_networks_of_the_zoo(name: str) -> None:
    learner, _ = learned(name)
    require_agreement(learner, ZOO[name].batch(8, seed=99), answers=name in PLAIN)


def agreeing(make: Callable[[], nn.Module]) -> None:
    """Close the same places, the third of every four, at every site, and so in every group."""
    x = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    net = make()
    gates = [place % 4 != 2 for site in derive(net, x[:1]).sites for place in range(site.size)]
    require_agreement(of(Task("t", (x, torch.arange(16) % 2)), net, Chosen(gates, lambda: None)), x)


@pytest.mark.parametrize("groups", [2, 8], ids=["groups", "depthwise"])
def test_agrees_on_convolutions_in_groups(groups: int) -> None:
    layers = [nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 8, 3, groups=groups), nn.Tanh(), nn.Conv2d(8, 6, 1)]
    agreeing(lambda: nn.Sequential(*layers))


def test_agrees_on_inverted_residuals() -> None:
    """The zoo's, its last convolution not in groups, which close units of the stream at places of their own."""
    net = Mobile()
    net.grouped = nn.Conv2d(4, 6, 3, padding=1)
    agreeing(lambda: net)
