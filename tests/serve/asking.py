"""A server in a thread of its own, on a port that is free, and a client that keeps its connection."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from hatrack.serve.app import App
from hatrack.serve.exported import read_all
from hatrack.serve.server import listening


@contextmanager
def serving(folder: Path, max_body: int = 1_000_000, timeout: float = 20, int8: bool = False) -> Iterator[int]:
    """Serve a folder, give the port, and stop."""
    app = App(read_all(folder, int8), max_body, timeout)
    with running(app) as port:
        yield port


@contextmanager
def running(app: App) -> Iterator[int]:
    config = uvicorn.Config(app.asgi(), log_level="warning", access_log=False, ws="none")
    server = uvicorn.Server(config)
    with listening("127.0.0.1", 0) as opened:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[opened])))
        thread.start()
        try:
            yield opened.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


class Client:
    """Asks over one connection; an answer is its status and what its JSON says."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def raw(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        self._line.request(method, path, body, {"Content-Type": kind} if body is not None else {})
        reply = self._line.getresponse()
        return reply.status, reply.headers, reply.read()

    def get(self, path: str) -> Any:
        return json.loads(self.raw("GET", path)[2])

    def post(self, said: Any, path: str = "/predict", kind: str = "application/json") -> tuple[int, Any]:
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        status, headers, text = self.raw("POST", path, body, kind)
        assert headers["content-type"] == "application/json"
        return status, json.loads(text)

    def close(self) -> None:
        self._line.close()


@contextmanager
def client_of(port: int) -> Iterator[Client]:
    client = Client(port)
    try:
        yield client
    finally:
        client.close()


def once(port: int, said: Any, path: str = "/predict", kind: str = "application/json") -> tuple[int, Any]:
    """Ask over a connection of its own."""
    with client_of(port) as client:
        return client.post(said, path, kind)
