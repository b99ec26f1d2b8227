"""Samples that come at the same time share a batch of their own task, and nobody sees anything of another."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.serving import load
from numpy.typing import NDArray
from onnx import helper

from hatrack.serve.app import App
from hatrack.serve.exported import read_all
from hatrack.serve.network import BATCH

from .asking import client_of, once, running, serving
from .exports import ALL, TAGS, Made, onnx_bytes, write, write_all


def asked(port: int, made: Made, seeds: list[int]) -> list[NDArray[Any]]:
    """Ask a task for one to three samples at a time, over one connection; return what it answers, sample by sample."""
    found = []
    with client_of(port) as client:
        for seed in seeds:
            x = made.samples(1 + seed % 3, seed)
            status, said = client.post({"task": made.name, "inputs": x.tolist(), "logits": True})
            assert (status, said["task"]) == (200, made.name)
            found += [np.array(answer.get("values", answer.get("logits"))) for answer in said["answers"]]
    return found


def test_many_clients_of_many_tasks_get_each_the_answer_to_its_own_samples(exports: Path) -> None:
    """Twins have the same shapes and other weights: a sample that strays into another task gets another answer."""
    app = App(read_all(exports), 1_000_000, 60)
    sizes: dict[str, list[int]] = {name: [] for name in app._networks}
    for name, network in app._networks.items():
        network.run = noting(network.run, sizes[name])  # type: ignore[method-assign]
    jobs = [(made, list(range(40 * i, 40 * i + 20))) for i in range(3) for made in ALL]
    with running(app) as port, ThreadPoolExecutor(len(jobs)) as threads:
        results = list(threads.map(lambda job: asked(port, *job), jobs))
    for (made, seeds), found in zip(jobs, results, strict=True):
        x = np.concatenate([made.samples(1 + seed % 3, seed) for seed in seeds])
        np.testing.assert_allclose(np.array(found), made.answer(x), rtol=1e-4, atol=1e-5)
    asked_for = sum(1 + seed % 3 for _, seeds in jobs for seed in seeds)
    assert sum(map(sum, sizes.values())) == asked_for  # nothing twice, nothing lost
    assert sum(map(len, sizes.values())) < 20 * len(jobs)  # and some were together


def noting(run: Callable[[Any], Any], sizes: list[int]) -> Callable[[Any], Any]:
    def noted(inputs: Any) -> Any:
        sizes.append(len(next(iter(inputs.values()))))
        return run(inputs)

    return noted


def test_a_large_request_is_cut_into_batches_and_put_together_again(exports: Path) -> None:
    app = App(read_all(exports), 10_000_000, 60)
    sizes: list[int] = []
    app._networks["tags"].run = noting(app._networks["tags"].run, sizes)  # type: ignore[method-assign]
    x = TAGS.samples(1000)
    with running(app) as port:
        said = once(port, {"task": "tags", "inputs": x.tolist()})[1]
    np.testing.assert_allclose([one["logits"] for one in said["answers"]], TAGS.answer(x), rtol=1e-4, atol=1e-5)
    assert sum(sizes) == 1000
    assert max(sizes) == BATCH


WORDS = {
    "schema": 1,
    "task": "words",
    "target": {"name": "regression"},
    "inputs": [{"name": "x", "shape": [3], "dtype": "int64", "low": 0, "high": 5, "bytes": False}],
    "output": {"name": "answer", "shape": [3]},
}


def words(folder: Path) -> Path:
    """Write a task that looks up numbers from 0 to 9 in a table, and was trained on those up to 5."""
    table = {"table": np.arange(10, 20, dtype=np.float32)}
    nodes = [helper.make_node("Gather", ["table", "x"], ["answer"])]
    return write(folder, WORDS, onnx_bytes(nodes, {"x": ("int64", ("n", 3))}, ("n", 3), table))


def test_a_request_that_fails_in_a_batch_fails_alone(tmp_path: Path) -> None:
    words(tmp_path)
    with serving(tmp_path) as port, ThreadPoolExecutor(8) as threads:
        given = [[i % 10, 9, 0] if i % 4 else [10 + i, 0, 0] for i in range(32)]
        said = list(threads.map(lambda x: once(port, {"task": "words", "inputs": x}), given))
        listed = once(port, [{"task": "words", "inputs": x} for x in given])[1]
        assert once(port, {"task": "words", "inputs": [-1, 0, 0]})[0] == 400  # ONNX would count from the end
        assert once(port, {"task": "words", "inputs": [0.0, 0, 0]})[0] == 400
    for i, (status, answer) in enumerate(said):
        if i % 4:
            assert answer["answers"] == [{"values": [10 + i % 10, 19, 10]}]
        else:
            assert status == 400
            assert "trained on 'x' from 0 to 5" in answer["error"]
    assert [one["status"] for one in listed] == [status for status, _ in said]


def test_metrics_count_requests_errors_times_and_batches(exports: Path) -> None:
    with serving(exports) as port, client_of(port) as client:
        for _ in range(3):
            client.post({"task": "tags", "inputs": TAGS.samples(5).tolist()})
        client.post({"task": "tags", "inputs": [1]})
        client.post({"task": "no such task", "inputs": [1]})
        client.post([{"task": "tags", "inputs": TAGS.samples(70).tolist()}, 5])
        text = client.raw("GET", "/metrics")[2].decode()
    held = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert all(
        re.fullmatch(r'hatrack_\w+\{task="[\w ]*"(,(code|le)="[^"]+")?\} [\d.e+-]+', f"{k} {v}")
        for k, v in held.items()
    )
    assert held['hatrack_requests_total{task="tags",code="200"}'] == "4"
    assert held['hatrack_requests_total{task="tags",code="400"}'] == "1"
    assert held['hatrack_requests_total{task="",code="404"}'] == "1"
    assert held['hatrack_requests_total{task="",code="400"}'] == "1"
    assert held['hatrack_request_seconds_count{task="tags"}'] == "5"
    assert held['hatrack_request_seconds_bucket{task="tags",le="+Inf"}'] == "5"
    assert 0 < float(held['hatrack_request_seconds_sum{task="tags"}']) < 60
    assert held['hatrack_batch_size_count{task="tags"}'] == "5"
    assert float(held['hatrack_batch_size_sum{task="tags"}']) == 85
    counts = [int(held[f'hatrack_batch_size_bucket{{task="tags",le="{size}"}}']) for size in (1, 4, 8, 32, 64, "+Inf")]
    assert counts == [0, 0, 4, 4, 5, 5]
    assert "no such task" not in text  # whoever asks for names cannot fill the page


@pytest.mark.parametrize("kind", ["json", "npy"])
def test_nothing_is_lost_under_load(tmp_path: Path, kind: str) -> None:
    """The small form of benchmarks/serving.py."""
    write_all(tmp_path)
    with serving(tmp_path) as port:
        found = load(port, requests=200, clients=8, kind=kind)
    assert (found.answered, found.wrong) == (200, 0)
    assert 0 < found.at(0.5) <= found.at(0.99) < 60
