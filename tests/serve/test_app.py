"""What is asked over HTTP and what comes back: the answers, the refusals, the limits."""

from __future__ import annotations

import base64
import io
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper
from PIL import Image

from hatrack.serve.app import App
from hatrack.serve.exported import read_all

from .asking import Client, client_of, once, running, serving
from .exports import ALL, COLOURS, DIGITS, MAPS, PHOTOS, PLAIN, PRICES, TAGS, Made, onnx_bytes, write, write_all


def near(found: Any, wanted: NDArray[Any]) -> None:
    np.testing.assert_allclose(np.array(found), wanted, rtol=1e-4, atol=1e-5)


def npy(x: NDArray[Any], **how: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, x, **how)
    return file.getvalue()


def png(x: NDArray[np.uint8]) -> str:
    file = io.BytesIO()
    Image.fromarray(x[0] if len(x) == 1 else x.transpose(1, 2, 0)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


# ---- answers


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_every_task_answers_in_its_words(client: Client, made: Made) -> None:
    x = made.samples(3)
    status, said = client.post({"task": made.name, "inputs": x.tolist(), "logits": True})
    assert (status, said["task"], len(said["answers"])) == (200, made.name, 3)
    wanted = made.answer(x)
    names = made.classes or list(range(made.outputs))
    assert said.get("classes") == (None if made is PRICES else names)
    for answer, row in zip(said["answers"], wanted, strict=True):
        if made is PRICES:
            near(answer["values"], row)
            assert answer.keys() == {"values"}
            continue
        near(answer["logits"], row)
        if made is MAPS:
            assert answer["labels"] == row.argmax(0).tolist()
        elif made is TAGS:
            assert answer["labels"] == [i for i in range(4) if row[i] > 0]
            near(answer["scores"], 1 / (1 + np.exp(-row)))
        else:
            assert answer["label"] == names[row.argmax()]
            near(answer["scores"], np.exp(row) / np.exp(row).sum())
            assert answer["score"] == max(answer["scores"])


def test_maps_come_without_logits_unless_asked_and_others_with(client: Client) -> None:
    assert "logits" not in client.post({"task": "maps", "inputs": MAPS.samples(1).tolist()})[1]["answers"][0]
    asked = {"task": "plain", "inputs": PLAIN.samples(1).tolist()}
    assert "logits" in client.post(asked)[1]["answers"][0]
    assert "logits" not in client.post(asked | {"logits": False})[1]["answers"][0]


def test_one_sample_several_and_a_name_for_the_input_are_the_same(client: Client) -> None:
    x = DIGITS.samples(2)
    both = client.post({"task": DIGITS.name, "inputs": x.tolist()})[1]["answers"]
    one = client.post({"task": DIGITS.name, "inputs": x[0].tolist()})[1]["answers"]
    named = client.post({"task": DIGITS.name, "inputs": {"x": x[:1].tolist()}})[1]["answers"]
    assert one == named
    near(both[0]["logits"], np.array(one[0]["logits"]))


@pytest.mark.parametrize("made", [DIGITS, COLOURS, PHOTOS], ids=lambda made: made.name)
def test_a_picture_bytes_as_numbers_and_npy_are_the_same(client: Client, made: Made) -> None:
    x = np.random.default_rng(0).integers(0, 256, made.shape, np.uint8)
    wanted = made.answer(x[None] / (255.0 if made is not PHOTOS else 1))[0]
    asked: list[dict[str, Any]] = [
        {"inputs": png(x)},
        {"inputs": [png(x)]},
        {"inputs": {"x": "data:image/png;base64," + png(x)}},
        {"inputs": x.tolist(), "dtype": "uint8"},
    ]
    for one in asked:
        near(client.post({"task": made.name} | one)[1]["answers"][0]["logits"], wanted)
    name = made.name.replace(" ", "%20")
    arrays = [x, x[None], np.asfortranarray(x)]
    if made is PHOTOS:
        near(client.post({"task": made.name, "inputs": x.tolist()})[1]["answers"][0]["logits"], wanted)
        assert client.post(npy(x / 255), "/predict?task=photos", "application/octet-stream")[0] == 400
    else:
        arrays += [(x / 255).astype(np.float32), (x / 255).astype(">f8")]
    for array in arrays:
        said = client.post(npy(array), f"/predict?task={name}", "application/octet-stream")[1]
        near(said["answers"][0]["logits"], wanted)


def test_a_jpeg_is_what_pillow_makes_of_it(client: Client) -> None:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)).save(file, "JPEG")
    decoded = np.asarray(Image.open(file)).transpose(2, 0, 1)[None] / 255.0
    asked = {"task": "colours", "inputs": base64.b64encode(file.getvalue()).decode()}
    near(client.post(asked)[1]["answers"][0]["logits"], COLOURS.answer(decoded)[0])


