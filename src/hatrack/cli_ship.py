"""The commands that bring a task out of the laboratory: `hatrack export`, `certify`, `serve`. Parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hatrack.errors import HatrackError
from hatrack.show.terminal import say

Code = Annotated[str | None, typer.Option(metavar="CODE", help="What the run took from file.py:Name or module:Name.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)]
Net = Annotated[
    str | None, typer.Option(metavar="NET", help="The network of a saved learner: a name, module:Name, file.py:Name.")
]


def certify(
    path: Annotated[Path | None, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The certificate.")] = Path("certificate.json"),
    previous: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate before this one.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="PEM", help="A private ed25519 key, to sign with.")] = None,
    exports: Annotated[Path | None, typer.Option(metavar="DIR", help="The tasks' exports, to be in it.")] = None,
    checker: Annotated[bool, typer.Option("--checker", help="Print the checker, a file of its own.")] = False,
    method: Code = None,
    benchmark: Code = None,
    net: Net = None,
) -> None:
    """Verify, then write digests of all that finished tasks are answered from, for a stranger to check.

    The checker needs neither hatrack nor torch: hatrack certify --checker > check_hatrack.py. Also takes a folder that
    learner.save wrote; then name its network with --net. See docs/certificate.md.

    Exit codes: 0 certified, 1 changed, 2 wrong usage, 3 could not be verified.
    """
    if checker:
        from hatrack.ship.certificate import check_hatrack

        print(Path(check_hatrack.__file__).read_text(), end="")
        return
    if path is None:
        raise HatrackError("no run is named; give its folder: hatrack certify RUN.")
    from hatrack.runs.certify import certify_run

    named = {"method": method, "benchmark": benchmark, "net": net}
    found = certify_run(path, out, named, {"previous": previous, "key": key, "exports": exports})
    say(str(found))
    if not found.ok:
        raise typer.Exit(1 if found.changed else 3)
    say(f"→ {out}")


def export(
    path: Run,
    task: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A finished task; repeatable. [default: all]")
    ] = None,
    format: Annotated[str, typer.Option(help="onnx, pt2 (torch.export), torch (Python and safetensors).")] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="The ONNX file in int8 too.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="[default: RUN/exports]")] = None,
    method: Code = None,
    benchmark: Code = None,
    net: Net = None,
) -> None:
    """Write finished tasks as files that run without hatrack, a folder a task; needs hatrack[export] for ONNX.

    Every file is loaded again and held against the network on the task's test samples before it is there. Also takes a
    folder that learner.save wrote, whose samples are not known; then name its network with --net.
    """
    from hatrack.runs.exports import export_run

    named = {"method": method, "benchmark": benchmark, "net": net}
    export_run(path, task or [], format, int8, out, named, lambda made: say(f"{made}\n"))


def serve(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="What hatrack export wrote.", show_default=False)],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="0: any that is free.")] = 8000,
    max_body: Annotated[float, typer.Option(min=0.001, metavar="MB", help="The largest request.")] = 16,
    timeout: Annotated[float, typer.Option(min=0.01, metavar="SECONDS", help="The longest a request may take.")] = 30,
    int8: Annotated[bool, typer.Option("--int8", help="Serve the int8 networks.")] = False,
) -> None:
    """Answer for exported tasks over HTTP: POST /predict, and a page to try a picture at /.

    It knows no passwords and no TLS; docs/serving.md says what to put before it.
    """
    from hatrack.serve.server import serve as serve_all

    serve_all(path, host, port, max_body=int(max_body * 1e6), timeout=timeout, int8=int8, say=say)
