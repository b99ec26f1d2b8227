"""The network of open units alone, against the whole network under gates: answers, gradients, statistics, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hatrack.nets import build
from hatrack.nets.model import Model
from hatrack.nets.narrow import Narrow, narrowed
from hatrack.targets import Classification

CPU = torch.device("cpu")


def model_of(net: nn.Module, shape: tuple[int, ...], private: tuple[str, ...] = ()) -> Model:
    model = Model(net, CPU)
    dtype = next(net.parameters()).dtype
    torch.manual_seed(1)
    for parameter in net.parameters():
        if parameter.ndim == 1:  # biases at 0 would hide closed units that are computed all the same
            nn.init.normal_(parameter)
    model.meet(torch.randn(1, *shape, dtype=dtype))
    model.add_task(Classification(3), torch.Generator().manual_seed(0), {n: model.tensors()[n] for n in private})
    model.heads[0].to(dtype)
    return model


def some_open(model: Model, share: float = 0.4) -> Tensor:
    open = torch.rand(model.units.size, generator=torch.Generator().manual_seed(3)) < share
    for site in model.units.sites:
        open[site.start] = True
    return open


def modules(model: Model, chosen: tuple[int, ...], of: int) -> Tensor:
    parts = [torch.arange(site.size) * of // site.size for site in model.units.sites]
    return torch.isin(torch.cat(parts), torch.tensor(chosen))


def both(model: Model, open: Tensor, x: Tensor) -> tuple[Narrow, list[Tensor], list[Tensor]]:
    """Logits and all gradients, of open units alone and under gates."""
    narrow = narrowed(model, open, 0)
    assert narrow is not None
    trained = [*(model.private[0].get(n, p) for n, p in model.parameters().items()), *model.heads[0].parameters()]
    weights = torch.randn(len(x), 3, dtype=x.dtype, generator=torch.Generator().manual_seed(5))
    results = []
    for logits in (narrow.logits(x, 0), model.logits(x, 0, open)):
        gradients = torch.autograd.grad((logits * weights).sum(), trained)
        results.append([logits.detach(), *gradients])
    return narrow, *results


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_three_of_sixteen_modules_answer_and_learn_as_under_gates(dtype: torch.dtype, tolerance: float) -> None:
    net = build("alexnet", (3, 32, 32), width_scale=0.05, branches=16, dropout_early=0.0, dropout_late=0.0).to(dtype)
    model = model_of(net, (3, 32, 32))
    x = torch.randn(4, 3, 32, 32, dtype=dtype)
    open = modules(model, (2, 3, 11), 16)
    widths = []
    net.conv2.register_forward_hook(lambda module, args, out: widths.append(out.shape[1]))
    _, alone, gated = both(model, open, x)
    assert widths[-2:] == [3 * 6, 16 * 6]  # int(0.05 · 128) filters a module
    for ours, theirs in zip(alone, gated, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))
    closed = ~open[:48].bool()
    assert not alone[1][closed].any()  # of conv1.weight
    assert alone[1][~closed].any()


def test_rows_and_columns_of_single_units() -> None:
    net = build("mlp", (6,), widths=(20, 15), dropout=0.0, input_dropout=0.0).double()
    model = model_of(net, (6,))
    open = some_open(model)
    narrow, alone, gated = both(model, open, torch.randn(5, 6, dtype=torch.float64))
    for ours, theirs in zip(alone, gated, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    second = alone[3]  # of fc2.weight
    assert torch.equal(second != 0, open[20:, None] & open[None, :20] & (second != 0))
    features = narrow.features(torch.randn(2, 6, dtype=torch.float64), 0)
    assert features.shape == (2, 15)
    assert not features[:, ~open[20:]].any()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.norm(self.conv1(x)).relu()).mean((2, 3))


@pytest.mark.parametrize("training", [False, True])
def test_norms_are_cut_and_keep_their_statistics(training: bool) -> None:
    net = Normed().double()
    own = ("norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
    model = model_of(net, (2, 8, 8), own)
    open = some_open(model, 0.5)
    assert not open[:8].all()
    x = torch.randn(7, 2, 8, 8, dtype=torch.float64)
    net.train(training)
    found = []
    for narrow in (True, False):
        for name in own[2:]:
            model.private[0][name].copy_(torch.arange(1.0, 9.0) if "num" not in name else torch.tensor(0))
        alone = narrowed(model, open, 0)
        assert alone is not None
        logits = alone.logits(x, 0) if narrow else model.logits(x, 0, open)
        found.append((logits.detach(), *(model.private[0][name].clone() for name in own[2:])))
    (ours, mean, var, count), (theirs, all_means, all_vars, same) = found
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mean[open[:8]], all_means[open[:8]], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(var[open[:8]], all_vars[open[:8]], rtol=1e-12, atol=1e-12)
    assert mean[~open[:8]].tolist() == [i + 1.0 for i in range(8) if not open[i]]  # a closed unit saw no batch
    assert int(count) == int(same) == int(training)


class MeanOfAll(nn.Sequential):
    """Divides by the number of its units: with fewer of them it says something else."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self[0](x).relu()
        return hidden / hidden.shape[1]


class Reshaped(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return self[0](x).view(-1, 2, 5).sum(1)


@pytest.mark.parametrize(
    "net",
    [
        MeanOfAll(nn.Linear(6, 10)),
        Reshaped(nn.Linear(6, 10)),
        nn.Sequential(nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 4)),
        nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 2), nn.Conv1d(4, 8, 2, groups=2), nn.Flatten()),
    ],
    ids=["divides by units", "fixed reshape", "layer norm", "groups"],
)
def test_where_fewer_units_do_not_come_to_the_same_there_is_no_narrow_form(net: nn.Module) -> None:
    model = model_of(net.double(), (6,))
    open = some_open(model)
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    assert narrowed(model, open, 0) is None
    assert all(torch.equal(before[name], tensor) for name, tensor in model.tensors().items())
    assert net.training  # as it was
