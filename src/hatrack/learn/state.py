"""A learner on disk: safetensors and one JSON page; nothing pickled, nothing half-written.

    learner.json                what is what, and the SHA-256 of the files beside it
    tasks-<digest>.safetensors  what changes only when a task ends: heads, masks, what probes gave, locked values, by
                                what samples are known
    live-<digest>.safetensors   the network, and the task in progress
    before-<digest>.safetensors the network as it was before that task
    best-<digest>.safetensors   the best epoch of the task in progress
    history.json                every epoch and every test so far; a run, which has metrics.jsonl, writes none

The tensor files are named by their content and never rewritten; the JSON page is replaced in one step, and what it
no longer names is removed afterwards. A kill at any moment leaves a page whose files are all there. The history comes
before the page, bears its own digest, and may be missing: times differ between two saves of one learner.

No sample of a task is among it, unless its method keeps some (then the page says so): probes are drawn from the seed,
and so is the input that the unit map is traced with. Version 0.1 did save samples; they go when that is saved again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor, nn

from hatrack import atomic, seal
from hatrack.data import kind as kinds
from hatrack.data.inputs import Inputs
from hatrack.errors import Edited, HatrackError, one_line
from hatrack.learn.before import Before
from hatrack.learn.fit import Resume
from hatrack.learn.growth import Growth
from hatrack.learn.history import TaskHistory, dumps, loads, matched
from hatrack.learn.learned import Gone, Learned
from hatrack.learn.proof import relied
from hatrack.learn.proof import verification as proof
from hatrack.learn.schedule import SCHEDULERS, Scheduler
from hatrack.learn.which.statistics import Statistics
from hatrack.masks.widen import fill, resize
from hatrack.methods import METHODS
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyperparameters
from hatrack.modes import undisturbed
from hatrack.nets.head import new_head
from hatrack.nets.precision import Precision
from hatrack.nets.widening import Widening
from hatrack.registry import said
from hatrack.targets import Classification
from hatrack.targets.stored import restored

if TYPE_CHECKING:
    from hatrack.learn.core import Core
    from hatrack.learn.learner import Learner

PAGE, HISTORY = "learner.json", "history.json"
# What a save may leave behind: its own files only, for the folder may hold others.
OURS = re.compile(
    r"{0}|history\.json|\.({0}|(learner|history)\.json)\.[0-9a-f-]+\.tmp".format(
        r"(tasks|live|before|best)-[0-9a-f]{12}\.safetensors"
    )
)
SCHEMA = 1
OWN = {"function": True}  # of features: a function, which is handed in again


def save(learner: Core, folder: Path) -> None:
    """Write `learner` to `folder`."""
    snapshot(learner, folder)()


def snapshot(learner: Core, folder: Path, run: Mapping[str, Any] | None = None) -> Callable[[], None]:
    """Copy what there is to save, and return a function that writes it; meanwhile the learner may go on.

    It must have been called before the next snapshot is taken. `run`: what the page is to say of the run's files.
    """
    for t, probe in enumerate(learner.probes):
        if probe.x is not None:
            learner.probes[t] = probe = proof.renewed(learner.method, t, probe, learner._drawn(t))
        if probe.relied is None and t in learner.model.remaining:  # of a version on a copy, nothing is shared
            probe.relied = relied.relied_on(learner.method, t, probe.seal)
    resume = _in_training(learner)
    when = learner.finished, len(learner.growths)
    drafts = [
        _draft(learner, folder, "tasks", when, _finished_tensors),
        _draft(learner, folder, "live", None, _live_tensors),
    ]
    before = _before(learner)
    if before is not None:
        drafts.append(_draft(learner, folder, "before", when, lambda _: before.net))
    if resume is not None:
        key = (learner.finished, resume.phase, resume.numbers["best_epoch"])
        drafts.append(_draft(learner, folder, "best", key, lambda _: resume.best))
    code = METHODS.code_of(type(learner.method))
    page = {
        "schema": SCHEMA,
        "method": learner.method.name,
        "settings": {name: getattr(learner.method, name) for name in hyperparameters(type(learner.method))},
        "epochs": learner.epochs,
        "batch_size": learner.batch_size,
        "features": pick if isinstance(pick := learner.model.picked.pick, str | int) else None if pick is None else OWN,
        "precision": learner.model.precision.name,
        "answers": learner.model.answers.name,
        "seed": learner.seed,
        "tasks": [
            {"name": t.name, "released": True}
            if isinstance(t, Gone)
            else {
                "name": t.name,
                "classes": t.classes,
                "target": t.target.described(),
                "inputs": asdict(t.inputs),
                "kind": kinds.described(t.kind),
            }
            for t in learner.tasks
        ],
        "events": list(learner.events),
        "versions": {str(old): new for old, new in learner.versions.items()},
        "finished": learner.finished,
        "capacity": list(learner.capacities),
        "fit": None if resume is None else resume.numbers,
        "environments": [probe.environment for probe in learner.probes],
        "seals": [probe.seal for probe in learner.probes],
        "own_probes": [None if probe.own is None else probe.own.digest for probe in learner.probes],
        "relied": [None if probe.relied is None else probe.relied.described() for probe in learner.probes],
        "keeps_samples": learner.method.keeps_samples,
        "optimizer": learner.trained_with,
        "scheduler": learner.scheduled_with,
        "corrected": learner.model.corrections(),
        **_growth(learner),
        **({"code": code} if code else {}),
        **({"run": dict(run)} if run else {}),
    }

    history = None if run is not None else dumps(learner._history)

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        files = {draft.kind: _store(learner, folder, draft) for draft in drafts}
        if history is not None:
            atomic.write(folder / HISTORY, history)
        text = json.dumps({**page, "files": files, **seal.BLANK}, indent=1)
        atomic.write(folder / PAGE, seal.sealed(text))
        named = {f["name"] for f in files.values()} | {PAGE} | ({HISTORY} if history is not None else set())
        for path in folder.iterdir():
            if path.name not in named and OURS.fullmatch(path.name):
                path.unlink()

    return write


def _growth(learner: Core) -> dict[str, Any]:
    """Return how the network came to be as wide as it is, and what shapes its tensors had at first."""
    steps = [asdict(step) for step in learner.growths]
    return {"growth": {"first": learner.model.first_shapes, "steps": steps}} if steps else {}


def _intact(text: str, page: dict[str, Any]) -> bool:
    """Return whether a page is as it was written; version 0.1 took the digest of what it says, not of its bytes."""
    if "seals" in page:
        return seal.intact(text.encode())
    said = {key: value for key, value in page.items() if key != "sha256"}
    then = page.get("sha256")
    return then is None or then == hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class _Draft(NamedTuple):
    """A tensor file to be written, or the entry of one that is there already."""

    kind: str
    key: Any
    tensors: dict[str, Tensor]
    order: list[str]
    same: dict[str, str]  # names of tensors that are another one of the file
    entry: dict[str, Any] | None


def _draft(learner: Core, folder: Path, kind: str, key: Any, collect: Any) -> _Draft:
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


def _store(learner: Core, folder: Path, draft: _Draft) -> dict[str, Any]:
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


def _in_training(learner: Core) -> Resume | None:
    """Return where training stands, or stood when a learner was loaded that has not gone on since; None between."""
    fit = learner._fit
    return learner._resume if fit is None else Resume(fit.numbers(), fit.tensors(), fit.best)


def _before(learner: Core) -> Before | None:
    """Return what there was before the task in progress, None between tasks."""
    return learner._before if len(learner.tasks) > learner.finished else None


def _finished_tensors(learner: Core) -> dict[str, Tensor]:
    before = _before(learner)
    heads = [dict(h.named_parameters()) for h in learner.model.heads] if before is None else before.heads
    state = learner.method.state() if before is None else before.state
    tensors: dict[str, Tensor] = {f"method/{name}": t for name, t in state.items()}
    for name, initial in learner.model.initial.items():
        tensors[f"initial/{name}"] = initial
    for t, probe in enumerate(learner.probes):
        tensors |= _of_task(learner, t, heads[t]) | {f"probe/{t}/logits": probe.logits}
        if probe.own is not None:
            tensors[f"probe/{t}/own"] = probe.own.logits
        if probe.relied is not None:
            tensors[relied.bits_of(t)] = probe.relied.bits
    tensors |= _copies(learner, unfinished=False)
    for name, value in learner.locked_values.values.items():
        tensors |= {f"vault/{name}": value, f"held/{name}": learner.locked_values.held[name].to(torch.uint8)}
    return tensors


def _copies(learner: Core, unfinished: bool) -> dict[str, Tensor]:
    """Return what older versions of tasks have the network's tensors in, of finished updates or of one in progress."""
    kept = {t: c for t, c in learner.model.copies.items() if (learner.versions[t] >= learner.finished) == unfinished}
    return {f"copy/{t}/{name}": tensor for t, copies in kept.items() for name, tensor in copies.items()}


