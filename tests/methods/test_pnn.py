"""PNN: the lateral path of three columns against numpy and against convolutions written out; frozen columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import next_task, random_task, same_bits, scramble, start
from torch import nn

from hatrack import Learner
from hatrack.data.feed import Batch
from hatrack.methods.pnn import PNN
from hatrack.nets import build
from hatrack.targets import Classification


def columns(net: nn.Module | None = None, shape: tuple[int, ...] = (6,), count: int = 3) -> PNN:
    """A method with `count` columns, all tensors random."""
    method = PNN()
    start(method, net, shape)
    for _ in range(count):
        next_task(method, shape=shape)
    for t in range(count):
        scramble({n: v for n, v in method.model.private[t].items() if v.is_floating_point()}, t)
        scramble(method.laterals[t], 20 + t)
    return method


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def test_three_columns_of_a_perceptron_equal_numpy() -> None:
    method = columns()
    own = [{n: v.detach().numpy() for n, v in p.items()} for p in method.model.private]
    lateral = [{n: v.detach().numpy() for n, v in p.items()} for p in method.laterals]
    x = np.random.default_rng(0).normal(size=(7, 6))
    h1, h2 = [], []  # what each column's second layer and head read
    for t in range(3):
        p, a = own[t], lateral[t]
        h1.append(relu(x @ p["fc1.weight"].T + p["fc1.bias"]))
        z = h1[t] @ p["fc2.weight"].T + p["fc2.bias"]
        if t:
            before = np.concatenate([a["fc2/scale"][k] * h1[k] for k in range(t)], 1)
            z = z + relu(before @ a["fc2/reduce"].T) @ a["fc2/into"].T
        h2.append(relu(z))
        head = method.model.heads[t]
        logits = h2[t] @ head.weight.detach().numpy().T + head.bias.detach().numpy()
        if t:
            before = np.concatenate([a["heads/scale"][k] * h2[k] for k in range(t)], 1)
            logits = logits + before @ a["heads/reduce"].T @ a["heads/into"].T
        got = method.predict(torch.from_numpy(x), t).detach().numpy()
        np.testing.assert_allclose(got, logits, rtol=1e-10, err_msg=f"column {t}")
    assert not any(name.startswith("fc1/") for name in lateral[1])  # the first layer reads the input, not units


def test_laterals_of_convolutions_are_a_1x1_reduction_and_a_convolution_like_the_layer() -> None:
    net = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 5), nn.ReLU(),
    ).double()  # fmt: skip
    method = columns(net, (2, 4, 4), count=2)
    first, second = method.model.private
    a, x, fn = method.laterals[1], torch.randn(3, 2, 4, 4, dtype=torch.float64), nn.functional
    c0 = fn.relu(fn.conv2d(x, first["0.weight"], first["0.bias"], padding=1))
    c1 = fn.relu(fn.conv2d(x, second["0.weight"], second["0.bias"], padding=1))
    reduced = fn.relu(fn.conv2d(a["2/scale"][0] * c0, a["2/reduce"][:, :, None, None]))
    d0 = fn.relu(fn.conv2d(c0, first["2.weight"], stride=2, padding=1)).flatten(1)
    d1 = fn.conv2d(c1, second["2.weight"], stride=2, padding=1) + fn.conv2d(reduced, a["2/into"], stride=2, padding=1)
    d1 = fn.relu(d1).flatten(1)
    f0 = fn.relu(fn.linear(d0, first["5.weight"], first["5.bias"]))
    pre = fn.linear(d1, second["5.weight"], second["5.bias"])
    f1 = fn.relu(pre + fn.linear(fn.relu(fn.linear(a["5/scale"][0] * d0, a["5/reduce"])), a["5/into"]))
    head = method.model.heads[1]
    expected = head(f1) + fn.linear(fn.linear(a["heads/scale"][0] * f0, a["heads/reduce"]), a["heads/into"])
    torch.testing.assert_close(method.predict(x, 1), expected, rtol=1e-10, atol=1e-12)


def test_laterals_read_contiguous_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels-last with few channels, a strided 1×1 convolution's backward pass overwrites memory in oneDNN 3.12."""
    method = columns(build("resnet18", (1, 8, 8), width=4).double(), (1, 8, 8), count=2)
    convolve, read = nn.Conv2d._conv_forward, []

    def noted(layer: nn.Conv2d, x: torch.Tensor, *rest: torch.Tensor | None) -> torch.Tensor:
        read.append(x.is_contiguous())
        return convolve(layer, x, *rest)

    monkeypatch.setattr(nn.Conv2d, "_conv_forward", noted)
    method.predict(torch.randn(3, 1, 8, 8, dtype=torch.float64), 1)
    assert read
    assert all(read)


