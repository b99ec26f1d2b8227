"""What the cut-outs of a run's tasks weigh and take: python benchmarks/cut_outs.py RUN …

One line a task: parameters, bytes (safetensors) and milliseconds a sample at batches of 1 and 64 of `learner.predict`
and of the cut-out, medians of calls in turns, one thread; --least: the least of them, on a machine with other work.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from functools import partial
from pathlib import Path
from statistics import median

import torch

import hatrack
from hatrack.nets import make
from hatrack.ship.export.timing import TURNS, size, times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--least", action="store_true")
    torch.set_num_threads(1)
    given = parser.parse_args()
    for run in given.runs:
        spec = tomllib.loads((run / "spec.toml").read_text())
        page = json.loads((run / "checkpoint" / "learner.json").read_text())
        net = make(spec["net"], page["tasks"][0]["kind"]["shape"], **spec.get("net_options", {}))
        learner = hatrack.load(run / "checkpoint", net, device="cpu")
        for number, task in enumerate(learner.tasks[: learner.finished]):
            cut, x = learner.cut_out(number), task.probes(learner.seed, number, learner.device)
            whole, few = size(net, learner.model.heads[number]), size(cut)
            said = [f"{task.name}: {whole[0]:,} → {few[0]:,} parameters, {whole[1]:,} → {few[1]:,} bytes"]
            for batch in TURNS:
                before, after = times(
                    [partial(learner.predict, task=number), cut], x, batch, min if given.least else median
                )
                said.append(f"{before:.3f} → {after:.3f} ms a sample in batches of {batch}")
            print(", ".join(said))


if __name__ == "__main__":
    main()