def _of_task(learner: Core, t: int, head: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what a task has for itself, finished or in progress; nothing of one that was released."""
    if t in learner.model.released:
        return {}
    tensors = {f"head/{t}/{n}": p for n, p in head.items()}
    tensors |= {f"private/{t}/{n}": p for n, p in learner.model.private[t].items()}
    which = learner.tasks[t].which
    tensors |= {f"which/{t}/{n}": part for n, part in (which.tensors() if which else {}).items()}
    return tensors | {f"kind/{t}/{name}": x for name, x in kinds.ranges(learner.tasks[t].kind).items()}


def _live_tensors(learner: Core) -> dict[str, Tensor]:
    tensors = {f"net/{name}": t for name, t in learner.model.tensors().items()} | _copies(learner, unfinished=True)
    for t in range(learner.finished, len(learner.tasks)):
        tensors |= _of_task(learner, t, dict(learner.model.heads[t].named_parameters()))
    resume, fit = _in_training(learner), learner._fit
    if resume is not None:
        trained = None if fit is None else {id(tensor) for tensor in fit.state.values()}
        for t in range(learner.finished):  # heads of old tasks, where the method goes on training them
            named = learner.model.heads[t].named_parameters()
            tensors |= {f"head/{t}/{n}": p for n, p in named if trained is None or id(p) in trained}
        tensors |= {f"fit/{name}": t for name, t in resume.tensors.items()}
    return tensors


def input_shape(folder: Path) -> Any:
    """Return the shape of one input of a saved learner, so that its network can be built again without its data.

    Of several tensors, in their form: a tuple or a dict of shapes.
    """
    page = _read_page(folder)[0]
    with _describing(folder):
        there = [about for about in page["tasks"] if not about.get("released")]
        if all("kind" in about for about in there):
            return _shape(there[0]["kind"]) if there else None
        tensors = _read_tensors(folder, page["files"]["tasks"], [])
        return tuple(tensors["example"].shape[1:]) if "example" in tensors else None


def _shape(kind: Mapping[str, Any]) -> Any:
    if "parts" not in kind:
        return tuple(kind["shape"])
    parts = {name: _shape(part) for name, part in kind["parts"].items()}
    return tuple(parts.values()) if kind["form"] == "tuple" else parts


@contextmanager
def _describing(folder: Path) -> Iterator[None]:
    """Say in one line that a page lacks what it should hold."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise HatrackError(
            f"{folder / PAGE} does not describe a whole learner ({one_line(error)}); load an older save, or begin anew."
        ) from error


