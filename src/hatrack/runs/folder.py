"""A run's folder: which file is where, how it comes into being, and the lock that keeps a second process out.

A folder appears under its name in one step with `spec.toml` already inside: it is made under a temporary name
beside it and renamed, which the system refuses where a run already stands. A run that is refused before anything was
learned takes its folder along, and the folders above that were made for it and are empty then.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from itertools import chain, count
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from hatrack import atomic
from hatrack.errors import HatrackError
from hatrack.learn.machine.parallel import require_joined

PAUSE = 0.02  # seconds between two tries at a lock


class InUse(HatrackError):
    """Another process works in the folder."""


class Folder:
    """A run's folder; where it holds the lock, this process alone may write in it until it closes or dies.

    `made`: just now, for this run; `stood`: in place of an empty folder; `above`: folders made too, inner first.
    """

    def __init__(
        self, path: Path, lock: int | None = None, made: bool = False, stood: bool = False, above: Iterable[Path] = ()
    ) -> None:
        self.path = path
        self.spec = path / "spec.toml"  # every resolved setting
        self.metrics = path / "metrics.jsonl"  # one line an epoch and one a finished task
        self.result = path / "result.json"  # the outcome; it exists only when the run is finished
        self.checkpoint = path / "checkpoint"  # what the learner saved after the last finished epoch
        self.masks = path / "masks.safetensors"  # of every finished task: gates, or which weights it uses
        self.report = path / "report.html"
        self._lock = lock
        self._made, self._stood, self._above = made, stood, above

    def close(self) -> None:
        """Let other processes in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made and isinstance(error, HatrackError) and self._untouched():
            for file in (self.spec, self.metrics, self.path / ".lock"):
                file.unlink(missing_ok=True)
            if not self._stood:
                with suppress(OSError):  # what else is in it is not ours
                    self.path.rmdir()
        self.close()
        # Also at a later exit than that of the refusal, when runs beside this one may be gone too.
        if not self.path.exists():
            _remove_empty(self._above)

    def _untouched(self) -> bool:
        """Whether nothing was learned: no epoch and no task stands behind the spec in metrics.jsonl."""
        if self.result.exists() or self.checkpoint.exists():
            return False
        return not self.metrics.exists() or len(self.metrics.read_bytes().splitlines()) <= 1


def create(spec: str, out: Path | None, name: str) -> Folder:
    """Make the folder `out` holding the text `spec`; without `out`, runs/<name>, then runs/<name>-2, -3, …"""
    require_joined()
    first = out if out is not None else Path("runs") / name
    with ExitStack() as undo:
        try:
            above = [folder for folder in first.parents if not folder.exists()]
            undo.callback(_remove_empty, above)
            first.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, RecursionError) as error:
            raise cannot(first, error) from None
        names = chain([first.name], (f"{first.name}-{number}" for number in count(2)))
        for path in [first] if out is not None else map(first.with_name, names):
            try:
                made = _make(path, spec, above)
            except FileExistsError:
                continue
            except OSError as error:
                raise cannot(path, error) from None
            undo.pop_all()
            return made
    raise HatrackError(
        f"{str(out)!r} already holds something; to go on with a run there: hatrack resume {out}; "
        f"otherwise choose another --out."
    )


def open_run(path: Path, patience: float = 0.0) -> Folder:
    """Open and lock the folder of an existing run; wait so many seconds for another process to leave it.

    One that was killed takes the processes that work for it along, but a moment later.
    """
    require(path)
    until = monotonic() + patience
    while True:
        try:
            folder = Folder(path, lock(path))
            break
        except InUse:
            if monotonic() >= until:
                raise
            sleep(PAUSE)
    for file in (folder.spec, folder.masks, folder.result, folder.report):
        atomic.clear(file)
    return folder


def require(path: Path) -> Path:
    """Return `path` if a run stands there, else raise."""
    if not path.is_dir():
        raise HatrackError(f"no run at {str(path)!r}: there is no such folder.{_nearby(path)}")
    if not (path / "spec.toml").is_file():
        raise HatrackError(f"no run at {str(path)!r}: the folder holds no spec.toml.{_nearby(path)}")
    return path


def cannot(path: Path, error: OSError | RecursionError, kind: str = "run") -> HatrackError:
    """Say why a folder cannot be made; Python takes no thousand folders within one another."""
    why = error.strerror if isinstance(error, OSError) else "too many folders within one another"
    return HatrackError(f"cannot make the {kind} folder {str(path)!r:.200}: {why}; choose another --out.")


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # something is in it
            folder.rmdir()


def _make(path: Path, spec: str, above: Iterable[Path]) -> Folder:
    if path.exists() and path.samefile(Path.cwd()):
        raise HatrackError(f"a run needs a folder of its own, got the current one ({str(path)!r}).")
    if path.is_symlink() or path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise FileExistsError(path)
    stood = path.is_dir()
    with atomic.draft(path, folder=True) as (draft, _), ExitStack() as undo:
        handle = lock(draft)
        undo.callback(os.close, handle)
        atomic.write(draft / "spec.toml", spec)
        try:
            os.rename(draft, path)  # which the system allows where nothing or an empty folder stands
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(path) from None
            raise
        atomic.flush(path.parent)
        undo.pop_all()
    return Folder(path, handle, made=True, stood=stood, above=above)


def lock(path: Path) -> int:
    """Keep other processes out of a folder until the handle that is returned is closed, or this process dies."""
    handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 32).decode(errors="replace").strip()
        os.close(handle)
        raise InUse(
            f"{str(path)!r} is in use by another hatrack process{f' (id {holder})' if holder else ''}; "
            f"wait for it or stop it first."
        ) from None
    os.ftruncate(handle, 0)
    with suppress(OSError):  # on a full disk the lock holds, only nobody can read whose it is
        os.write(handle, f"{os.getpid()}\n".encode())
    return handle


@contextmanager
def held(path: Path, kind: str, *inside: str) -> Iterator[None]:
    """Make a study's or a search's folder (and one in it), if need be, and keep other processes out of it."""
    try:
        path.joinpath(*inside).mkdir(parents=True, exist_ok=True)
    except (OSError, RecursionError) as error:
        raise cannot(path, error, kind) from None
    handle = lock(path)
    try:
        yield
    finally:
        os.close(handle)


def _nearby(path: Path) -> str:
    """Name the run whose path is nearest, if there is one."""
    try:
        runs = sorted(p.name for p in path.parent.iterdir() if (p / "spec.toml").is_file())
    except OSError:
        return ""
    near = get_close_matches(path.name, runs, n=1, cutoff=0.4)
    return f" Did you mean {str(path.parent / near[0])!r}?" if near else ""
