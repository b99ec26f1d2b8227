"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any

import typer

from hatrack import __version__, cli_ship, cli_studies, processes
from hatrack.cli_ship import Code, Net, Run
from hatrack.cli_studies import CODE, Events, Log, chosen_loggers
from hatrack.errors import Edited, HatrackError, Unverifiable
from hatrack.show.failures import UsageError, ran_out, restated
from hatrack.show.terminal import complain, say, say_line
from hatrack.studies.notices import notices_to

app = typer.Typer(
    name="hatrack",
    help="Teach one network a growing list of tasks, and prove that none of the old ones changed.",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(bench, name="bench")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def run(
    method: Annotated[str | None, typer.Option(help=f"See: hatrack list methods; {CODE}. [default: hat]")] = None,
    benchmark: Annotated[
        str | None, typer.Option(help=f"See: hatrack list benchmarks; {CODE}. [default: split-digits]")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DIR", help="In place of --benchmark: pictures as DIR/<class>/*.png; repeatable."),
    ] = None,
    net: Annotated[str | None, typer.Option(help=f"See: hatrack list nets; {CODE}. [default: the benchmark's]")] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Decides everything random. [default: 0]")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0-7", help="Several seeds, trained side by side.")] = None,
    epochs: Annotated[str | None, typer.Option(metavar="N", help="Epochs a task takes at most. [default: 200]")] = None,
    batch_size: Annotated[
        str | None, typer.Option(metavar="N", help="Samples a step; 2 or more for batch norm. [default: 64]")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any setting of method, net, benchmark; scheduler, features; repeatable."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, … [default: auto]")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, eager, compiled or graph (CUDA). [default: auto]")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, tf32, bf16 or auto. [default: tf32]")] = None,
    data: Annotated[str | None, typer.Option(help="Folder with the data sets.")] = None,
    log: Log = None,
    tensorboard: Events = False,
    out: Annotated[Path | None, typer.Option(help="Folder to make for the run. [default: in runs/]")] = None,
) -> None:
    """Learn a benchmark (without options: HAT on split-digits)."""
    from hatrack.learn.machine.parallel import writes
    from hatrack.runs import folder, spec, values
    from hatrack.runs.runner import learn_along
    from hatrack.runs.setup import prepare

    loggers = chosen_loggers(log, tensorboard)  # before a folder is made
    words = {"method": method, "benchmark": benchmark, "net": net, "data": data}
    words |= {"device": device, "engine": engine, "precision": precision}
    numbers = {"seed": seed, "epochs": epochs, "batch_size": batch_size}
    given = words | {key: None if text is None else values.value_of(text) for key, text in numbers.items()}
    given = {key: spec.chosen(key, value) for key, value in given.items()}
    sets = [(key, spec.chosen(key, value)) for key, value in map(values.parse, settings or [])]
    if task:
        if benchmark is not None:
            raise HatrackError("--task and --benchmark were both given; give one.")
        given["benchmark"] = "folders"
        sets.append(("folders", values.parse_tasks(task)))
    if seeds is None:
        resolved = spec.resolve(given | _joined(device), sets)
        setup = prepare(resolved)
        if not writes():
            learn_along(setup)
            return
        with folder.create(resolved.toml(), out, resolved.name) as made:
            _carry_out(setup, made, loggers)
    elif seed is not None:
        raise HatrackError("--seed and --seeds were both given; give one.")
    else:
        _carry_out_together(given, sets, seeds, out, loggers)


@app.command()
def resume(
    path: Run,
    method: Code = None,
    benchmark: Code = None,
    net: Code = None,
    log: Log = None,
    tensorboard: Events = False,
) -> None:
    """Go on with a run that was stopped, from its last finished epoch.

    Code from outside of installed packages is taken only where you name it again, and if it is what it was.
    """
    from hatrack.learn.machine.parallel import writes
    from hatrack.runs import folder, spec
    from hatrack.runs.runner import finished, learn_along
    from hatrack.runs.setup import prepare

    loggers = chosen_loggers(log, tensorboard)
    place, named = _joined(None), {"method": method, "benchmark": benchmark, "net": net}
    if not writes():
        run = folder.Folder(folder.require(path))
        if not run.result.exists():
            learn_along(prepare(spec.read(run.spec, named=named).model_copy(update=place), run.checkpoint))
        return
    with folder.open_run(path, patience=1.0) as opened:
        result = finished(opened)
        if result is not None:
            print("This run was already finished.")
            _summarise(result, path)
            return
        stored = spec.read(opened.spec, named=named).model_copy(update=place)
        _carry_out(prepare(stored, opened.checkpoint), opened, loggers)


@app.command()
def verify(path: Run, method: Code = None, benchmark: Code = None, net: Net = None) -> None:
    """Prove that finished tasks still answer as they did, bit for bit, and that no file was edited.

    Code from outside of installed packages is taken only where you name it again, and if it is what it was. Also takes
    a folder that learner.save wrote; then name its network with --net.

    Exit codes: 0 unchanged, 1 changed, 2 wrong usage, 3 could not be verified.
    """
    from hatrack.runs.verify import verify_run

    found = verify_run(path, {"method": method, "benchmark": benchmark, "net": net})
    say(str(found))
    if not found.ok:
        raise typer.Exit(1 if found.changed else 3)


@app.command()
def report(
    path: Run,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="A run of joint, random, one or sgd on the same tasks; repeatable."),
    ] = None,
    method: Code = None,
    net: Net = None,
) -> None:
    """Write report.html again; --against: with measures against other runs.

    Also takes a folder that learner.save wrote; then name its network with --net, and a method of your own again.
    """
    from hatrack.learn.state import PAGE
    from hatrack.report import write
    from hatrack.runs.folder import require
    from hatrack.runs.references import complete
    from hatrack.runs.saved import report_saved

    if (path / PAGE).exists():
        if against:
            raise HatrackError(f"--against takes measures of runs, and {str(path)!r} holds a saved learner.")
        say(str(report_saved(path, net, method)))
        return
    if against:
        complete(require(path), [require(other) for other in against])
    say(str(write(require(path))))


@app.command()
def explain(
    net: Annotated[str, typer.Argument(metavar="NET", help=f"See: hatrack list nets; {CODE}.", show_default=False)],
    shape: Annotated[str, typer.Option(metavar="C,H,W", help="Shape of one input.")] = "3,32,32",
) -> None:
    """Show what is gated, locked and kept per task in a net, and what cut_out would leave at full width."""
    print(explain_net(net, shape))


def explain_net(net: str, shape: str) -> str:
    """Return the map of the network `net` (a name, or code) for inputs of `shape`, given as '3,32,32'."""
    import torch

    from hatrack.masks.explain import explain
    from hatrack.nets import build

    try:
        size = tuple(int(part) for part in shape.split(","))
    except ValueError:
        raise HatrackError(f"--shape must be whole numbers with commas between, like 3,32,32; got {shape!r}.") from None
    if not size or min(size) < 1:
        raise HatrackError(f"--shape must be whole numbers of at least 1, got {shape!r}.")
    try:
        return str(explain(build(net, size), torch.zeros(1, *size)))
    except (RuntimeError, MemoryError) as error:
        raise HatrackError(f"no {net} for inputs of {shape!r}: {(str(error).splitlines() or ['memory'])[0]}.") from None


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(metavar="methods|benchmarks|nets|measures|schedulers|recipes", show_default=False)
    ],
    json: Json = False,
) -> None:
    """List what --method, --benchmark, --net, --set and a study accept."""
    from hatrack.show import lists

    if json:
        from json import dumps

        print(dumps(lists.entries(kind), ensure_ascii=False, indent=2))
    else:
        print(lists.text(kind, _width()))


for _elsewhere in (cli_studies.study, cli_studies.tune, cli_ship.export, cli_ship.certify, cli_ship.serve):
    app.command()(_elsewhere)

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Engine = Annotated[str, typer.Option(help="auto, eager, compiled or graph (CUDA).")]


def _bench_command(name: str, about: str) -> None:
    @bench.command(name, help=about)
    def timed(device: Device = "auto", engine: Engine = "auto") -> None:
        print(getattr(_bench_module(name), f"{name}_table")(device, engine))


_bench_command("step", "Time a training step of HAT against plain SGD.")
_bench_command("lock", "Time what the lock alone adds to a step.")
_bench_command("growth", "Time HAT's step over tasks, widths and parameters.")


@bench.command("run")
def bench_run(
    device: Device = "auto", data: Annotated[str | None, typer.Option(help="Folder with the data sets.")] = None
) -> None:
    """Time the parts of a whole run (the HAT paper's mnist2)."""
    whole = _bench_module("whole")
    print(whole.run_table(whole.paper_spec(device, data)))


def _bench_module(name: str) -> Any:
    return import_module(f"hatrack.bench.{name}")  # found by path: see bench.py


def _joined(device: str | None) -> dict[str, str]:
    """Join the other processes where torchrun started several; return the device that falls to this one."""
    if not processes.several():
        return {}
    from hatrack.learn.core import pick_device
    from hatrack.learn.machine.parallel import join

    return {"device": join(pick_device(device or "auto").type == "cuda")}


def _carry_out(setup: Any, folder: Any, log: Sequence[str]) -> None:
    from hatrack.loggers import beside
    from hatrack.runs.runner import execute
    from hatrack.show.progress import progress

    try:
        with progress() as shown:
            result = execute(setup, folder, *beside(shown, log, folder.path))
    except KeyboardInterrupt:
        raise typer.Exit(_complain(f"stopped; to go on: hatrack resume {folder.path}", 130)) from None
    except Exception as error:
        lacking = ran_out(error)
        if lacking is None:
            raise
        line = f"{lacking}; make room, then go on with what is saved: hatrack resume {folder.path}"
        raise typer.Exit(_complain(line, 1)) from None
    _summarise(result, folder.path)


def _carry_out_together(
    given: dict[str, Any], sets: list[Any], seeds: str, out: Path | None, log: tuple[str, ...]
) -> None:
    from contextlib import ExitStack

    from hatrack.runs import folder, spec
    from hatrack.runs.multi_seed import execute_together, parse_seeds
    from hatrack.runs.setup import prepare
    from hatrack.show.progress import PlainProgress, task_line
    from hatrack.show.summary import seeds_summary
    from hatrack.studies.job import Job, Step
    from hatrack.studies.seeds import execute_apart

    def hear(job: Job, message: Step | str) -> None:
        if isinstance(message, str):
            complain(f"seed {job.spec.seed}: {message}")
        elif message.learned is not None:
            say_line(task_line(message.learned, message.tasks, job.spec.seed))

    processes.refuse_several("--seeds")
    specs = [spec.resolve(given | {"seed": seed}, sets) for seed in parse_seeds(seeds)]
    apart = len(specs) > 1 and specs[0].device == "cpu"
    # What cannot be begun is refused before there is a folder; processes of their own prepare each its own run.
    setups = [prepare(one) for one in (specs[:1] if apart else specs)]
    with ExitStack() as stack:
        made = [
            stack.enter_context(folder.create(s.toml(), None if out is None else out / f"s{s.seed}", s.name))
            for s in specs
        ]
        paths = [one.path for one in made]
        try:
            if apart:
                results = execute_apart(specs, made, hear, log)
            else:
                results = execute_together(setups, made, PlainProgress(), log)
        except KeyboardInterrupt:
            again = " ".join(f"hatrack resume {path};" for path in paths)
            raise typer.Exit(_complain(f"stopped; to go on: {again}", 130)) from None
    say(f"\n{seeds_summary([s.seed for s in specs], results, paths)}")
    if any(isinstance(result, Exception) for result in results):
        raise typer.Exit(1)


def _summarise(result: dict[str, Any], path: Path) -> None:
    from hatrack.show.summary import summary

    say(f"\n{summary(result, path, _width())}")


def _width() -> int:
    return get_terminal_size().columns


def _version(asked: bool) -> None:
    if asked:
        print(f"hatrack {__version__}")
        raise typer.Exit()


@app.callback()
def _hatrack(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@bench.callback()
def _bench(context: typer.Context, device: Device = "auto") -> None:
    """Time the methods' steps beside a plain torch loop (CPU) or the published way (CUDA); COMMAND: one thing alone."""
    if context.invoked_subcommand is None:
        from hatrack.learn.core import pick_device

        where = pick_device(device)
        kind = "speed" if where.type == "cuda" else "cpu"
        print(getattr(_bench_module(kind), f"{kind}_table")(where))
    else:
        context.default_map = {context.invoked_subcommand: {"device": device}}  # it counts before the command too


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    0 done or unchanged, 1 failed or changed, 2 wrong usage, 3 could not be verified, 130 interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode gets ? instead of a crash
    if not processes.speaks():
        warnings.simplefilter("ignore")
    try:
        with notices_to(complain) if processes.speaks() else nullcontext():
            code = app(arguments, prog_name="hatrack", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except HatrackError as error:
        return _complain(str(error), 1 if isinstance(error, Edited) else 3 if isinstance(error, Unverifiable) else 2)
    except UsageError as error:
        return _complain(str(restated(error)), 2)
    except (typer.Abort, KeyboardInterrupt):  # some versions of typer raise, others return it
        return 130
    except (OSError, MemoryError, RuntimeError) as error:
        lacking = ran_out(error)
        if lacking is not None:
            return _complain(f"{lacking}; make room, then give the same command again; what was saved is kept.", 1)
        if not isinstance(error, OSError):
            raise
        where = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror or error}{where}", 1)
    finally:
        if "torch" in sys.modules:
            from hatrack.learn.machine.parallel import leave

            leave()


def _complain(line: str, code: int) -> int:
    if code == 130 and sys.stderr.isatty():
        print(file=sys.stderr)  # the terminal has written ^C
    if processes.speaks():
        complain(line)
    return code


if __name__ == "__main__":
    ended = main()
    if processes.several() and ended == 0:
        # All is done and written; ended in the usual way, a process of torchrun's is now and then aborted by torch's
        # own threads.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended)
    sys.exit(ended)