def of_run(folder: Path) -> tuple[dict[str, Any] | None, bool]:
    """Return what the page of a run's learner says of the run's files, None in version 0.1, and if it is intact."""
    page, intact = _read_page(folder)
    return page.get("run"), intact


def load(
    folder: str | Path,
    net: nn.Module,
    method: Method | str | None = None,
    optimizer: Any = None,
    device: str | torch.device = "auto",
    engine: str = "auto",
    *,
    scheduler: Scheduler | None = None,
    features: Any = None,
) -> Learner:
    """Return the learner saved in `folder`, over a network of the same architecture.

    The method is rebuilt from its stored settings unless given; one that came from a file or a module is named again,
    as method="PATH/file.py:Name", or given as an object. An optimiser other than the method's own cannot be stored as
    code: give the same callable again; so with a scheduler that has no name, and the same function where `features` was
    one.
    """
    return _load(Path(folder), net, method, optimizer, device, engine, scheduler, features=features)


def verify(
    folder: Path, net: nn.Module, device: str | torch.device = "auto", method: str | None = None
) -> proof.Verification:
    """Verify a saved learner, files included: a checkpoint that was edited by hand is found out."""
    tampered: list[str] = []
    try:
        verdict = _load(folder, net, method, None, device, "auto", None, tampered).verify()
    except Exception as error:  # what was edited may be good for anything
        if not tampered:
            raise
        verdict = proof.Verification((), (f"Nothing else can be compared: {one_line(error)}",))
    return replace(verdict, tampered=tuple(tampered))


