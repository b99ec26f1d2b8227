"""The server's HTTP: what is asked at which address, and how every refusal is one line of JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from hatrack import __version__
from hatrack.errors import one_line, unknown
from hatrack.serve.answers import worded
from hatrack.serve.batches import Batches
from hatrack.serve.exported import Exported
from hatrack.serve.inputs import arrays
from hatrack.serve.metrics import Metrics
from hatrack.serve.network import Network
from hatrack.serve.refused import Refused
from hatrack.serve.requests import Bodies, asked, checked

log = logging.getLogger("hatrack.serve")
_SMALL = 16384  # bytes that are read where they come; what is larger would hold up the others
_PAGE_MAY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class App:
    """Answers for some exported tasks."""

    def __init__(self, tasks: Mapping[str, Exported], max_body: int, timeout: float) -> None:
        self._tasks, self._timeout = tasks, timeout
        self._networks = {name: Network(one) for name, one in tasks.items()}
        self._metrics, self._bodies = Metrics(), Bodies(max_body)
        self._batches: dict[str, Batches] = {}

    def asgi(self) -> Starlette:
        """Return it as an application that any ASGI server runs."""
        routes = [
            Route("/", self._page),
            Route("/predict", self._predict, methods=["POST"]),
            Route("/tasks", self._told),
            Route("/health", self._health),
            Route("/metrics", self._measured),
        ]
        refusing: Any = {HTTPException: _no_such_address}
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=refusing)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        cores = os.cpu_count() or 1
        with ThreadPoolExecutor(cores) as computing, ThreadPoolExecutor(cores) as self._reading:
            self._batches = {
                name: Batches(name, network, computing, self._metrics) for name, network in self._networks.items()
            }
            workers = [asyncio.create_task(batches.work()) for batches in self._batches.values()]
            try:
                yield
            finally:
                for worker in workers:
                    worker.cancel()

    # ---- answering

    async def _predict(self, request: Request) -> Response:
        began = perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                body = await self._bodies.read(request.stream(), request.headers.get("content-length"))
        except TimeoutError:
            return self._refusal(Refused(f"the request did not arrive within {self._timeout:g} s.", 408), began)
        except ClientDisconnect:
            return Response(status_code=400)
        except Refused as refused:
            return self._refusal(refused, began)
        try:
            return await self._answered(request, body, began)
        except Refused as refused:
            return self._refusal(refused, began)
        except Exception as error:
            log.error("a request failed: %s", one_line(error))
            return self._refusal(Refused("something went wrong in the server.", 500), began)
        finally:
            self._bodies.release(body)

    async def _answered(self, request: Request, body: bytes, began: float) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        apart = len(body) > _SMALL
        said = await self._run(apart, asked, body, kind, request.query_params.get("task"))
        answer: Any
        if isinstance(said, dict):
            status, answer = await self._item(said, apart, began)
        else:
            answers = await asyncio.gather(*(self._item(item, apart, began) for item in said))
            status, answer = 200, [{"status": status} | one for status, one in answers]
        reply: Response = await self._run(apart, _json, answer, status)
        return reply

    async def _item(self, item: Any, apart: bool, began: float) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer of one question; whatever is wrong with it is its own."""
        task = ""
        try:
            question = checked(item)
            if question["task"] not in self._tasks:
                raise Refused(str(unknown("task", question["task"][:100], self._tasks)), 404)
            task = question["task"]
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + began + self._timeout - perf_counter()):
                answer = await self._asked(question, apart)
            status = 200
        except TimeoutError:
            status, answer = 504, {"error": f"no answer within {self._timeout:g} s (--timeout)."}
        except Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        except Exception as error:
            log.error("task %r failed: %s", task, one_line(error))
            status, answer = 500, {"error": "something went wrong in the server."}
        self._metrics.answered(task, status, perf_counter() - began)
        return status, answer

    async def _asked(self, question: dict[str, Any], apart: bool) -> Any:
        card = self._tasks[question["task"]].card
        inputs = await self._run(apart, arrays, card, question["inputs"], question.get("dtype") == "uint8")
        figures = await self._batches[card.task].ask(inputs)
        return await self._run(figures.size > _SMALL, worded, card, figures, question.get("logits"))

    async def _run(self, apart: bool, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function, in a thread where it may take long."""
        if not apart:
            return function(*args)
        return await asyncio.get_running_loop().run_in_executor(self._reading, function, *args)

    def _refusal(self, refused: Refused, began: float) -> Response:
        self._metrics.answered("", refused.status, perf_counter() - began)
        return _json({"error": str(refused)}, refused.status)

    # ---- the other addresses

    async def _page(self, _: Request) -> Response:
        page = files("hatrack.serve").joinpath("page.html").read_text(encoding="utf-8")
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": _PAGE_MAY})

    async def _told(self, _: Request) -> Response:
        return _json(
            [
                one.told | {"serves": one.file, "picture": len(one.card.inputs) == 1 and one.card.inputs[0].picture}
                for one in self._tasks.values()
            ]
        )

    async def _health(self, _: Request) -> Response:
        return _json({"status": "ok", "hatrack": __version__, "tasks": len(self._tasks)})

    async def _measured(self, _: Request) -> Response:
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")


async def _no_such_address(request: Request, error: Any) -> Response:
    known = "POST /predict, GET /tasks, /health, /metrics, /"
    line = f"{request.method} {request.url.path[:100]} is not there; there are {known}."
    return _json({"error": line}, error.status_code)


def _json(said: Any, status: int = 200) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else None
    text = json.dumps(said, allow_nan=False)  # in ASCII: a name may hold half a character
    return Response(text, status, headers, media_type="application/json")
