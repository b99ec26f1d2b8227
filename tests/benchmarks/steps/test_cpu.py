"""The table of a CPU: its lines, and that every ratio is of the sides it names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from hatrack.bench.cpu import NETS, Net, cpu_table
from hatrack.bench.timing import Timing

from hatrack.bench import cpu
from hatrack.nets import build

CPU, SHAPE = torch.device("cpu"), (1, 4, 4)
SMALL = Net(
    "a small net",
    SHAPE,
    lambda: build("mlp", SHAPE, widths=(8,)),
    {"float32": ("sgd", "hat", "spg", "ewc", "pmask"), "bf16": ("hat",)},
    published=True,
)
OTHER = Net("another", SHAPE, SMALL.make, {"float32": ("hat",), "bf16": ()})


@pytest.fixture(autouse=True)
def peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that takes 1 ms for the operations of the small net in float32, and half as long in bf16."""
    operations = cpu.work_of(SMALL.make(), SHAPE, CPU).operations
    monkeypatch.setattr(cpu, "bytes_a_second", lambda device: 1e12)
    monkeypatch.setattr(cpu, "operations_a_second", lambda device, p: operations * {"float32": 1e3, "bf16": 2e3}[p])
    monkeypatch.setattr(cpu, "multiplies_bf16", lambda: True)
    monkeypatch.setattr(cpu, "published_step", lambda device: lambda: None)


def figures(text: str, line: str) -> list[float]:
    return next([float(word) for word in found.split()[-3:]] for found in text.splitlines() if found.startswith(line))


def test_lines_are_measured_and_fit_the_terminal() -> None:
    text = cpu_table(CPU, (SMALL, OTHER), rounds=1, steps=1)
    first, second, foot = text.split("\n\n")[1:]
    assert [line.split("  ")[0] for line in first.splitlines()] == [
        "a small net",
        "plain torch loop",
        "published way (HAT)",
        *("sgd", "hat", "spg", "ewc", "pmask"),
        "hat",
    ]
    assert first.splitlines()[-1].split()[1] == "bf16"
    assert [line.split("  ")[0] for line in second.splitlines()] == ["another", "plain torch loop", "hat"]
    assert [line.split("  ")[0] for line in foot.splitlines()[1:]] == ["a small net"] * 2 + ["another"] * 2
    assert all(figure > 0 for line in foot.splitlines()[1:] for figure in figures(line, "")[1:])
    for block in (first, second):
        took, ratio, _ = figures(block, "plain torch loop")
        assert took > 0
        assert ratio == 1
    assert max(map(len, text.splitlines())) <= 80


def test_ratios_are_to_the_plain_loop_and_to_the_floor_of_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    def interleave(sides: Mapping[str, object], *_: object, **__: object) -> list[Timing]:
        return [Timing(side, 4.0 + place, 1.0 + place) for place, side in enumerate(sides)]

    monkeypatch.setattr(cpu, "interleave", interleave)
    text = cpu_table(CPU, (SMALL,))
    assert figures(text, "plain torch loop") == [4, 1, 4]
    assert figures(text, "sgd") == [6, 3, 6]
    assert figures(text, "hat                  bf16") == [11, 8, 22]
    assert [line.split()[-1] for line in text.splitlines()[-2:]] == ["1.00", "0.50"]


def test_a_cpu_without_bf16_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "multiplies_bf16", lambda: False)
    text = cpu_table(CPU, (OTHER,), rounds=1, steps=1)
    assert [line for line in text.splitlines() if "bf16" in line] == [
        "bf16 is left out: this CPU has neither avx512_bf16 nor AMX"
    ]


def test_the_real_table_has_the_papers_networks() -> None:
    alexnet, mlp = NETS
    assert set(alexnet.methods["float32"]) == {"sgd", "hat", "spg", "ewc", "pmask"}
    assert set(alexnet.methods["bf16"]) == {"sgd", "hat"}
    assert dict(mlp.methods) == {"float32": ("hat",), "bf16": ("hat",)}
    assert [net.published for net in NETS] == [True, False]
    rates = {name: m.p for name, m in mlp.make().named_modules() if isinstance(m, torch.nn.Dropout)}
    assert rates == {"drop0": 0.2, "drop1": 0.5, "drop2": 0.5}
    assert [tuple(p.shape) for name, p in mlp.make().named_parameters() if "weight" in name] == [
        (2000, 784),
        (2000, 2000),
    ]
    assert [net.make()(torch.zeros(1, *net.shape)).shape[1] for net in NETS] == [2048, 2000]
