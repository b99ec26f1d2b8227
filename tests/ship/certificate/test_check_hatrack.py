"""The checker: no bit that an answer hangs on can be moved unseen, and what no old task uses is nobody's business."""

from __future__ import annotations

import ast
import struct
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from hatrack import Learner
from hatrack.ship.certificate import check_hatrack
from hatrack.ship.certificate.check_hatrack import compare, of_saved

from .saves import Mixed, answers, copied, flip, page_of, places, task, taught

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
METHODS = ("hat", "pmask", "packnet", "supsup", "wsn", "pathnet", "pnn", "one", "sgd-frozen", "finetune-copy")
X = torch.randn(7, 1, 5, 5, generator=torch.Generator().manual_seed(9))


@cache
def base(method: str) -> tuple[Learner, Path, list[torch.Tensor]]:
    """Return a learner of two tasks, where it is saved, and what it answers."""
    learner = taught(method, 2)
    folder = Path(mkdtemp()) / "saved"
    learner.save(folder)
    found = answers(folder, Mixed, X, 2)
    assert found is not None
    return learner, folder, found


def test_it_is_one_short_file_that_imports_neither_hatrack_nor_torch() -> None:
    text = Path(check_hatrack.__file__).read_text()
    assert len(text.splitlines()) <= 200
    roots = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).partition(".")[0])
    ours = {"numpy", "safetensors", "cryptography", "onnxruntime"}
    assert roots - ours == {"__future__", "argparse", "json", "sys", "base64", "functools", "hashlib", "pathlib",
                            "typing"}  # fmt: skip


@pytest.mark.parametrize("package", ["numpy", "safetensors"])
def test_a_missing_package_is_no_change(package: str) -> None:
    code = f"import runpy, sys; sys.modules[{package!r}] = None; runpy.run_path({check_hatrack.__file__!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "pip install numpy safetensors" in done.stderr


@pytest.mark.parametrize("method", METHODS)
def test_tasks_are_unchanged_after_another_task_growing_nothing_else(method: str, tmp_path: Path) -> None:
    _, folder, _ = base(method)
    later = taught(method, 3)
    later.save(tmp_path / "later")
    assert compare(folder, tmp_path / "later") == {"t0": [], "t1": []}
    assert compare(tmp_path / "later", folder)["t2"] is None, "t2 is gone"


# ---- an independent computation of the digests, entry by entry, from docs/certificate.md


def by_hand(dtype: str, array: np.ndarray, mask: np.ndarray) -> str:
    found = sha256()
    found.update(f"{dtype} {array.ndim}\n".encode())
    places = [place for place in np.ndindex(*array.shape) if mask[place]]
    axes = [sorted({place[axis] for place in places}) for axis in range(array.ndim)]
    for axis in axes:
        found.update(struct.pack(f"<{len(axis) + 1}I", len(axis), *axis))
    grid = [[]]  # type: ignore[var-annotated]
    for axis in axes:
        grid = [[*place, i] for place in grid for i in axis]
    bits = "".join("1" if mask[tuple(place)] else "0" for place in grid)
    bits += "0" * (-len(bits) % 8)
    found.update(bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)))
    for place in places:
        found.update(array[place].tobytes())
    return found.hexdigest()


NAMES = {"float32": "F32", "int64": "I64", "uint8": "U8", "int16": "I16", "float64": "F64"}


@pytest.mark.parametrize("method", METHODS)
def test_its_digests_are_those_of_another_computation(method: str) -> None:
    learner, folder, _ = base(method)
    page = page_of(folder)
    files = {}
    for kind, entry in page["files"].items():
        held = load_file(folder / entry["name"])
        files[kind] = held | {name: held[other] for name, other in entry["same"].items()}
    done, live = files["tasks"], files["live"]
    for t, (name, parts) in enumerate(of_saved(folder)):
        assert name == f"t{t}"
        use, expected = learner.method.use(t) or {}, {}
        own = {n.split("/", 2)[2]: x for n, x in done.items() if n.startswith(f"private/{t}/")}
        trained = {n for n, p in learner.model.net.named_parameters() if p.requires_grad}
        for n, x in {**{n[4:]: x for n, x in live.items()}, **own}.items():
            mask = np.ones(x.shape, dtype=bool)
            if n in use:
                mask = use[n].numpy() > 0
            elif n in trained and n not in own:
                mask[:] = False
            expected[f"net/{n}"] = (x, mask)
        earlier = range(t) if method == "pnn" else ()
        for e in earlier:
            columns = {n.split("/", 2)[2]: x for n, x in done.items() if n.startswith(f"private/{e}/")}
            expected |= {f"net/{e}/{n}": (x, np.ones(x.shape, dtype=bool)) for n, x in columns.items()}
        for n, x in done.items():
            what, _, rest = n.partition("/")
            if rest.startswith(f"{t}/") and what in ("head", "kind", "probe", "which"):
                expected[f"{what}/{rest[2:]}"] = (x, np.ones(x.shape, dtype=bool))
            elif what == "method" and rest.split("/")[1:2] in [[str(i)] for i in (*earlier, t)]:
                expected[n] = (x, np.ones(x.shape, dtype=bool))
        digests = {n: by_hand(NAMES[str(x.dtype)], x, mask) for n, (x, mask) in expected.items()}
        told = {n: d for n, d in parts.items() if n not in ("number", "inputs", "target", "method", "probes")}
        assert told == digests