@undisturbed()
def _load(
    folder: Path,
    net: nn.Module,
    method: Method | str | None,
    optimizer: Any,
    device: str | torch.device,
    engine: str,
    scheduler: Scheduler | None,
    tampered: list[str] | None = None,
    features: Any = None,
) -> Learner:
    """Return the learner; files that were changed are named in `tampered`, and refused where there is none."""
    page, intact = _read_page(folder)
    if not intact:
        _find(f"{PAGE} was changed after it was written (its SHA-256 differs from the one in it).", tampered)
    with _describing(folder):
        files = {kind: _read_tensors(folder, entry, tampered) for kind, entry in page["files"].items()}
        learner = _built(folder, page, files, net, method, optimizer, device, engine, scheduler, features)
        fit, names = page["fit"] or {"before": 0, "epoch": 0}, [task.name for task in learner.tasks]
        stored = _read_history(folder, tampered)
        learner._history = matched(stored, names, learner.finished, fit["before"] + fit["epoch"])
    return learner


def _built(
    folder: Path,
    page: dict[str, Any],
    files: dict[str, dict[str, Tensor]],
    net: nn.Module,
    method: Method | str | None,
    optimizer: Any,
    device: str | torch.device,
    engine: str,
    scheduler: Scheduler | None,
    features: Any,
) -> Learner:
    from hatrack.learn.learner import Learner

    done, live = files["tasks"], files["live"]
    if method is None or isinstance(method, str | Method):  # what else is given is refused below
        method = _method(folder, page, method)
    sizes = {key: page[key] for key in ("epochs", "batch_size", "precision", "seed")}
    features = _picked(folder, page.get("features"), features)
    stored = page.get("scheduler") or "patience"  # version 0.1 knew no other; a kind that is no name is a callable's
    chosen = scheduler if scheduler is not None else stored if stored in SCHEDULERS else "patience"
    more: dict[str, Any] = {"scheduler": chosen, "device": device, "engine": engine, "features": features}
    _narrow_again(net, page.get("growth"), done)
    learner = Learner(net, method, optimizer, **more, **sizes)
    learner.scheduled_with = learner.scheduled_with if scheduler is not None else stored
    model = learner.model
    model.answers = Precision(page.get("answers", page["precision"]), model.device)  # version 0.1 had one for both
    finished, going_on = page["finished"], len(page["tasks"]) > page["finished"]
    model.initial = {name: t.to(model.device) for name, t in _under(done, "initial/").items()}
    trained = model.parameters()

    def add(task: int, held: dict[str, Tensor]) -> None:
        about = page["tasks"][task]
        if about.get("released"):
            model.release(task)
            learner.tasks.append(Gone(about["name"]))
            return
        weight = held[f"head/{task}/weight"]
        target = restored(about["target"]) if "target" in about else Classification(about["classes"])
        head = new_head(weight.shape[1], weight.shape[0], model.device, target.units_axis)
        _fill(dict(head.named_parameters()), _under(held, f"head/{task}/"), f"head {task}")
        model.heads.append(head)
        model.targets.append(target)
        own = {n: p.to(model.device).requires_grad_(n in trained) for n, p in _under(held, f"private/{task}/").items()}
        model.private.append(own)
        inputs: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in about["inputs"].items()}
        kind = _kind(about, held, task)
        stored = {n: part.to(model.device) for n, part in _under(held, f"which/{task}/").items()}
        which = Statistics.restored(stored) if stored else None  # version 0.1 had none
        learner.tasks.append(Learned(about["name"], target, Inputs(**inputs), kind, which))

    def keep(older: Iterable[int], held: dict[str, Tensor]) -> None:
        for t in older:
            learner.versions[t] = versions[t]
            copies = {n: p.to(model.device) for n, p in _under(held, f"copy/{t}/").items()}
            model.copies |= {t: copies} if copies else {}

    versions = {int(old): new for old, new in page.get("versions", {}).items()}
    for t in range(finished):
        add(t, done)
    keep((t for t, new in versions.items() if new < finished), done)
    # A save of an earlier version has one environment for all.
    wheres = page["environments"] if "environments" in page else [page["environment"]] * page["finished"]
    others = (page.get(key) or [None] * len(wheres) for key in ("seals", "own_probes", "relied"))
    for t, (where, taken, digest, told) in enumerate(zip(wheres, *others, strict=True)):
        kept = {part: v.to(model.device) for part, v in _under(done, f"probe/{t}/").items()}
        given = None if digest is None else proof.Own(digest, kept["own"])
        known = None if told is None else relied.restored(told, done[relied.bits_of(t)])
        learner.probes.append(proof.Probe(kept["logits"], where, taken, given, kept.get("x"), known))
    learner.locked_values.values = {n: v.to(model.device) for n, v in _under(done, "vault/").items()}
    learner.locked_values.held = {n: v.to(model.device).bool() for n, v in _under(done, "held/").items()}
    learner.capacities = page["capacity"]
    learner.events = page.get("events", [])
    learner.trained_with = page.get("optimizer")
    model.corrected = list(page.get("corrected", []))
    _regrow(learner, page.get("growth"), _example(learner, done))
    if going_on:  # version 0.1 did not save the network of before the task in progress
        _fill(model.tensors(), _under(files.get("before", live), "net/"), "the network")
        model.example = _example(learner, done) if finished else None
        learner._before = Before(learner, _under(done, "method/"))
        for t in range(finished, len(page["tasks"])):
            add(t, live)
        keep((t for t, new in versions.items() if new >= finished), live)
        for t, head in enumerate(model.heads[:finished]):  # what the task has moved of old ones
            head.load_state_dict(_under(live, f"head/{t}/"), strict=False)
    _fill(model.tensors(), _under(live, "net/"), "the network")
    example = _example(learner, done)
    if example is not None:
        model.look(example)
    method.load_state(_under(done, "method/"), finished, model.device)
    if page["fit"] is not None:
        learner._resume = Resume(page["fit"], _under(live, "fit/"), files["best"])
    return learner


