"""pytest --hatrack-certificate certificate.json --hatrack-model DIR: a test a task, which fails when the task moved.

DIR is a saved learner, a run, a newer certificate or a folder of exports, as check_hatrack.py takes them; --hatrack-key
names the public key that must have signed. Nothing heavy is imported before such a test is asked for.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest


class Moved(Exception):
    """A task is not what its certificate says."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer what says what is to be checked."""
    group = parser.getgroup("hatrack")
    group.addoption("--hatrack-certificate", metavar="FILE", type=Path, help="check tasks against this certificate")
    group.addoption("--hatrack-model", metavar="DIR", type=Path, help="the saved learner, run or exports to check")
    group.addoption(
        "--hatrack-key", metavar="KEY", help="the public key of the certificate: hexadecimal, or a PEM file"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse half of what is needed."""
    given = [name for name in ("certificate", "model") if config.getoption(f"--hatrack-{name}")]
    if len(given) == 1:
        raise pytest.UsageError("--hatrack-certificate and --hatrack-model go together; give both.")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for every task of the certificate."""
    path = config.getoption("--hatrack-certificate")
    if path is not None:
        try:
            names = [str(task["name"]) for task in json.loads(path.read_text())["tasks"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise pytest.UsageError(f"{path} cannot be read as a certificate ({error}).") from None
        given = path, config.getoption("--hatrack-model"), config.getoption("--hatrack-key")
        items += [Certified.from_parent(session, name=f"hatrack[{name}]", task=name, given=given) for name in names]


class Certified(pytest.Item):
    """Whether one task is what its certificate says."""

    def __init__(self, *, task: str, given: tuple[Path, Path, str | None], **others: Any) -> None:
        super().__init__(**others)
        self.task, self.given = task, given

    def runtest(self) -> None:
        """Compare all tasks, once, and look at this one."""
        found = _compared(*self.given)
        if self.task not in found:
            pytest.skip("the certificate names no export of it")
        odd = found[self.task]
        if odd is None:
            raise Moved(f"{self.task}: gone from {self.given[1]}")
        if odd:
            raise Moved(f"{self.task}: changed: {', '.join(odd)}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Say in one line what moved, or why nothing could be compared."""
        from hatrack.ship.certificate.check_hatrack import Problem

        error = excinfo.value
        return str(error.args[0]) if isinstance(error, Moved | Problem) else f"{type(error).__name__}: {error}"

    def reportinfo(self) -> tuple[Path, None, str]:
        """Name the certificate as the place of the test."""
        return self.given[0], None, self.name


@cache
def _compared(certificate: Path, model: Path, key: str | None) -> dict[str, list[str] | None]:
    from hatrack.ship.certificate.check_hatrack import compare

    return compare(certificate, model, key)
