"""Open tables of names: hatrack's own, those that installed packages offer, and code that the user names.

    hat                     hatrack's own
    theirs                  an entry point of an installed package, in the group hatrack.methods (nets, benchmarks)
    package.module:Name     whatever can be imported
    path/to/file.py:Name    a file that stands by itself

Modules and files are loaded by `named` alone, which takes the word of the user. Everything else, what is read from a
folder above all, finds them only once they have been named: nothing is imported because a file says so.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from inspect import isclass, isfunction
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from hatrack.errors import HatrackError, HatrackWarning, one_line, unknown

T = TypeVar("T")


class _Foreign(NamedTuple):
    """What is not hatrack's own."""

    thing: Any
    code: str  # what is recorded: name and digest of a file, or a package and its version
    reference: str  # what another process on this machine finds it by


class Registry(Mapping[str, T]):
    """Names and what they stand for; iterating shows hatrack's own and what installed packages offer.

    `check(thing, name, where)` returns what fits the kind, or raises one line that begins with `where`.
    """

    def __init__(self, kind: str, own: Mapping[str, T], check: Callable[[Any, str, str], T]) -> None:
        self.kind, self.own, self._check = kind, dict(own), check
        self._named: dict[str, _Foreign] = {}
        self._codes: dict[int, _Foreign] = {}  # by the thing's identity, also of what was named anew since

    def __getitem__(self, name: str) -> T:
        if name in self.own:
            return self.own[name]
        found = self._named.get(name) or self._loaded(name)
        thing: T = found.thing
        return thing

    def __iter__(self) -> Iterator[str]:
        return iter([*self.own, *self._offered()])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._named or name in self._offered()

    def find(self, name: str) -> T:
        """Return what a name stands for; one that does not exist is one clear line."""
        if name not in self:
            if ":" in name:
                raise HatrackError(f"{self.kind} {name!r} is code, which is taken only where a user names it.")
            raise unknown(self.kind, name, self)
        return self[name]

    def named(self, reference: str, home: Path | None = None) -> str:
        """Take the word of the user: load what a reference names, and return the name it has here from now on.

        That is the reference without its folders; files are looked for from `home`, else from the current folder.
        """
        if ":" in reference:
            return self._taken(reference, home or Path())
        self._offered()  # says what is not used since hatrack's own name wins
        self.find(reference)
        return reference

    def code(self, name: str) -> str | None:
        """Return what is to be recorded of the code behind a name; None for hatrack's own."""
        if name in self.own or name not in self:
            return None
        self[name]  # what a package offers is loaded, for it may not fit
        return self._named[name].code

    def code_of(self, thing: Any) -> str | None:
        """Return the same of what was found under a name."""
        return self._codes[id(thing)].code if id(thing) in self._codes else None

    def reference(self, name: str) -> str:
        """Return what `named` finds a name's code by, in another process and from any folder."""
        return self._named[name].reference

    def agree(self, name: str, code: str | None) -> None:
        """Refuse code that is not what was recorded; another version of an installed package is only said."""
        here = self.code(name)
        if code in (None, here):
            return
        assert code is not None
        if name not in self:
            raise HatrackError(f"{self.kind} {name!r} is needed as {said(code)} offers it, which is not installed.")
        if here is None or "sha256:" in code + here or code.rpartition(" ")[0] != here.rpartition(" ")[0]:
            now = said(here or "hatrack's own")
            raise HatrackError(
                f"{self.kind} {name!r} was {said(code)} and is {now} now; give the code as it was, or begin anew."
            )
        warnings.warn(f"{self.kind} {name!r} was {code} and is {here} now.", HatrackWarning, stacklevel=2)

    def _offered(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=f"hatrack.{self.kind}s"):
            found.setdefault(point.name, []).append(point)
        for name in found.keys() & self.own.keys():
            line = f"{_package(found.pop(name)[0])} offers {self.kind} {name!r}; hatrack's own of that name is used."
            warnings.warn(line, HatrackWarning, stacklevel=3)
        return found

    def _loaded(self, name: str) -> _Foreign:
        """Load what an installed package offers."""
        points = self._offered()[name]
        if len(points) > 1:
            packages = " and ".join(map(_package, points))
            raise HatrackError(f"{packages} offer {self.kind} {name!r}; name it as package.module:Name.")
        where = f"{self.kind} {name!r} of {_package(points[0])}"
        try:
            thing = points[0].load()
        except (Exception, SystemExit) as error:
            raise _failed(where, error) from error
        return self._kept(name, _Foreign(self._check(thing, name, where), _package(points[0]), name))

    def _taken(self, reference: str, home: Path) -> str:
        place, _, attribute = reference.rpartition(":")
        if not place or not all(part.isidentifier() for part in attribute.split(".")):
            raise HatrackError(
                f"{self.kind} {reference!r} is not understood; give a name (hatrack list {self.kind}s), "
                f"package.module:Name or file.py:Name."
            )
        if place.endswith(".py"):
            path = (home / Path(place).expanduser()).absolute()
            module, digest = _run(path)
            name, full = f"{path.name}:{attribute}", f"{path}:{attribute}"
        else:
            try:
                module, digest = import_module(place), ""
            except (Exception, SystemExit) as error:
                raise _failed(place, error, "; a file is named with its .py, as file.py:Name") from error
            name = full = reference
        try:
            thing = attrgetter(attribute)(module)
        except AttributeError:
            defined = [key for key, value in vars(module).items() if _home(value) == module.__name__]
            raise unknown(f"name in {place}:", attribute, defined) from None
        for own, what in self.own.items():
            if thing is what:
                return own
        fit = self._check(thing, name, reference)
        code = f"{name} {f'sha256:{digest}' if digest else _origin(reference, thing, module)}"
        before = self._named.get(name)
        if before is not None and before.code != code and before.reference != full:
            raise HatrackError(
                f"{before.reference!r} and {full!r} are different code of one name; give one of the files another name."
            )
        self._kept(name, _Foreign(fit, code, full))
        return name

    def _kept(self, name: str, found: _Foreign) -> _Foreign:
        self._named[name] = self._codes[id(found.thing)] = found
        return found


