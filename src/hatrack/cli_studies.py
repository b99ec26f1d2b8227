"""The commands over many runs: `hatrack study` and `hatrack tune`. Parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hatrack.errors import HatrackError
from hatrack.processes import refuse_several
from hatrack.show.terminal import complain, say, say_line

if TYPE_CHECKING:
    from hatrack.studies.executor import Executor

CODE = "or file.py:Name, package.module:Name"
Seeds = Annotated[str | None, typer.Option(metavar="0-4", help="Other seeds than the file's.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting as in the file's [shared]; repeatable."),
]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, … [default: auto]")]
Data = Annotated[str | None, typer.Option(help="Folder with the data sets.")]
Log = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Log to tensorboard, mlflow, wandb (offline) or trackio too; repeatable."),
]
Events = Annotated[bool, typer.Option("--tensorboard", help="The same as --log tensorboard.")]
Workers = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Runs side by side. [default: one a core, or a GPU]")
]


def study(
    file: Annotated[
        str, typer.Argument(metavar="FILE.toml|NAME", help="See: hatrack list recipes.", show_default=False)
    ],
    scale: Annotated[
        str, typer.Option(metavar="NAME", help="A smaller form that the file has; every recipe has small.")
    ] = "",
    seeds: Seeds = None,
    methods: Annotated[str | None, typer.Option(metavar="A,B", help="Only these methods of the file.")] = None,
    settings: Settings = None,
    workers: Workers = None,
    on: Annotated[str, typer.Option(help="local (processes on this machine) or ray.")] = "local",
    engine: Annotated[str | None, typer.Option(hidden=True)] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster. [default: one on this machine]")] = None,
    device: Device = None,
    data: Data = None,
    log: Log = None,
    tensorboard: Events = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the study. [default: studies/NAME]")] = None,
    references: Annotated[
        Path | None, typer.Option(help="Folder of the runs that studies share. [default: references/ beside it]")
    ] = None,
) -> None:
    """Run methods × seeds × benchmarks, and set them beside the paper's figures.

    The same command goes on with a study that was stopped, and repeats no finished run.
    """
    from hatrack.runs.multi_seed import parse_seeds
    from hatrack.runs.values import parse_all
    from hatrack.show.recipes import expected
    from hatrack.show.study import StudyProgress
    from hatrack.studies.execute import Machine, execute
    from hatrack.studies.export import write
    from hatrack.studies.plan import Places, plan
    from hatrack.studies.recipes import find
    from hatrack.studies.text import summary

    refuse_several("study")
    if engine is not None:  # what --on was called before
        instead = f"--on {engine}" if engine in ("local", "ray") else f"--set engine={engine}"
        raise HatrackError(f"study takes no --engine; write {instead}.")
    loggers = chosen_loggers(log, tensorboard)  # before anything is made
    chosen = find(file, scale).narrowed(_words(methods), parse_seeds(seeds) if seeds else None)
    chosen = chosen.with_settings(parse_all(settings or []))
    folder = out if out is not None else Path("studies") / chosen.name
    shared = references if references is not None else folder.absolute().parent / "references"
    runner = _executor(on, address, workers)
    machine = Machine(device, data, loggers, remote=address is not None)
    if chosen.scales and address is None:
        planned = plan(chosen, Places(folder.absolute() / "runs", shared.absolute()), device, data)
        if hours := expected(planned):
            say_line(hours)
    try:
        outcome = execute(chosen, folder, shared, machine, runner, StudyProgress())
    except KeyboardInterrupt:
        raise typer.Exit(_stopped()) from None
    try:
        write(outcome, folder)
    finally:  # on a full disk, what was found is said all the same
        say(f"\n{summary(outcome, folder)}")
    if outcome.reasons or any(finding.result is None for finding in outcome.findings):
        raise typer.Exit(1)


def tune(
    method: Annotated[str, typer.Option(help=f"See: hatrack list methods; {CODE}.")] = "hat",
    benchmark: Annotated[str, typer.Option(help=f"See: hatrack list benchmarks; {CODE}.")] = "split-digits",
    net: Annotated[str | None, typer.Option(help=f"See: hatrack list nets; {CODE}. [default: the benchmark's]")] = None,
    seeds: Annotated[str, typer.Option(metavar="0-4", help="A trial's figure is the mean over these.")] = "0-2",
    trials: Annotated[int, typer.Option(metavar="N", min=1, help="How many settings to try in all.")] = 50,
    epochs: Annotated[int | None, typer.Option(metavar="N", help="Epochs a task takes at most. [default: 200]")] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Samples a step; 2 or more for batch norm. [default: 64]")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting to keep fixed; repeatable."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Trials side by side. [default: as study]")
    ] = None,
    device: Device = None,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="Folder. [default: studies/tune-METHOD-BENCHMARK]")] = None,
) -> None:
    """Search a method's settings by validation accuracy; the test sets stay untouched.

    Writes best-METHOD-BENCHMARK.toml, which `hatrack study` takes. The same command goes on with a search that was
    stopped.
    """
    from hatrack.registry import short
    from hatrack.runs.multi_seed import parse_seeds
    from hatrack.runs.spec import chosen
    from hatrack.runs.values import parse_all
    from hatrack.show.tune import TuneProgress, listed
    from hatrack.studies.tune import Search
    from hatrack.studies.tune import tune as execute

    refuse_several("tune")
    given = {"method": method, "benchmark": benchmark, "net": net, "epochs": epochs, "batch_size": batch_size}
    given |= {"device": device, "data": data}
    given, fixed = ({k: chosen(k, v) for k, v in these.items()} for these in (given, parse_all(settings or [])))
    folder = out if out is not None else Path("studies") / f"tune-{short(method)}-{short(benchmark)}"
    try:
        best = execute(Search(given, fixed, parse_seeds(seeds), trials), folder, workers, TuneProgress())
    except KeyboardInterrupt:
        raise typer.Exit(_stopped()) from None
    say("")
    say_line(f"best validation accuracy {best.value:.4f} with {listed(best.settings)}")
    say_line(f"to test it: hatrack study {best.file}")


def chosen_loggers(log: list[str] | None, tensorboard: bool) -> tuple[str, ...]:
    """Return the names of the loggers that were asked for; refuse what cannot be had."""
    from hatrack.loggers import required

    return required([*(log or []), *(["tensorboard"] if tensorboard else [])])


def _stopped() -> int:
    complain("stopped; the same command goes on.")
    return 130


def _executor(name: str, address: str | None, workers: int | None) -> Executor:
    if name == "ray":
        from hatrack.studies.ray_executor import Ray

        return Ray(address, workers)
    if name != "local":
        raise HatrackError(f"--on takes local or ray, got {name!r}.")
    if address is not None:
        raise HatrackError(f"--address {address} is that of a Ray cluster; give --on ray with it.")
    from hatrack.studies.executor import Local

    return Local(workers)


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]