def test_only_the_new_column_gets_gradients() -> None:
    method = columns()
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3
    method.begin_epoch()
    method.loss(Batch(x, y)).backward()
    assert all(t.grad is not None and bool(t.grad.abs().sum() > 0) for t in method.trainable().values())
    for t in range(2):
        old = [*method.model.private[t].values(), *method.laterals[t].values(), *method.model.heads[t].parameters()]
        assert all(tensor.grad is None for tensor in old)
    assert all(p.grad is None for p in method.model.net.parameters())


def test_earlier_columns_run_without_dropout_and_keep_their_statistics() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4)).double()
    method = columns(net, count=2)
    scramble({"1.running_var": method.model.private[0]["1.running_var"]}, scale=lambda _: 0.0)
    method.model.private[0]["1.running_var"].add_(1.0)
    kept = {n: v.clone() for n, v in method.model.private[0].items()}
    seen = []
    method.model.net[4].register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().clone()))
    x, y = torch.randn(16, 6, dtype=torch.float64), torch.arange(16) % 3
    method.begin_epoch()
    for _ in range(2):
        method.loss(Batch(x, y))
    assert all(same_bits(v, kept[n]) for n, v in method.model.private[0].items())
    assert torch.equal(seen[0], seen[2])  # the old column: the same in both steps
    assert not torch.equal(seen[1], seen[3])  # the new one: dropout
    assert method.model.net.training


def test_finished_tasks_do_not_change() -> None:
    torch.manual_seed(0)
    learner = Learner(build("mlp", (6,), widths=(12, 10)), PNN(), epochs=3, batch_size=8)
    for i in range(3):
        learner.learn(random_task(f"t{i}", i))
    assert learner.verify().ok


def test_eight_columns_of_hats_paper_have_the_parameters_of_one_network() -> None:
    classes, widths = (10, 100, 10, 10, 10, 43, 100, 10), (8, 17, 35, 285, 285)
    learner = Learner(build("alexnet", (3, 32, 32), width_scale=1.117 / 8), PNN(), device="cpu")
    model = learner.model
    model.meet(torch.zeros(1, 3, 32, 32))
    for t, count in enumerate(classes):
        model.add_task(Classification(count), torch.Generator(), learner.method.private())
        learner.method.begin_task(t, None, torch.Generator())
    kernels, inputs = (16, 9, 4, 1, 1), (3, 8, 17, 35 * 4, 285)
    columns = 8 * sum(n * m * k + n for n, m, k in zip(widths, inputs, kernels, strict=True))
    heads = sum(285 * n + n for n in classes)
    into = 7 * sum(n * m * k for n, m, k in list(zip(widths, inputs, kernels, strict=True))[1:])
    into += sum(285 * n for n in classes[1:])
    read = (*inputs[1:], 285)  # by the layers from the second on, and the head
    reduce = sum(t * (m * m + 1) for t in range(1, 8) for m in read)  # and a scalar a column
    assert learner.parameters_count == columns + heads + into + reduce == 7_150_924  # 7,160,706 as published