def short(name: str) -> str:
    """Return a name as folders and tables have it: of file.py:Name the last part."""
    return name.rpartition(":")[2]


def said(code: str) -> str:
    """Return recorded code for reading: of a digest its beginning."""
    before, mark, digest = code.partition("sha256:")
    return f"{before}{mark}{digest[:12]}"


def _run(path: Path) -> tuple[ModuleType, str]:
    """Return a file's module and the digest of the very bytes that were run."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise HatrackError(f"{str(path)!r} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    name = f"_{path.stem}_{sha256(os.fsencode(path) + data).hexdigest()[:12]}"
    if name not in sys.modules:
        module = sys.modules[name] = ModuleType(name)  # where dataclasses look up annotations
        module.__file__ = str(path)
        try:
            exec(compile(data, str(path), "exec", dont_inherit=True), vars(module))
        except BaseException as error:
            del sys.modules[name]
            if not isinstance(error, Exception | SystemExit):
                raise
            lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
            raise _failed(str(path), error, f", line {lines[-1]}" if lines else "") from error
    return sys.modules[name], sha256(data).hexdigest()


def _failed(what: str, error: BaseException, more: str = "") -> HatrackError:
    return HatrackError(f"{what} cannot be imported ({type(error).__name__}: {one_line(error)}{more}).")


def _home(thing: Any) -> str | None:
    """Return the name of the module in which a class or function is defined."""
    return str(thing.__module__) if isclass(thing) or isfunction(thing) else None


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed package"


def _origin(reference: str, thing: Any, module: ModuleType) -> str:
    """Return the package and version that something imported belongs to, else the digest of its file."""
    file = getattr(sys.modules.get(_home(thing) or "", module), "__file__", None)
    if file is None:
        raise HatrackError(f"{reference} stands in no file by which it could be known again; put it into one.")
    try:
        package = distribution(module.__name__.partition(".")[0])
        if Path(file).is_relative_to(str(package.locate_file(""))):  # not one that is installed to be edited
            return f"{package.name} {package.version}"
    except PackageNotFoundError:
        pass
    return f"sha256:{sha256(Path(file).read_bytes()).hexdigest()}"
