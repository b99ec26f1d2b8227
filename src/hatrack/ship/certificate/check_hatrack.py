"""Say of every old task of a network whether it is what it was: python check_hatrack.py OLD NEW [--key PUBLIC]

OLD and NEW are certificates of hatrack's, or folders of saved learners or runs; NEW may be a folder of exports, where
OLD is a certificate; of a chain, give all. Needs numpy and safetensors, for signatures cryptography, for ONNX files
onnxruntime. Ends with 0 unchanged, 1 changed or gone, 2 wrong usage, 3 could not be verified. See docs/certificate.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from base64 import b64decode
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any

try:
    import numpy as np
    from safetensors import deserialize
except ImportError as missing:  # not 1, which would say that something changed
    print(f"{missing}: pip install numpy safetensors", file=sys.stderr)
    sys.exit(3)

Tasks = list[tuple[str, dict[str, str]]]  # by task, by part: a digest
SCHEDULE = ("lr", "lr_factor", "lr_patience", "lr_min", "clip")  # settings that no answer of a finished task depends on


class Problem(Exception):
    """What keeps tasks from being compared: a line, and the exit code that it means."""


def said(value: Any) -> str:
    return sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()  # the order of the file kept


def digest(tensor: dict[str, Any], used: Any = None) -> str:
    """Return the SHA-256 of the type, the places and the bytes of the entries that are `used` (booleans; None: all)."""
    used = np.ones(tensor["shape"], dtype=bool) if used is None else used
    axes = [np.flatnonzero(used.any(tuple(b for b in range(used.ndim) if b != a))) for a in range(used.ndim)]
    places = b"".join(np.array([len(axis), *axis], dtype="<u4").tobytes() for axis in axes)
    about = f"{tensor['dtype']} {used.ndim}\n".encode() + places + np.packbits(used[np.ix_(*axes)]).tobytes()
    rows = np.frombuffer(tensor["data"], dtype=np.uint8).reshape(max(used.size, 1), -1)[: used.size]
    return sha256(about + rows[used.flatten()].tobytes()).hexdigest()


def entries(form: Any, shape: list[int], done: dict[str, Any]) -> Any:
    """Return, as booleans, which entries of a shared tensor a task uses."""
    if isinstance(form, str):
        return np.full(shape, {"all": True, "none": False}[form])
    kind, name, number = form
    if kind == "upto":
        numbers = np.frombuffer(done[name]["data"], dtype={"I16": "<i2"}[done[name]["dtype"]]).reshape(shape)
        return (numbers >= 1) & (numbers <= number)
    lengths = {"axes": shape, "bits": [int(np.prod(shape))]}[kind]
    bits = np.unpackbits(np.frombuffer(done[name]["data"], dtype=np.uint8)) > 0
    return reduce(np.logical_and.outer, np.split(bits[number:][: sum(lengths)], np.cumsum(lengths)[:-1])).reshape(shape)


def under(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def parts(page: dict[str, Any], done: dict[str, Any], live: dict[str, Any], t: int) -> dict[str, str]:
    """Return the digests of all that task number `t` is answered from, and of what it answered to its probes."""
    about, told = page["tasks"][t], page["relied"][t]
    settings = {name: value for name, value in page["settings"].items() if name not in SCHEDULE}
    net = under(live, "net/") | under(done, f"private/{t}/")
    net |= {f"{e}/{n}": x for e in told["earlier"] for n, x in under(done, f"private/{e}/").items()}
    return {
        "number": said(t),
        "inputs": said([about["inputs"], about["kind"]]),
        "target": said([about["classes"], about["target"]]),
        "method": said([page["method"], page.get("code"), settings, page["features"], page["answers"], page["seed"]]),
        "probes": said([page["environments"][t], page["own_probes"][t]]),
        **{f"live head/{n}": digest(x) for n, x in under(live, f"head/{t}/").items()},  # one that is trained again
        **{f"net/{n}": digest(x, entries(told["entries"].get(n, "all"), x["shape"], done)) for n, x in net.items()},
        **{f"method/{n}": digest(done[f"method/{n}"]) for n in told["state"]},
        **{f"{k}/{n}": digest(x) for k in "head kind probe which".split() for n, x in under(done, f"{k}/{t}/").items()},
        **{n: digest(x) for n, x in done.items() if n == "example"},
    }


def of_saved(folder: Path) -> Tasks:
    """Return the parts of all tasks that are there and current, as they are and with a task in progress given up."""
    page, files, found = json.loads((folder / "learner.json").read_text()), {}, []
    for kind, entry in page["files"].items():  # as hatrack reads them: what is in "order", some by another's name
        held = dict(deserialize((folder / entry["name"]).read_bytes()))
        files[kind] = {name: held[entry["same"].get(name, name)] for name in entry["order"]}
    newer = {int(old): new < page["finished"] for old, new in page.get("versions", {}).items()}  # else: in progress
    for t in (t for t in range(page["finished"]) if not (page["tasks"][t].get("released") or newer.get(t))):
        if t in newer or page.get("relied", {t: None})[t] is None:
            raise Problem(f"{folder} does not say which entries tasks use: load it, end any update, save it again", 3)
        each = [parts(page, files["tasks"], files[kind], t) for kind in ("live", "before") if kind in files]
        both = {n: " or ".join(dict.fromkeys(str(one.get(n)) for one in each)) for n in each[0] | each[-1]}
        found.append((page["tasks"][t]["name"], both))
    return found


def canonical(page: dict[str, Any], *without: str) -> bytes:
    return (json.dumps({k: v for k, v in page.items() if k not in without}, indent=1, sort_keys=True) + "\n").encode()


def read(path: Path, key: str | None) -> dict[str, Any]:
    """Return a certificate that is as it was written, and signed by `key` (hexadecimal, a PEM file; None: any)."""
    if key is not None and Path(key).is_file():
        key = b64decode("".join(Path(key).read_text().splitlines()[1:-1]))[-32:].hex()
    page: dict[str, Any] = json.loads(path.read_bytes())
    if path.read_bytes() != canonical(page) or page["sha256"] != sha256(canonical(page, "sha256")).hexdigest():
        raise Problem(f"{path} was changed after it was written", 1)
    if page["schema"] != 1 or (key is not None and not page["key"]):
        raise Problem(f"{path} is not signed, or of another schema than 1", 3)
    if key not in (None, page["key"]):
        raise Problem(f"{path} is signed by another key: {page['key']}", 1)
    if page["key"]:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(page["key"]))
            public.verify(bytes.fromhex(page["signature"]), canonical(page, "sha256", "signature"))
        except Exception:  # of a kind of its own, or it is no signature at all
            raise Problem(f"{path} bears a signature that is not of its key", 1) from None
    return page


def of_exports(folder: Path, certified: dict[str, dict[str, str]], asked: dict[str, dict[str, Any]]) -> Tasks:
    """Return, of every exported task, the digests of the files that are certified, and where an ONNX file disagrees."""
    found = []
    for card in sorted(folder.glob("*/card.json")):
        name = json.loads(card.read_text())["task"]
        files = {file: card.parent / file for file in certified.get(name, {}) if (card.parent / file).exists()}
        digests = {file: sha256(path.read_bytes()).hexdigest() for file, path in files.items()}
        for file in (file for file in asked.get(name, {}) if digests.get(file) == certified[name].get(file)):
            now, then = answers(files[file], asked[name][file]), np.array(asked[name][file]["answers"])
            if now.shape != then.shape or not np.abs(now - then).max() <= 1e-4 * np.abs(then).max():  # NaN is neither
                digests[file] = "other answers"
        found.append((name, digests))
    return found


def answers(path: Path, asked: dict[str, Any]) -> Any:
    """Return what an ONNX file gives for inputs that are drawn as `asked` says."""
    from onnxruntime import InferenceSession

    draw = np.random.RandomState(asked["seed"]).random_sample
    x = {x["name"]: (x["low"] + draw(x["shape"]) * (x["high"] - x["low"])).astype(x["dtype"]) for x in asked["inputs"]}
    return InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, x)[0]


def compare(older: Path, newer: Path, key: str | None = None) -> dict[str, list[str] | None]:
    """Return, by task of `older`, the parts that are not what they were; None where the task is gone."""
    old, new = (None if path.is_dir() else read(path, key) for path in (older, newer))
    saved = [path if (path / "learner.json").exists() else path / "checkpoint" for path in (older, newer)]
    if old and new and (new["previous"] != old["sha256"] or old["key"] not in (None, new["key"])):
        raise Problem(f"{newer} does not follow {older}, or not under its key; give those between as well, in order", 3)
    if old and not new and not saved[1].exists():
        files = {task["name"]: task["exports"] for task in old["tasks"] if task["exports"]}
        sides = [list(files.items()), of_exports(newer, files, {task["name"]: task["asked"] for task in old["tasks"]})]
    else:
        more = ("answers", "cut_out") if old and new and old["environment"] == new["environment"] else ()
        sides = [
            [(t["name"], t["parts"] | {n: said(t[n]) for n in more}) for t in page["tasks"]] if page else of_saved(at)
            for page, at in zip((old, new), saved, strict=True)
        ]
    if not sides[0] or any(len(dict(tasks)) < len(tasks) for tasks in sides):
        raise Problem(f"{older} holds nothing to compare {newer} with, or one of them two tasks of one name", 3)
    then, now = map(dict, sides)
    return {t: [n for n in a | now[t] if a.get(n) != now[t].get(n)] if t in now else None for t, a in then.items()}


def since(older: Path, newer: Path) -> dict[str, str] | None:
    """Return what `newer` says has become of tasks since `older`; None where its events do not go on from those."""
    pages = [[f for f in (p, p / "learner.json", p / "checkpoint/learner.json") if f.is_file()] for p in (older, newer)]
    then, now = (json.loads(page[0].read_bytes()).get("events", []) if page else [] for page in pages)
    follows = canonical({"": then}) == canonical({"": now[: len(then)]})
    return {e["task"]: f" ({e['event']})" for e in now[len(then) :] if e.get("accepted", True)} if follows else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, metavar="NEW", nargs="+", help="of several, each is compared with its former")
    parser.add_argument("--key", help="the public key of all certificates: hexadecimal, or a PEM file")
    given, code = parser.parse_args(), 0
    try:
        for older, newer in zip([given.old, *given.new], given.new, strict=False):
            found, later = compare(older, newer, given.key), since(older, newer) or {}
            for task, odd in found.items():
                line = "GONE" if odd is None else f"CHANGED: {', '.join(odd)}" if odd else "unchanged"
                code = 1 if line != "unchanged" else code
                print("".join(c if c.isprintable() else "?" for c in f"{task}: {line}{later.get(task, '')}"))
    except Exception as error:  # what was edited may be good for anything
        print(error.args[0] if isinstance(error, Problem) else f"{type(error).__name__}: {error}", file=sys.stderr)
        return code or (error.args[1] if isinstance(error, Problem) else 3)
    return code


if __name__ == "__main__":
    sys.exit(main())
