"""Two folders byte for byte: every file that is there, but for the fields in one table, each with its reason."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

Mask = Callable[[bytes], bytes]


def pattern(regex: bytes) -> Mask:
    """Blank what a pattern finds; where it has groups, only the last one's text."""
    compiled = re.compile(regex)

    def blank(content: bytes) -> bytes:
        return compiled.sub(rb"\g<1>-" if compiled.groups else b"-", content)

    return blank


def columns(*names: str) -> Mask:
    """Blank columns of a CSV table."""

    def blank(content: bytes) -> bytes:
        lines = list(csv.DictReader(io.StringIO(content.decode())))
        return json.dumps([{key: None if key in names else v for key, v in line.items()} for line in lines]).encode()

    return blank


def finished_trials(content: bytes) -> bytes:
    """Return what a journal of Optuna's says of the trials that did not fail, in their order."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "journal.log"
        file.write_bytes(content)
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(file)))
        trials = optuna.load_study(study_name=None, storage=storage).get_trials()
    return json.dumps(
        [[t.state.name, t.values, t.params, t.intermediate_values] for t in trials if t.state.name != "FAIL"]
    ).encode()


def without_failed_trials(content: bytes) -> bytes:
    """Return trials.csv without the trials that were killed, and without the numbers that those took up."""
    lines = csv.DictReader(io.StringIO(content.decode()))
    return json.dumps([line | {"number": None} for line in lines if line["state"] != "fail"]).encode()


TIMES = rb'("(?:seconds|memory)": )[0-9.e+-]+'
SHOWN = (
    rb'(<(?:div class="value"|td class="number")>)(?:[0-9.]+ (?:s|min)|\d+ min \d\d s|\d+ h \d\d min|[0-9.]+ .iB)(?=<)'
)

MAY_DIFFER: Sequence[tuple[str, Mask, str]] = (
    ("*.lock", lambda content: b"", "the id of the process that held the lock last"),
    ("*metrics.jsonl", pattern(TIMES), "how long it took, the peak of memory"),
    ("*metrics.jsonl", pattern(rb'(?m)(, "sha256": )"[0-9a-f]{64}"(?=}$)'), "the seal of a line, times included"),
    ("*result.json", pattern(TIMES), "how long it took, the peak of memory"),
    ("*result.json", pattern(rb'(\n  "sha256": )"[0-9a-f]{64}"'), "the seal of the page, times included"),
    ("*result.json", pattern(rb'("metrics\.jsonl": )"[0-9a-f]{64}"'), "the digest of a file with times"),
    ("*learner.json", pattern(rb'("digest": )"[0-9a-f]{64}"'), "the digest of the same file"),
    ("*learner.json", pattern(rb'(\n "sha256": )"[0-9a-f]{64}"'), "the seal of the page, that digest included"),
    ("*report.html", pattern(SHOWN), "time and memory, as the pages of runs and studies show them"),
    ("*runs.csv", columns("seconds", "minutes", "memory"), "time and memory, in a study's list of runs"),
    ("*decoded/*/record.json", pattern(rb'(npy": \[\s*\d+,\s*)\d+'), "the time of change of the decoded arrays"),
    ("*journal.log", finished_trials, "a killed trial stays in the journal as failed, beside times and process ids"),
    ("*trials.csv", without_failed_trials, "the same killed trials, and the numbers they took up"),
    ("*best-*.toml", pattern(rb"(: trial )\d+ of \d+"), "the same numbers"),
)
"""Which files may differ, in what, and why; all else, and every file not named here, is compared as it is."""


@dataclass
class Differences:
    """What came out of a comparison: nothing, if all is well."""

    different: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.different or self.missing or self.left)

    def lines(self) -> list[str]:
        """Say all of it, a line each."""
        named = {"differs": self.different, "is missing": self.missing, "was left behind": self.left}
        return [f"{path} {what}" for what, paths in named.items() for path in paths]


Content = Mapping[str, bytes | None]


def read(folder: Path) -> Content:
    """Return all that lies below a folder: files with their content, links with their target, folders with None."""

    def content(path: Path) -> bytes | None:
        if path.is_symlink():
            return b"-> " + bytes(path.readlink())
        return None if path.is_dir() else path.read_bytes()

    return {str(path.relative_to(folder)): content(path) for path in sorted(folder.rglob("*"))}


def compare(reference: Content, found: Content, strict: bool = False) -> Differences:
    """Compare what was found with the reference; `strict`: nothing may differ but the lock's content."""
    table = MAY_DIFFER[:1] if strict else MAY_DIFFER

    def masked(path: str, content: bytes | None) -> bytes | None:
        for files, mask, _ in table:
            if content is not None and fnmatch(path, files):
                with suppress(ValueError, KeyError):  # not what a mask is for, so it is compared as it is
                    content = mask(content)
        return content

    shared = [path for path in reference if path in found]
    return Differences(
        [p for p in shared if reference[p] != found[p] and masked(p, reference[p]) != masked(p, found[p])],
        [path for path in reference if path not in found],
        [path for path in found if path not in reference],
    )
