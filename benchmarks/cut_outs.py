"""What the cut-outs of a run's tasks weigh and take: python benchmarks/cut_outs.py RUN …

One line a task: parameters, bytes (safetensors) and milliseconds a sample at batches of 1 and 64 of `learner.predict`
and of the cut-out, medians of calls in turns, one thread.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

import hatrack
from hatrack.nets import make

CALLS = {1: 200, 64: 40}


def size(*modules: nn.Module) -> tuple[int, int]:
    """Return how many parameters modules have, and the bytes of a file with all their tensors."""
    held = {f"{i}.{name}": t.contiguous() for i, m in enumerate(modules) for name, t in m.state_dict().items()}
    return sum(p.numel() for m in modules for p in m.parameters()), len(save(held))


@torch.no_grad()
def times(asked: list[Any], x: Tensor, batch: int) -> list[float]:
    """Return the median milliseconds a sample of each function, called in turns."""
    taken: list[list[float]] = [[] for _ in asked]
    for call in range(5 + CALLS[batch]):
        for ask, kept in zip(asked, taken, strict=True):
            began = perf_counter()
            ask(x[:batch])
            if call >= 5:
                kept.append(1e3 * (perf_counter() - began) / batch)
    return [median(kept) for kept in taken]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    torch.set_num_threads(1)
    for run in parser.parse_args().runs:
        spec = json.loads((run / "result.json").read_text())["spec"]
        known = hatrack.nets.options(spec["net"])
        options = {key: value for key, value in spec["net_options"].items() if key in known}
        page = json.loads((run / "checkpoint" / "learner.json").read_text())
        net = make(spec["net"], page["tasks"][0]["kind"]["shape"], **options)
        learner = hatrack.load(run / "checkpoint", net, device="cpu")
        for number, task in enumerate(learner.tasks):
            cut, x = learner.cut_out(number), task.probes(learner.seed, number, learner.device)
            whole, few = size(net, learner.model.heads[number]), size(cut)
            said = [f"{task.name}: {whole[0]:,} → {few[0]:,} parameters, {whole[1]:,} → {few[1]:,} bytes"]
            for batch in CALLS:
                before, after = times([partial(learner.predict, task=number), cut], x, batch)
                said.append(f"{before:.3f} → {after:.3f} ms a sample in batches of {batch}")
            print(", ".join(said))


if __name__ == "__main__":
    main()
