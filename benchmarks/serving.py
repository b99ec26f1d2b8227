"""Put a server of exported tasks under load: python benchmarks/serving.py [DIR] [--requests 1000] [--clients 8].

Without DIR, five tasks of 8×8 digits are learned and exported first. Starts `hatrack serve` on a free port of this
machine, asks one sample a request from several clients at once, each over a connection of its own and going from task
to task, and holds every answer against that to the same sample alone. Prints the requests that were lost and wrong, how
many a second, and p50, p99 and the longest in milliseconds.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import numpy as np

SAMPLES = 16
WITHIN = 1e-4


@dataclass(frozen=True)
class Load:
    """What came of it; `seconds`: of every request that was answered, in rising order."""

    seconds: list[float]
    wrong: int
    took: float

    @property
    def answered(self) -> int:
        return len(self.seconds)

    def at(self, share: float) -> float:
        """Return the time within which this share of requests was answered."""
        return self.seconds[min(int(share * self.answered), self.answered - 1)]


@dataclass(frozen=True)
class Question:
    """A body, where it is sent, and what the answer is when nobody else asks."""

    path: str
    body: bytes
    kind: str
    alone: Any


def questions(port: int, kind: str) -> list[Question]:
    """Draw samples of every task from within its range, and have each answered alone."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("GET", "/tasks")
    made, random = [], np.random.default_rng(0)
    for task in json.loads(line.getresponse().read()):
        (part,) = task["inputs"]
        for _ in range(SAMPLES):
            drawn = part["low"] + random.random(part["shape"]) * (part["high"] - part["low"])
            x = drawn.astype(part["dtype"])
            if kind == "npy":
                file = io.BytesIO()
                np.save(file, x)
                ask = f"/predict?task={quote(task['task'])}", file.getvalue(), "application/octet-stream"
            else:
                body = json.dumps({"task": task["task"], "inputs": x.tolist()}).encode()
                ask = "/predict", body, "application/json"
            made.append(Question(*ask, asked(line, *ask)))
    line.close()
    return made


def asked(line: http.client.HTTPConnection, path: str, body: bytes, kind: str) -> Any:
    """Return an answer, None where there is none."""
    line.request("POST", path, body, {"Content-Type": kind})
    reply = line.getresponse()
    text = reply.read()
    return json.loads(text) if reply.status == 200 else None


def same(found: Any, wanted: Any) -> bool:
    """Whether two answers agree, figures within rounding."""
    if isinstance(wanted, float):
        return isinstance(found, float) and abs(found - wanted) <= WITHIN * max(1.0, abs(wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


def load(port: int, requests: int, clients: int, kind: str = "json") -> Load:
    """Ask a running server from several threads at once."""
    known = questions(port, kind)

    def client(number: int) -> list[tuple[float, bool]]:
        line, found = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
        for i in range(number, requests, clients):
            question = known[i * 7 % len(known)]
            began = time.perf_counter()
            answer = asked(line, question.path, question.body, question.kind)
            took = time.perf_counter() - began
            if answer is not None:
                found.append((took, same(answer, question.alone)))
        line.close()
        return found

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        found = [one for some in threads.map(client, range(clients)) for one in some]
    took = time.perf_counter() - began
    return Load(sorted(seconds for seconds, _ in found), sum(not right for _, right in found), took)


def digits(folder: str) -> None:
    """Learn five tasks and export them."""
    import torch

    import hatrack

    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 400), torch.nn.ReLU())
    learner = hatrack.Learner(net, hatrack.HAT(), epochs=10, seed=0)
    for task in hatrack.tasks("split-digits", seed=0):
        learner.learn(task)
        learner.export(task.name, folder)


def report(folder: str, requests: int, clients: int) -> None:
    """Serve a folder as a process of its own, and print what its load came to."""
    command = [sys.executable, "-m", "hatrack.cli", "serve", folder, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            port = int(said.rpartition(":")[2].partition(";")[0])
            for kind in ("json", "npy"):
                found = load(port, requests, clients, kind)
                p50, p99, longest = (f"{1e3 * found.at(share):.1f} ms" for share in (0.5, 0.99, 1))
                print(
                    f"{kind}: {requests} requests of {clients} clients, "
                    f"{requests - found.answered} lost, {found.wrong} wrong; "
                    f"{found.answered / found.took:,.0f} a second; p50 {p50}, p99 {p99}, longest {longest}"
                )
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", help="what hatrack export wrote; tasks of one input each")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    if given.folder is not None:
        report(given.folder, given.requests, given.clients)
        return
    with TemporaryDirectory() as folder:
        digits(folder)
        report(folder, given.requests, given.clients)


if __name__ == "__main__":
    main()