def _narrow_again(net: nn.Module, growth: dict[str, Any] | None, done: dict[str, Tensor]) -> None:
    """Give a network that is as wide as the saved one the width of its first task, of which it grows again."""
    if growth is None:
        return
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    first = {name: torch.Size(shape) for name, shape in growth["first"].items()}
    if all(name in tensors and tensors[name].shape == done[f"initial/{name}"].shape for name in first):
        resize(net, first)
        fill(net, {n: done[f"initial/{n}"][tuple(slice(k) for k in shape)].clone() for n, shape in first.items()})


def _regrow(learner: Learner, growth: dict[str, Any] | None, example: Any) -> None:
    """Widen the network as it was widened, step by step; what its tensors hold is filled in later."""
    model, wide = learner.model, learner.model.initial
    if growth is None:
        return
    model.initial = {name: tensor.detach().clone() for name, tensor in model.tensors().items()}
    model.observe(example)
    for told in growth["steps"]:
        step = Growth(**told)
        model.look(example)
        model.widen(Widening(model, 0).exactly(step.units), step.tasks)
        learner.growths.append(step)
    model.initial = wide
    for generation in model.generations:
        generation.model.initial = generation.taken(wide)


def _method(folder: Path, page: dict[str, Any], given: Method | str | None) -> Method:
    """Return the method that is given, else that of the page with its stored settings.

    Code outside of packages is that which the user has named.
    """
    code = page.get("code")
    recorded = next((word for word in (code or "").split()[:1] if ":" in word), page["method"])
    if given is None and ":" in recorded and recorded not in METHODS:
        raise HatrackError(
            f"its method is code, which is taken only where you name it ({said(code or '')}); give "
            f"hatrack.load(…, method={'PATH/' * ('.py:' in recorded) + recorded!r})."
        )
    name = METHODS.named(given) if isinstance(given, str) else recorded
    kind = type(given) if isinstance(given, Method) else METHODS.find(name)
    if kind.name != page["method"]:
        raise HatrackError(
            f"{folder} holds a learner of {page['method']}, got method={kind.name}; leave method= out, or give a "
            f"{page['method']} with settings of your own."
        )
    if isinstance(given, Method):
        return given
    METHODS.agree(name, code)
    return kind(**page["settings"])


