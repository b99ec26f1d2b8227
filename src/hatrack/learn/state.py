"""A learner on disk: safetensors and one JSON page; nothing pickled, nothing half-written.

    learner.json                what is what, and the SHA-256 of the three files beside it
    tasks-<digest>.safetensors  what changes only when a task ends: heads, masks, probes, the vault
    live-<digest>.safetensors   the network, and the task in progress
    best-<digest>.safetensors   the best epoch of the task in progress

The tensor files are named by their content and never rewritten; the JSON page is replaced in one step, and what it
no longer names is removed afterwards. A kill at any moment leaves a page whose files are all there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor, nn

from hatrack import atomic
from hatrack.data.task import Inputs
from hatrack.errors import HatrackError, unknown
from hatrack.learn import proof
from hatrack.learn.fit import Resume
from hatrack.methods import METHODS
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyperparameters
from hatrack.nets.model import new_head

if TYPE_CHECKING:
    from hatrack.learn.learner import Learner

PAGE = "learner.json"
# What a save may leave behind: its own files only, for the folder may hold others.
OURS = re.compile(
    r"(tasks|live|best)-[0-9a-f]{12}\.safetensors|"
    r"\.((tasks|live|best)-[0-9a-f]{12}\.safetensors|learner\.json)\.[0-9a-f-]+\.tmp"
)
SCHEMA = 1


def save(learner: Learner, folder: Path) -> None:
    """Write `learner` to `folder`."""
    snapshot(learner, folder)()


def snapshot(learner: Learner, folder: Path) -> Callable[[], None]:
    """Copy what there is to save, and return a function that writes it; meanwhile the learner may go on.

    It must have been called before the next snapshot is taken.
    """
    fit = learner._fit
    drafts = [
        _draft(learner, folder, "tasks", (learner.finished, learner.model.example is not None), _finished_tensors),
        _draft(learner, folder, "live", None, _live_tensors),
    ]
    if fit is not None:
        key = (learner.finished, fit.place.phase, fit.best_epoch)
        drafts.append(_draft(learner, folder, "best", key, lambda _: fit.best))
    page = {
        "schema": SCHEMA,
        "method": learner.method.name,
        "settings": {name: getattr(learner.method, name) for name in hyperparameters(type(learner.method))},
        "epochs": learner.epochs,
        "batch_size": learner.batch_size,
        "precision": learner.model.precision.name,
        "seed": learner.seed,
        "tasks": [{"name": t.name, "classes": t.classes, "inputs": asdict(t.inputs)} for t in learner.tasks],
        "finished": learner.finished,
        "capacity": list(learner.capacities),
        "fit": None if fit is None else fit.numbers(),
        "environments": [probe.environment for probe in learner.probes],
        "optimizer": learner.trained_with,
    }

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        files = {draft.kind: _store(learner, folder, draft) for draft in drafts}
        whole = page | {"files": files}
        atomic.write(folder / PAGE, json.dumps(whole | {"sha256": _digest(whole)}, indent=1).encode())
        named = {f["name"] for f in files.values()} | {PAGE}
        for path in folder.iterdir():
            if path.name not in named and OURS.fullmatch(path.name):
                path.unlink()

    return write


def _digest(page: dict[str, Any]) -> str:
    """Return the SHA-256 of what a page says, however it is laid out; its own entry for it is left out."""
    said = json.loads(json.dumps({key: value for key, value in page.items() if key != "sha256"}))
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class _Draft(NamedTuple):
    """A tensor file to be written, or the entry of one that is there already."""

    kind: str
    key: Any
    tensors: dict[str, Tensor]
    order: list[str]
    same: dict[str, str]  # names of tensors that are another one of the file
    entry: dict[str, Any] | None


def _draft(learner: Learner, folder: Path, kind: str, key: Any, collect: Any) -> _Draft:
    """Copy the tensors of a file, each once; `key` tells when its content cannot have changed."""
    known = learner.stored.get((folder, kind))
    if key is not None and known is not None and known[0] == key and (folder / known[1]["name"]).exists():
        return _Draft(kind, key, {}, [], {}, known[1])
    copies: dict[str, Tensor] = {}
    same: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    collected = collect(learner)
    for name, tensor in collected.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and place in first:
            same[name] = first[place]
        else:
            first[place] = name
            copies[name] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    return _Draft(kind, key, copies, list(collected), same, None)


def _store(learner: Learner, folder: Path, draft: _Draft) -> dict[str, Any]:
    """Write one tensor file unless it is there already; return what the page says of it."""
    if draft.entry is not None:
        return draft.entry
    data = serialise(draft.tensors)
    digest = hashlib.sha256(data).hexdigest()
    entry: dict[str, Any] = {
        "name": f"{draft.kind}-{digest[:12]}.safetensors",
        "sha256": digest,
        "order": draft.order,
        "same": draft.same,
    }
    if not (folder / entry["name"]).exists():
        atomic.write(folder / entry["name"], data)
    learner.stored[(folder, draft.kind)] = (draft.key, entry)
    return entry


def _finished_tensors(learner: Learner) -> dict[str, Tensor]:
    tensors = {f"method/{name}": t for name, t in learner.method.state().items()}
    if learner.model.example is not None:
        tensors["example"] = learner.model.example
    for name, initial in learner.model.initial.items():
        tensors[f"initial/{name}"] = initial
    for t in range(learner.finished):
        tensors |= {f"head/{t}/{n}": p for n, p in learner.model.heads[t].named_parameters()}
        tensors |= {f"private/{t}/{n}": p for n, p in learner.model.private[t].items()}
        tensors |= {f"probe/{t}/x": learner.probes[t].x, f"probe/{t}/logits": learner.probes[t].logits}
    for name, value in learner.vault.values.items():
        tensors |= {f"vault/{name}": value, f"held/{name}": learner.vault.held[name].to(torch.uint8)}
    return tensors


def _live_tensors(learner: Learner) -> dict[str, Tensor]:
    tensors = {f"net/{name}": t for name, t in learner.model.tensors().items()}
    for t in range(learner.finished, len(learner.model.heads)):
        tensors |= {f"head/{t}/{n}": p for n, p in learner.model.heads[t].named_parameters()}
        tensors |= {f"private/{t}/{n}": p for n, p in learner.model.private[t].items()}
    if learner._fit is not None:
        trained = {id(tensor) for tensor in learner._fit.moving.values()}
        for t in range(learner.finished):  # heads of old tasks, where the method goes on training them
            named = learner.model.heads[t].named_parameters()
            tensors |= {f"head/{t}/{n}": p for n, p in named if id(p) in trained}
        tensors |= {f"fit/{name}": t for name, t in learner._fit.tensors().items()}
    return tensors


def input_shape(folder: Path) -> tuple[int, ...] | None:
    """Return the shape of one input of a saved learner, so that its network can be built again without its data."""
    entry = _read_page(folder)["files"]["tasks"]
    tensors = _read_tensors(folder, entry, check=False, tampered=[])
    return tuple(tensors["example"].shape[1:]) if "example" in tensors else None


def load(
    folder: str | Path,
    net: nn.Module,
    method: Method | None = None,
    optimizer: Any = None,
    device: str | torch.device = "auto",
    engine: str = "auto",
) -> Learner:
    """Return the learner saved in `folder`, over a network of the same architecture.

    The method is rebuilt from its stored settings unless given. An optimiser other than the method's own cannot be
    stored as code: give the same callable again.
    """
    return _load(Path(folder), net, method, optimizer, device, engine, check=True)[0]


def verify(folder: Path, net: nn.Module, device: str | torch.device = "auto") -> proof.Verification:
    """Verify a saved learner, files included: a checkpoint that was edited by hand is found out."""
    learner, tampered = _load(folder, net, None, None, device, "auto", check=False)
    verdict = learner.verify()
    return proof.Verification(verdict.tasks, verdict.notes, tuple(tampered))


def _load(
    folder: Path,
    net: nn.Module,
    method: Method | None,
    optimizer: Any,
    device: str | torch.device,
    engine: str,
    check: bool,
) -> tuple[Learner, list[str]]:
    from hatrack.learn.learner import Learned, Learner

    page = _read_page(folder)
    tampered: list[str] = []
    if page.get("sha256") not in (None, _digest(page)):  # None: a save of an earlier version
        _find(f"{PAGE} was changed after it was written (its SHA-256 differs from the one in it).", check, tampered)
    files = {kind: _read_tensors(folder, entry, check, tampered) for kind, entry in page["files"].items()}
    done, live = files["tasks"], files["live"]
    if method is None:
        if page["method"] not in METHODS:
            raise unknown("method", page["method"], METHODS)
        method = METHODS[page["method"]](**page["settings"])
    elif isinstance(method, Method) and method.name != page["method"]:
        raise HatrackError(
            f"{folder} holds a learner of {page['method']}, got method={method.name}; leave method= out, or give a "
            f"{page['method']} with settings of your own."
        )
    sizes = {key: page[key] for key in ("epochs", "batch_size", "precision", "seed")}
    learner = Learner(net, method, optimizer, device=device, engine=engine, **sizes)
    model = learner.model
    _fill(model.tensors(), _under(live, "net/"), "the network")
    model.initial = {name: t.to(model.device) for name, t in _under(done, "initial/").items()}
    model.example = done["example"].to(model.device) if "example" in done else None
    trained = model.parameters()
    for t, about in enumerate(page["tasks"]):
        held = {**done, **live}
        weight = held[f"head/{t}/weight"]
        head = new_head(weight.shape[1], weight.shape[0], model.device)
        _fill(dict(head.named_parameters()), _under(held, f"head/{t}/"), f"head {t}")
        model.heads.append(head)
        own = {n: p.to(model.device).requires_grad_(n in trained) for n, p in _under(held, f"private/{t}/").items()}
        model.private.append(own)
        inputs = {k: None if v is None else tuple(v) for k, v in about["inputs"].items()}
        learner.tasks.append(Learned(about["name"], about["classes"], Inputs(**inputs)))
    # A save of an earlier version has one environment for all.
    wheres = page["environments"] if "environments" in page else [page["environment"]] * page["finished"]
    for t, where in enumerate(wheres):
        x, logits = (done[f"probe/{t}/{part}"].to(model.device) for part in ("x", "logits"))
        learner.probes.append(proof.Probe(x, logits, where))
    learner.vault.values = {n: v.to(model.device) for n, v in _under(done, "vault/").items()}
    learner.vault.held = {n: v.to(model.device).bool() for n, v in _under(done, "held/").items()}
    learner.capacities = page["capacity"]
    learner.trained_with = page.get("optimizer")
    method.load_state(_under(done, "method/"))
    if page["fit"] is not None:
        learner._resume = Resume(page["fit"], _under(live, "fit/"), files["best"])
    return learner, tampered


def _read_page(folder: Path) -> dict[str, Any]:
    path = folder / PAGE
    try:
        page: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise HatrackError(f"{folder} holds no saved learner (no {PAGE}).") from None
    except ValueError as error:
        raise HatrackError(f"{path} is not valid JSON ({error}).") from None
    if not isinstance(page, dict) or not isinstance(page.get("files"), dict):
        raise HatrackError(f"{path} does not describe a saved learner; load an older save, or begin anew.")
    if page.get("schema") != SCHEMA:
        raise HatrackError(f"{path} has schema {page.get('schema')!r}; this version reads {SCHEMA}.")
    return page


def _read_tensors(folder: Path, entry: dict[str, Any], check: bool, tampered: list[str]) -> dict[str, Tensor]:
    path = folder / entry["name"]
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise HatrackError(f"{path} is missing; the saved learner is incomplete.") from None
    try:
        held: dict[str, Tensor] = parse(data)
        # The file sorts its tensors, and they lie in it unaligned: both would change how sums over them round.
        tensors = {name: held[entry["same"].get(name, name)].clone() for name in entry["order"]}
    except Exception as error:
        raise HatrackError(
            f"{path} cannot be read as safetensors ({error}); load an older save, or begin anew."
        ) from None
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        finding = f"{path.name} was changed after it was written (its SHA-256 differs from the one in {PAGE})."
        _find(finding, check, tampered)
    return tensors


def _find(finding: str, check: bool, tampered: list[str]) -> None:
    """Refuse a file that was changed, or note it for the verdict."""
    if check:
        raise HatrackError(f"{finding} Run verify to see what drifted.")
    tampered.append(finding)


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _fill(targets: dict[str, Tensor], stored: dict[str, Tensor], what: str) -> None:
    if set(targets) != set(stored):
        odd = sorted(set(targets) ^ set(stored))[0]
        raise HatrackError(f"{what} does not match what was saved: {odd!r} is only on one side; build the same net.")
    with torch.no_grad():
        for name, target in targets.items():
            if target.shape != stored[name].shape:
                raise HatrackError(
                    f"{what} does not match what was saved: {name!r} has shape {tuple(target.shape)}, saved was "
                    f"{tuple(stored[name].shape)}; build the same net."
                )
            target.copy_(stored[name])