def test_a_list_asks_several_tasks_and_a_bad_item_spoils_no_other(client: Client) -> None:
    x = {made.name: made.samples(2) for made in ALL}
    good: list[Any] = [{"task": name, "inputs": some.tolist(), "logits": True} for name, some in x.items()]
    bad = [{"task": "cats", "inputs": 1}, 7, {"task": "tags", "inputs": [[1, 2]]}]
    status, said = client.post([*good[:3], *bad, *good[3:]])
    assert status == 200
    assert [one["status"] for one in said] == [200] * 3 + [404, 400, 400] + [200] * 4
    assert [one["error"].startswith(begins) for one, begins in zip(said[3:6], ("unknown", "exp", "input"), strict=True)]
    for made, one in zip(ALL, said[:3] + said[6:], strict=True):
        assert one["task"] == made.name
        found = [answer.get("values", answer.get("logits")) for answer in one["answers"]]
        near(found, made.answer(x[made.name]))


# ---- refusals

GOOD = DIGITS.samples(1).tolist()
ASK: dict[str, Any] = {"task": "digits 0-1", "inputs": GOOD}


def changed(value: Any) -> list[Any]:
    other = json.loads(json.dumps(GOOD))
    other[0][0][1][2] = value
    return other


REFUSED: dict[str, tuple[Any, int, tuple[str, ...]]] = {
    "not JSON": (b"{oh", 400, ("not JSON", "column")),
    "not UTF-8": (b'{"task": "\xff"}', 400, ("not JSON",)),
    "nothing": (b"", 400, ("not JSON",)),
    "NaN": (b'{"task": "tags", "inputs": [NaN, 0, 0, 0, 0, 0]}', 400, ("NaN", "finite")),
    "infinity": (b'{"task": "tags", "inputs": [-Infinity, 0, 0, 0, 0, 0]}', 400, ("-Infinity", "finite")),
    "1e999": (b'{"task": "tags", "inputs": [1e999, 0, 0, 0, 0, 0]}', 400, ("finite",)),
    "1e60": ({"task": "tags", "inputs": [1e60, 0, 0, 0, 0, 0]}, 400, ("finite",)),
    "5,000 digits": (b'{"task": "tags", "inputs": [1' + b"0" * 5000 + b"]}", 400, ("too many digits",)),
    "400 digits": (b'{"task": "tags", "inputs": [1' + b"0" * 400 + b",0,0,0,0,0]}", 400, ("out of the range",)),
    "deep": (b"[" * 100_000, 400, ("nested",)),
    "deep inputs": (b'{"task": "tags", "inputs": ' + b"[" * 500 + b"]" * 500 + b"}", 400, ("(6,)", "nested deeper")),
    "a number": (3, 400, ("expected",)),
    "no items": ([], 400, ("1 to 256",)),
    "many items": ([ASK] * 257, 413, ("257",)),
    "no inputs": ({"task": "tags"}, 400, ("expected", "'task'")),
    "another field": (ASK | {"file": "/etc/passwd"}, 400, ("expected", "'file'")),
    "a task that is no text": (ASK | {"task": ["a"]}, 400, ("name of a task",)),
    "unknown task": (ASK | {"task": "digits 0-2"}, 404, ("did you mean 'digits 0-1'", "colours", "tags")),
    "a path as a task": (ASK | {"task": "../../etc/passwd"}, 404, ("unknown task",)),
    "half a character": (ASK | {"task": "\ud800"}, 404, ("unknown task",)),
    "unknown input": (ASK | {"inputs": {"y": GOOD}}, 400, ("'x'", "'y'")),
    "wrong shape": (ASK | {"inputs": [[1, 2], [3, 4]]}, 400, ("(1, 4, 4)", "(n, 1, 4, 4)", "(2, 2)")),
    "ragged": (ASK | {"inputs": [[[[1, 2], [3]]]]}, 400, ("(1, 4, 4)", "lists of 1 and of 2")),
    "mixed": (ASK | {"inputs": [[1, [2]]]}, 400, ("(1, 4, 4)", "numbers and lists")),
    "a scalar": (ASK | {"inputs": 1}, 400, ("(1, 4, 4)",)),
    "no samples": (ASK | {"inputs": []}, 400, ("(1, 4, 4)",)),
    "no rows": (ASK | {"inputs": [[[]]]}, 400, ("(1, 4, 4)",)),
    "a text": (ASK | {"inputs": changed("0.5")}, 400, ("numbers", "a text")),
    "true": (ASK | {"inputs": changed(True)}, 400, ("true or false",)),
    "null": (ASK | {"inputs": changed(None)}, 400, ("null",)),
    "an object": (ASK | {"inputs": changed({})}, 400, ("an object",)),
    "bytes as numbers": (ASK | {"inputs": changed(255)}, 400, ("-10 to 11", "uint8")),
    "far away": ({"task": "tags", "inputs": [50, 0, 0, 0, 0, 0]}, 400, ("to 50", "-42 to 42")),
    "bytes above 255": (ASK | {"inputs": [[[0, 1, 2, 256]] * 4], "dtype": "uint8"}, 400, ("uint8",)),
    "fractions for bytes": ({"task": "photos", "inputs": [[[0.5] * 4] * 4]}, 400, ("whole numbers", "picture")),
    "bytes above theirs": ({"task": "photos", "inputs": [[[256] * 4] * 4]}, 400, ("to 256", "0 to 255")),
    "fractions as bytes": (ASK | {"dtype": "uint8"}, 400, ("whole numbers", "fraction")),
    "another type": (ASK | {"dtype": "float16"}, 400, ('"uint8"',)),
    "logits as a text": (ASK | {"logits": "yes"}, 400, ("true or false",)),
    "no base64": (ASK | {"inputs": "%%%%"}, 400, ("base64",)),
    "base64 of no picture": (ASK | {"inputs": base64.b64encode(b"GIF89a...").decode()}, 400, ("broken",)),
    "a picture of another size": (
        ASK | {"inputs": png(np.zeros((1, 9, 4), np.uint8))},
        400,
        ("4 wide and 9 high", "expected 4 and 4"),
    ),
    "a picture for a row": ({"task": "tags", "inputs": png(np.zeros((1, 4, 4), np.uint8))}, 400, ("(6,)", "picture")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_gets_one_line_that_says_what_is_wrong(client: Client, case: str) -> None:
    said, status, words = REFUSED[case]
    found, answer = client.post(said)
    assert found == status, answer
    assert answer.keys() == {"error"}
    line = answer["error"]
    assert "\n" not in line
    assert len(line) < 500
    assert "Traceback" not in line
    assert [word for word in words if word not in line] == [], line
    assert client.post(ASK)[0] == 200  # the same connection goes on


BAD_NPY = {
    "a pickle": npy(np.array([{}], dtype=object), allow_pickle=True),
    "texts": npy(np.array(["a"])),
    "complex": npy(np.zeros((1, 4, 4), np.complex64)),
    "a record": npy(np.zeros(4, [("a", "f4")])),
    "cut off": npy(DIGITS.samples(1))[:-5],
    "more than it says": npy(DIGITS.samples(1)) + b"12",
    "a terabyte by its head": npy(DIGITS.samples(1)).replace(b"(1, 1, 4, 4)", b"(9**9,0,4,4)"),
    "a huge shape": npy(np.zeros((10, 10, 10, 10), np.float32))[:200].replace(b"(10, 10, 10, 10)", b"(999999,  99999)"),
    "a zip": b"PK\x03\x04" + bytes(100),
    "nothing": b"",
    "code in its head": npy(DIGITS.samples(1)).replace(b"(1, 1, 4, 4)", b"print('oh')"),
    "whole numbers": npy(np.zeros((1, 4, 4), np.int64)),
    "NaN": npy(np.full((1, 4, 4), np.nan)),
    "another shape": npy(np.zeros((4, 4), np.float32)),
}


@pytest.mark.parametrize("case", BAD_NPY)
def test_a_bad_npy_is_refused(client: Client, case: str) -> None:
    status, said = client.post(BAD_NPY[case], "/predict?task=digits%200-1", "application/octet-stream")
    assert status == 400, said
    assert "\n" not in said["error"]


def test_npy_needs_a_task_and_others_a_type(client: Client) -> None:
    body = npy(DIGITS.samples(1))
    assert client.post(body, "/predict", "application/octet-stream")[0] == 400
    assert client.post(body, "/predict?task=no", "application/octet-stream")[0] == 404
    status, said = client.post(ASK, kind="text/plain")
    assert (status, "application/json" in said["error"]) == (415, True)


def test_other_addresses_are_refused_in_json(client: Client) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("GET", "/predict", 405), ("GET", "/../../etc/passwd", 404)):
        found, headers, text = client.raw(method, path)
        assert (found, headers["content-type"]) == (status, "application/json")
        assert "POST /predict" in json.loads(text)["error"]


# ---- limits


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(exports: Path) -> None:
    with serving(exports, max_body=2000) as port:
        assert once(port, ASK)[0] == 200
        assert once(port, {"task": "x" * 3000, "inputs": 1}) == (
            413,
            {"error": "a request may have 2,000 bytes (--max-body)."},
        )
        with socket.create_connection(("127.0.0.1", port)) as line:
            head = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            line.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"1" * 1024 + b"\r\n")
            line.sendall(b"400\r\n" + b"1" * 1024 + b"\r\n")
            assert b" 413 " in line.recv(100)