def _picked(folder: Path, saved: Any, given: Any) -> Any:
    """Return what of the network's output are features: as given, else as saved."""
    if saved == OWN and not callable(given):
        raise HatrackError(
            f"{folder} holds a learner whose features come from a function, which is not stored; give the same one "
            f"again: hatrack.load(…, features=f)."
        )
    return saved if given is None else given


def _example(learner: Core, done: dict[str, Tensor]) -> Any:
    """Return what the unit map is traced with: version 0.1 kept a sample."""
    device = learner.model.device
    if "example" in done:
        return done["example"].to(device)
    there = learner.model.remaining
    return learner.tasks[there[0]].drawn(learner.seed, there[0], device, 1) if there else None


def _kind(about: dict[str, Any], held: dict[str, Tensor], t: int) -> kinds.Kind | kinds.Kinds:
    if "kind" in about:
        return kinds.restored(about["kind"], _under(held, f"kind/{t}/"))
    # Version 0.1 kept prepared samples: 64 of a finished task, one of the first.
    return kinds.of([held.get(f"probe/{t}/x", held["example"])], raw=False)


def _read_page(folder: Path) -> tuple[dict[str, Any], bool]:
    """Return what the page says, and whether it is as it was written."""
    path = folder / PAGE
    try:
        text = path.read_text()
        page: dict[str, Any] = json.loads(text)
    except FileNotFoundError:
        raise HatrackError(f"{folder} holds no saved learner (no {PAGE}).") from None
    except OSError as error:
        raise HatrackError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise HatrackError(f"{path} is not valid JSON ({one_line(error)}).") from None
    if not isinstance(page, dict) or not isinstance(page.get("files"), dict):
        raise HatrackError(f"{path} does not describe a saved learner; load an older save, or begin anew.")
    if page.get("schema") != SCHEMA:
        raise HatrackError(f"{path} has schema {page.get('schema')!r}; this version reads {SCHEMA}.")
    return page, _intact(text, page)


def _read_tensors(folder: Path, entry: dict[str, Any], tampered: list[str] | None) -> dict[str, Tensor]:
    path = folder / entry["name"]
    if not OURS.fullmatch(entry["name"]):  # the page may be anybody's, and this leave the folder
        raise HatrackError(f"{folder / PAGE} names a file that no learner is saved in ({said(entry['name'])}).")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise HatrackError(f"{path} is missing; the saved learner is incomplete.") from None
    except OSError as error:
        raise HatrackError(f"{path} cannot be read ({error.strerror}).") from None
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
        _find(finding, tampered)
    return tensors


def _read_history(folder: Path, tampered: list[str] | None) -> list[TaskHistory]:
    """Return what is known of earlier epochs and tests: nothing where the file is missing, or not as it was written."""
    path = folder / HISTORY
    if not path.exists():
        return []
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise HatrackError(f"{path} cannot be read ({one_line(error)}); remove it to go on without.") from None
    if not seal.intact(text.encode()):
        _find(f"{HISTORY} was changed after it was written (its SHA-256 differs from the one in it).", tampered)
        return []
    return loads(text)


def _find(finding: str, tampered: list[str] | None) -> None:
    """Refuse a file that was changed, or note it for the verdict."""
    if tampered is None:
        raise Edited(f"{finding} Run verify to see what drifted.")
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
