"""Fisher masks against numpy: what is frozen, globally and layer by layer, the union, the steps, and L1."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import add_head, arrays, as_arrays, batch, begin, close, feed, fisher, gradient, model, samples

from hatrack.methods.fisher_mask import FisherMask, largest, largest_rows

CPU = torch.device("cpu")

LR = 0.05


def restated_mask(values: dict, share: float, layerwise: bool) -> dict:
    """Freeze entries one by one, the largest first, until the share is reached."""
    marked = {name: np.zeros(v.shape) for name, v in values.items()}
    groups = [[name] for name in values] if layerwise else [list(values)]
    for group in groups:
        entries = [(-v, name, i) for name in group for i, v in np.ndenumerate(values[name])]
        entries.sort(key=lambda entry: entry[0])
        for _, name, i in entries[: round(share * len(entries))]:
            marked[name][i] = 1
    return marked


@pytest.mark.parametrize("layerwise", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_the_largest_share_is_frozen(share: float, layerwise: bool) -> None:
    rng = np.random.default_rng(1)
    values = {"w": rng.random((7, 5)) * 1e-5, "b": rng.random(11)}  # layers that differ as the source describes
    got = largest({name: torch.from_numpy(v) for name, v in values.items()}, share, layerwise)
    close(as_arrays(got), restated_mask(values, share, layerwise))


def test_of_equal_values_just_the_share_is_frozen() -> None:
    got = largest({"w": torch.zeros(2, 5), "b": torch.zeros(4)}, 0.5, layerwise=True)
    assert [int(v.sum()) for v in got.values()] == [5, 2]


@pytest.mark.parametrize("layerwise", [True, False])
def test_neurons_are_frozen_by_what_all_of_their_entries_matter(layerwise: bool) -> None:
    rng = np.random.default_rng(2)
    shapes = {"a.weight": (4, 3, 2, 2), "a.bias": (4,), "b.weight": (6, 4), "scale": (5,)}
    values = {name: rng.random(shape) for name, shape in shapes.items()}
    got = as_arrays(largest_rows({name: torch.from_numpy(v) for name, v in values.items()}, 0.5, layerwise))
    neurons = {("a", i): values["a.weight"][i].sum() + values["a.bias"][i] for i in range(4)}
    neurons |= {("b", i): values["b.weight"][i].sum() for i in range(6)}
    neurons |= {("", i): values["scale"][i] for i in range(5)}
    frozen: set = set()
    for group in [["a"], ["b"], [""]] if layerwise else [["a", "b", ""]]:
        ranked = sorted((n for n in neurons if n[0] in group), key=lambda n: -neurons[n])
        frozen |= set(ranked[: round(0.5 * len(ranked))])
    for name, value in values.items():
        layer = name.rpartition(".")[0]
        for i, row in enumerate(got[name]):
            assert np.all(row == ((layer, i) in frozen)), name
        assert got[name].shape == value.shape


@pytest.mark.parametrize("union", [True, False])
@pytest.mark.parametrize("layerwise", [True, False])
@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_three_tasks_equal_the_restatement(layerwise: bool, l1: float, union: bool) -> None:
    m, method = model(heads=()), FisherMask(share=0.4, layerwise=layerwise, l1=l1, union=union, lr=LR)
    method.attach(m)
    frozen: dict = {}
    for task in range(3):
        add_head(m, 3, seed=task)
        x, y = samples(task, n=50)
        stepper, p = begin(method, task, x, y), arrays(m, task)
        start = dict(p)
        for _ in range(4):
            stepper.step(batch(x, y))
            g = gradient(p, x, y)
            for name in ("fc1.weight", "fc2.weight"):
                g[name] = g[name] + l1 * np.sign(p[name])
            p = {name: v - LR * g[name] * (1 - frozen.get(name, 0)) for name, v in p.items()}
            close(arrays(m, task), p, rtol=1e-8)
        for name, mask in frozen.items():
            assert np.array_equal(p[name][mask == 1], start[name][mask == 1])
        method.end_task(feed(x, y, task))
        new = restated_mask(fisher(arrays(m, task), x, y), 0.4, layerwise)  # of the task's loss, without the L1 term
        frozen = {name: np.maximum(v, frozen.get(name, 0)) for name, v in new.items()} if union else new
        close(as_arrays(method.importance), frozen)
    share = sum(v.sum() for v in frozen.values()) / sum(v.size for v in frozen.values())
    assert share > 0.5 if union else share == pytest.approx(0.4, abs=0.02)  # the union is more than one task's share


def test_masks_are_stored_as_bytes_and_come_back() -> None:
    m, method = model(heads=(3,)), FisherMask(share=0.4)
    method.attach(m)
    x, y = samples(0)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    state = method.state()
    assert {t.dtype for t in state.values()} == {torch.uint8}
    other = FisherMask(share=0.4)
    other.attach(model(heads=(3,)))
    other.load_state(state, 1, CPU)
    close(as_arrays(other.importance), as_arrays(method.importance))


@pytest.mark.parametrize("neurons", [False, True])
def test_significance_is_recorded_layer_by_layer(neurons: bool) -> None:
    """By numpy's own histogram of what is ranked: entries, or sums over a neuron's row and bias."""
    m, method = model(heads=(3,)), FisherMask(share=0.4, neurons=neurons)
    method.attach(m)
    x, y = samples(0, n=50)
    begin(method, 0, x, y)
    assert method.histograms() == {}
    method.end_task(feed(x, y))
    values = fisher(arrays(m, 0), x, y)
    for layer, found in method.histograms().items():
        weight, bias = values[f"{layer}.weight"], values[f"{layer}.bias"]
        ranked = weight.sum(1) + bias if neurons else np.concatenate([weight.ravel(), bias])
        edges = found["start"] + found["step"] * np.arange(len(found["counts"]) + 1)
        assert found["counts"] == np.histogram(np.log10(ranked[ranked > 0]), edges)[0].tolist()
        assert sum(found["counts"]) + found["zeros"] == len(ranked)
    assert set(method.histograms()) == {"fc1", "fc2"}
