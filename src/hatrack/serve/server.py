"""Opens the port, says so, and stops when it is told to: requests under way are answered first."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from hatrack.errors import HatrackError
from hatrack.runtime import onnxruntime
from hatrack.serve.exported import read_all

EXTRA = ("starlette.applications", "uvicorn", "PIL.Image")


def serve(
    folder: Path,
    host: str,
    port: int,
    *,
    max_body: int,
    timeout: float,
    int8: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve all tasks of a folder until SIGTERM or Ctrl-C; `max_body` in bytes, `timeout` in seconds."""
    try:
        onnxruntime()
        for module in EXTRA:
            import_module(module)
    except ImportError as error:
        raise HatrackError(
            f"serving needs a package that is not installed ({error}): pip install 'hatrack[serve]'."
        ) from None
    import uvicorn

    from hatrack.serve.app import App

    tasks = read_all(folder, int8)
    app = App(tasks, max_body, timeout).asgi()
    with listening(host, port) as opened:
        address, bound = opened.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=int(timeout) + 1,
        )
        server = uvicorn.Server(config)

        def ends(*_: object) -> None:
            server.should_exit = True

        # uvicorn ends gracefully, then raises the signal again for whoever listened before: this, and all is done.
        before = {number: signal.signal(number, ends) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            say(f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'} at http://{shown}:{bound}; Ctrl-C ends it.")
            server.run(sockets=[opened])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Its protocol is named, which socket.create_server does not: on such alone asyncio sends small pieces at once. An
    answer is two of them, and the second, held back, would wait 40 ms for the client's receipt of the first.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(2048)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise HatrackError(
            f"{host}:{port} cannot be opened ({error.strerror or error}); choose another --host or --port."
        ) from None
    return made
