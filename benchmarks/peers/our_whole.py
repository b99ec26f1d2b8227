"""hatrack's whole run, by its command line, with all its files: checkpoints, metrics, masks, result, report."""

from __future__ import annotations

import json
from importlib import import_module

from run_side import BATCH, RATE, S_MAX, WIDTHS, C, answer, told

from hatrack.cli import main as hatrack_main

# The command imports these only when it runs; here imports are timed by themselves.
for _module in ("learn.learner", "report", "runs.runner", "runs.setup", "show.progress", "show.summary"):
    import_module(f"hatrack.{_module}")


def main() -> None:
    """Run the command and answer with what result.json says."""
    given = told()
    settings = {"lr": RATE, "s_max": S_MAX, "c": C, "widths": json.dumps(WIDTHS), "dropout": 0, "input_dropout": 0}
    words = ["run", "--method", "hat", "--benchmark", "split-mnist", "--net", "mlp", "--device", "cpu"]
    words += ["--data", given.data, "--seed", str(given.seed), "--epochs", str(given.epochs)]
    words += ["--batch-size", str(BATCH), "--out", str(given.out)]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    if hatrack_main(words):
        raise SystemExit("the run failed")
    answer(json.loads((given.out / "result.json").read_text())["accuracy"][-1])


if __name__ == "__main__":
    main()