def test_a_body_that_never_ends_is_given_up(exports: Path) -> None:
    with serving(exports, timeout=0.5) as port, socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        line.settimeout(10)
        assert b" 408 " in line.recv(100)


def slowed(folder: Path, seconds: float, **limits: Any) -> App:
    """Return an app whose networks take their time."""
    app = App(read_all(folder), limits.get("max_body", 1_000_000), limits.get("timeout", 20.0))
    for network in app._networks.values():
        run = network.run
        network.run = lambda inputs, run=run: time.sleep(seconds) or run(inputs)  # type: ignore[method-assign, func-returns-value]
    return app


def test_an_answer_that_takes_too_long_is_given_up(exports: Path) -> None:
    with running(slowed(exports, 1.0, timeout=0.3)) as port:
        began = time.perf_counter()
        status, said = once(port, ASK)
        assert (status, said) == (504, {"error": "no answer within 0.3 s (--timeout)."})
        assert time.perf_counter() - began < 0.9


def raw(port: int, path: str, body: bytes, kind: str) -> Any:
    with client_of(port) as client:
        return client.raw("POST", path, body, kind)


def test_more_than_may_wait_is_refused_and_can_be_asked_again(exports: Path) -> None:
    many = npy(np.zeros((4096, 6), np.float32))
    path, kind = "/predict?task=tags", "application/octet-stream"
    with running(slowed(exports, 0.02)) as port, ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(raw, port, path, many, kind) for _ in range(3)]
        replies = [one.result() for one in asked]
        assert sorted({status for status, _, _ in replies}) == [200, 503]
        assert {headers["retry-after"] for status, headers, _ in replies if status == 503} == {"1"}
        assert once(port, many, path, kind)[0] == 200
    with serving(exports) as port:
        status, said = once(port, npy(np.zeros((4097, 6), np.float32)), path, kind)
        assert (status, "4096" in said["error"]) == (413, True)