# ---- bits


def concerned(learner: Learner, page: dict[str, Any], name: str, entry: int, bit: int, old: Any) -> set[int]:
    """Return the tasks that a bit of an entry is a part of, by what the learner in memory says; `old`: its value."""
    what, _, rest = name.partition("/")
    first, _, inner = rest.partition("/")
    everybody = range(learner.finished)
    if what == "net":
        method, model = learner.method, learner.model
        found = set()
        for t in everybody:
            use = method.use(t) or {}
            if rest in model.private[t]:
                continue
            if rest in use:
                found |= {t} if use[rest].flatten()[entry] > 0 else set()
            elif rest not in model.parameters():
                found.add(t)
        return found
    if what in ("head", "kind", "probe", "which"):
        return {int(first)}
    columns = learner.method.name == "pnn"  # a column reads all earlier ones
    if what == "private":
        return {t for t in everybody if t == int(first) or (columns and t > int(first))}
    if what == "use":
        lengths = sum(
            sum(dict(learner.model.net.named_parameters())[n].shape)
            for n, form in page["relied"][int(first)]["entries"].items()
            if form[0] == "axes"
        )
        return {int(first)} if entry * 8 + 7 - bit < lengths else set()
    if what == "method" and first == "owner":
        new = int(np.array([old]).view("<u2")[0]) ^ (1 << bit)
        new = int(np.array([new], dtype="<u2").view("<i2")[0])
        return {t for t in everybody if (1 <= old <= t + 1) != (1 <= new <= t + 1)}
    if what == "method" and inner.split("/")[0].isdigit():
        whose = int(inner.split("/")[0])
        return {t for t in everybody if t == whose or (columns and t > whose)}
    assert what in ("initial", "vault", "held") or (what, first) in (("method", "scores"), ("method", "finished"))
    return set()


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=() if m in ("hat", "pmask", "pnn") else pytest.mark.slow) for m in METHODS]
)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_a_bit_is_found_where_it_is_a_task_s_and_only_there(method: str, data: st.DataObject) -> None:
    learner, folder, given_before = base(method)
    page, other = page_of(folder), copied(folder)
    path = other / page["files"][data.draw(st.sampled_from(["tasks", "live"]))]["name"]
    known = {n: where for n, where in places(path).items() if where[1] > where[0]}
    name = data.draw(st.sampled_from(sorted(known)))
    start, end, about = known[name]
    size = (end - start) // max(int(np.prod(about["shape"])), 1)
    entry = data.draw(st.integers(0, (end - start) // size - 1))
    bit = data.draw(st.integers(0, 8 * size - 1))
    raw = path.read_bytes()[start + entry * size :][:size]
    old = int.from_bytes(raw, "little", signed=True) if about["dtype"].startswith("I") else None
    flip(path, start + entry * size + bit // 8, bit % 8)
    names = {name, *(n for n, same in page["files"][path.name.split("-")[0]]["same"].items() if same == name)}
    expected = set().union(*(concerned(learner, page, n, entry, bit, old) for n in names))
    found = compare(folder, other)
    assert {int(n[1:]) for n, odd in found.items() if odd} == expected, name
    now = answers(other, Mixed, X, 2)
    for t in set() if now is None else {0, 1} - expected:
        assert torch.equal(now[2 * t], given_before[2 * t]), f"{name} changes answers and is not counted"


@pytest.mark.parametrize("method", ["hat", "packnet", "wsn"])
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_no_bit_of_the_page_changes_an_answer_unseen(method: str, data: st.DataObject) -> None:
    _, folder, before = base(method)
    other = copied(folder)
    path = other / "learner.json"
    flip(path, data.draw(st.integers(0, path.stat().st_size - 1)), data.draw(st.integers(0, 7)))
    try:
        found = compare(folder, other)
    except Exception:  # the checker says that it cannot be read
        return
    now = answers(other, Mixed, X, 2)
    if now is not None:
        for t in (t for t in range(2) if found[f"t{t}"] == []):
            assert torch.equal(now[2 * t], before[2 * t])
            assert torch.equal(now[2 * t + 1], before[2 * t + 1])


def test_it_sees_the_middle_of_a_task_as_it_is_and_as_it_would_be_given_up(tmp_path: Path) -> None:
    learner = taught("hat", 2)
    learner.save(tmp_path / "before")
    learner.learn(task(2), progress=False, on_epoch=lambda _: learner.save(tmp_path / "within"))
    assert {"before", "live"} <= page_of(tmp_path / "within")["files"].keys()
    assert compare(tmp_path / "before", tmp_path / "within") == {"t0": [], "t1": []}
    use = learner.method.use(0)
    assert use is not None
    entry = int((use["conv.weight"].flatten() > 0).nonzero()[0])
    for kind in ("before", "live"):
        other = copied(tmp_path / "within")
        path = other / page_of(other)["files"][kind]["name"]
        flip(path, places(path)["net/conv.weight"][0] + 4 * entry, 0)
        assert compare(tmp_path / "before", other)["t0"] == ["net/conv.weight"]
