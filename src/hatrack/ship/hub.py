"""A learner on the Hugging Face Hub: what `learner.save` writes, and beside it what tells others what it is.

    learner.json, history.json, *.safetensors   see learn/state.py; of a repository these alone are fetched
    masks.safetensors                           gates of units, or which weights tasks use
    certificate.json                            where the method makes a promise and kept it
    README.md                                   the model card

A push is one commit, so that no repository holds half a learner; what an earlier push left there goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save as serialise

from hatrack import atomic
from hatrack.errors import HatrackError, one_line
from hatrack.learn.state import HISTORY, PAGE
from hatrack.processes import several
from hatrack.ship.aside import saved_aside
from hatrack.ship.certificate.certify import certify
from hatrack.ship.certificate.check_hatrack import Problem
from hatrack.ship.model_card import model_card

if TYPE_CHECKING:
    from hatrack.learn.core import Core

LEARNER = [PAGE, HISTORY, *(f"{kind}-*.safetensors" for kind in ("tasks", "live", "before", "best"))]
MASKS, CERTIFICATE, CARD = "masks.safetensors", "certificate.json", "README.md"
ACCESS = "log in with `hf auth login`, or give token=…"


def push(
    core: Core,
    repo_id: str,
    private: bool | None,
    token: str | bool | None,
    revision: str | None,
    commit_message: str | None,
    license: str | None,
) -> str:
    """Upload a learner as one commit, to a repository that is made where there is none; return the commit's address."""
    hub, tasks = _hub(), len(core._numbers())
    if several():
        raise HatrackError("a learner is pushed by one process; save it, and push what is loaded without torchrun.")
    if not tasks:
        raise HatrackError("the learner has no finished task, so there is nothing to push; let it learn one first.")
    if core.method.keeps_samples:
        raise HatrackError(
            f"{core.method.name} keeps samples of its tasks in what is saved, and none are pushed; save the learner to "
            f"a folder, and upload that yourself if everybody may see them."
        )
    with ExitStack() as kept:
        with core.model.turn:  # of one moment, and held no longer than that
            folder = kept.enter_context(saved_aside(core))
            _describe(core, folder, repo_id, license)
        api = hub.HfApi(token=token, library_name="hatrack")
        kept.enter_context(_asking(repo_id, revision))
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if private and not api.model_info(repo_id).private:  # it was there, and stays as it was
            raise HatrackError(f"{repo_id!r} is there already, and public; make it private, or push to another.")
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        files = {path.name: path for path in sorted(folder.iterdir())}
        there = set(api.list_repo_files(repo_id, revision=revision)) - files.keys()
        older = sorted(name for name in there if any(fnmatch(name, ours) for ours in (*LEARNER, MASKS, CERTIFICATE)))
        done = api.create_commit(
            repo_id,
            [hub.CommitOperationDelete(name) for name in older]
            + [hub.CommitOperationAdd(name, path) for name, path in files.items()],
            commit_message=commit_message or f"A learner of {tasks} task{'s' * (tasks > 1)}",
            revision=revision,
        )
        return str(done.commit_url)


def fetched(repo_or_folder: str | Path, revision: str | None, token: str | bool | None) -> Path:
    """Return the folder of a saved learner: the one given, or a copy of what a repository holds of one."""
    if isinstance(repo_or_folder, Path) or Path(repo_or_folder).is_dir():
        if revision is not None:
            raise HatrackError(f"{str(repo_or_folder)!r} is a folder, and has no revision {revision!r}; leave it out.")
        return Path(repo_or_folder)
    hub = _hub()
    with _asking(repo_or_folder, revision):
        copy = hub.snapshot_download(
            repo_or_folder, revision=revision, token=token, allow_patterns=LEARNER, library_name="hatrack"
        )
    if not (Path(copy) / PAGE).exists():
        raise HatrackError(f"repository {repo_or_folder!r} holds no learner (no {PAGE}); name one that was pushed.")
    return Path(copy)


def _describe(core: Core, folder: Path, repo_id: str, license: str | None) -> None:
    """Put masks, certificate and card beside what was saved."""
    masks = core.masks() or core.weight_masks()
    if masks:
        atomic.write(folder / MASKS, serialise(masks))
    why = None
    if core.method.promises():
        try:
            certify(core, folder / CERTIFICATE, None, None, None)
        except HatrackError as error:
            why = str(error)
        except Problem:  # which names a folder of this machine
            why = "the checker cannot tell from what is saved which entries each task uses."
    atomic.write(folder / CARD, model_card(core, repo_id, license, bool(masks), why))


def _hub() -> Any:
    try:
        return import_module("huggingface_hub")
    except ImportError:
        raise HatrackError(
            "the Hugging Face Hub needs a package that is not installed: pip install 'hatrack[hub]'; folders need none."
        ) from None


@contextmanager
def _asking(repo_id: str, revision: str | None) -> Iterator[None]:
    """Say in one line what the Hub, or the way there, had against it."""
    try:
        yield
    except HatrackError:
        raise
    except Exception as error:  # the hub's errors share no base class: network, permission, names
        raise HatrackError(_reason(error, repo_id, revision)) from error


def _reason(error: Exception, repo_id: str, revision: str | None) -> str:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "GatedRepoError" in kinds:
        return f"repository {repo_id!r} is gated; ask for access on its page, then {ACCESS}."
    if "RepositoryNotFoundError" in kinds:
        return f"there is no repository {repo_id!r}, or it is private; check the name, {ACCESS}."
    if "RevisionNotFoundError" in kinds:
        return f"repository {repo_id!r} has no revision {revision!r}; give a branch, a tag or a commit of it."
    if "HFValidationError" in kinds:
        return (
            f"{repo_id!r} is neither a folder nor the name of a repository ({one_line(error):.120}); give owner/name."
        )
    if status in (401, 403):
        return f"the Hub gives no permission for {repo_id!r} ({status}); {ACCESS}, one that may do this."
    if status is not None:
        return f"the Hub refuses what was asked of {repo_id!r} ({one_line(error):.300})."
    return f"the Hub could not be asked for {repo_id!r} ({one_line(error):.200}); try again when it can be reached."