def test_a_fault_in_the_server_says_nothing_of_its_inside(exports: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = App(read_all(exports), 1_000_000, 20.0)

    def fails(_: Any) -> Any:
        raise RuntimeError("secret")

    app._networks["tags"].run = fails  # type: ignore[method-assign]
    del app._networks["prices"]  # its queue is never made: a fault of ours
    with running(app) as port:
        for task, status in (("tags", 500), ("prices", 500), ("plain", 200)):
            made = next(one for one in ALL if one.name == task)
            found, said = once(port, {"task": task, "inputs": made.samples(1).tolist()})
            assert found == status
            assert "secret" not in json.dumps(said)


# ---- the other addresses


def test_tasks_health_and_page(client: Client) -> None:
    told = {task["task"]: task for task in client.get("/tasks")}
    assert told.keys() == {made.name for made in ALL}
    assert told["digits 0-1"]["picture"]
    assert not told["tags"]["picture"]
    assert told["colours"]["score"] == {"accuracy": 0.9}
    assert client.get("/health")["status"] == "ok"
    status, headers, page = client.raw("GET", "/")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"http" not in page.replace(b"http-equiv", b"")  # nothing is fetched from elsewhere


def test_names_of_any_kind_are_served(tmp_path: Path) -> None:
    name = 'a "b" \\ <i>ü</i>\n/..'
    with serving(write_all(tmp_path, [Made(name, classes=["é", "<b>", "c"])])) as port, client_of(port) as client:
        assert client.get("/tasks")[0]["task"] == name
        status, said = client.post({"task": name, "inputs": GOOD})
        assert (status, said["task"], said["classes"]) == (200, name, ["é", "<b>", "c"])
        metrics = client.raw("GET", "/metrics")[2].decode()
        assert r'task="a \"b\" \\ <i>ü</i>\n/..",code="200"' in metrics


def test_several_inputs_are_given_by_name(tmp_path: Path) -> None:
    part = {"shape": [2], "dtype": "float32", "low": -1.0, "high": 1.0, "bytes": False}
    card = PRICES.card() | {"output": {"name": "answer", "shape": [2]}}
    card["inputs"] = [part | {"name": "left"}, part | {"name": "right"}]
    nodes = [helper.make_node("Sub", ["left", "right"], ["answer"])]
    takes = {"left": ("float32", ("n", 2)), "right": ("float32", ("n", 2))}
    write(tmp_path, card, onnx_bytes(nodes, takes, ("n", 2), {}))
    with serving(tmp_path) as port, client_of(port) as client:
        ask = {"right": [[1, 2], [3, 4]], "left": [[5, 5], [6, 6]]}
        said = client.post({"task": "prices", "inputs": ask})[1]
        assert said["answers"] == [{"values": [4, 3]}, {"values": [3, 2]}]
        for wrong, word in (
            ([1, 2], "several inputs"),
            ({"left": [1, 2]}, "takes 'left', 'right'"),
            (ask | {"left": [[5, 5]]}, "as many samples each"),
            (ask | {"left": [[5, 50], [6, 6]]}, "'left'"),
        ):
            status, said = client.post({"task": "prices", "inputs": wrong})
            assert (status, word in said["error"]) == (400, True)
        npy_kind = "application/octet-stream"
        assert client.post(npy(np.zeros((1, 2))), "/predict?task=prices", npy_kind)[0] == 400


def test_more_samples_than_a_request_may_hold_are_refused_before_any_is_read(client: Client) -> None:
    for inputs in (["AAAA"] * 4097, [{}] * 4097):
        status, said = client.post({"task": "digits 0-1", "inputs": inputs})
        assert (status, "4096" in said["error"]) == (413, True)
