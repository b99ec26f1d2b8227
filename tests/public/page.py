"""Outcomes in words: a line each, counts, and the page docs/results/networks.md."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version

from hatrack.learn.processor import processor

from .catalogue import NETS, PACKAGES
from .trial import NOISE, OK, REFUSED, Outcome

REASONS = 2  # of what froze parts of a network: how many the table shows


def unexpected(outcome: Outcome) -> bool:
    """Whether a network did not end as it should: through, or refused for the reason that is written beside it."""
    return outcome.outcome != (REFUSED if NETS[outcome.name].refused else OK)


def line(outcome: Outcome) -> str:
    """Return one line for the terminal."""
    figures = f"{outcome.units:6,} units  frozen {outcome.frozen:.3f}  used {outcome.used:.2f}" if outcome.units else ""
    return f"{outcome.outcome:8} {outcome.name:45} {outcome.seconds:5.1f} s  {figures}  {outcome.line}".rstrip()


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the counts, and whatever did not end as it should."""
    bad = [line(outcome) for outcome in outcomes if unexpected(outcome)]
    return "\n".join([_counts(outcomes), *(["not as it should be:", *bad] if bad else [])])


def made() -> str:
    """Say by what, with what and where outcomes are made."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    versions = [f"{package} {version(package)}" for package in ("torch", *PACKAGES) if package != "by-hand"]
    return (
        f"Made by `make test-public` at commit {done.stdout.strip() or 'unknown'} with {', '.join(versions)}, on "
        f"{os.cpu_count()} cores of {processor()}, a process and a thread for each network."
    )


def markdown(outcomes: Sequence[Outcome], made: str) -> str:
    """Return the page."""
    through = [o for o in outcomes if o.outcome == OK]
    free = sum(o.frozen == 0 for o in through)
    little = sum(0 < o.frozen <= 0.1 for o in through)
    lines = [
        "# The guarantee, on networks that nobody here wrote",
        "",
        made,
        "",
        "Each network is explained, and learns two tasks of random samples with HAT, AdamW and weight decay, a third "
        "of its units closed, others in each task. The first task's logits are compared bit by bit; then noise of "
        f"standard deviation {NOISE:g} goes into every entry that the first task does not use, the second task's own "
        "and its head among them; and the logits are compared again. Networks are narrow and shallow, but whole in "
        "structure, with random weights.",
        "",
        f"{_counts(outcomes)}. Of those that went through, {free} have nothing frozen, {little} a tenth at most, "
        f"{len(through) - free - little} more.",
        "",
        "Frozen: the share of the shared parameters' trained entries that stay as the first task leaves them, whatever "
        "its gates. Used: the share that the first task used, of which a third of the units is closed.",
        "",
        "| network | outcome | parameters | units | frozen | used | what is frozen or refused, and why | s |",
        "|---|---|---:|---:|---:|---:|---|---:|",
        *map(_row, outcomes),
        "",
    ]
    return "\n".join(lines)


def _counts(outcomes: Sequence[Outcome]) -> str:
    counted = Counter(outcome.outcome for outcome in outcomes)
    return f"{len(outcomes)} networks: {', '.join(f'{count} {kind}' for kind, count in counted.most_common())}"


def _row(o: Outcome) -> str:
    why = _frozen(o.frozen_by) if o.outcome == OK else o.line
    if o.outcome == REFUSED and NETS[o.name].refused:
        why += f" ({NETS[o.name].refused})"
    figures = [f"{o.parameters:,}", f"{o.units:,}", f"{o.frozen:.3f}", f"{o.used:.2f}"]
    cells = [o.name, o.outcome, *(figures if o.units else ["–"] * 4), why.replace("|", "\\|"), f"{o.seconds:.0f}"]
    return f"| {' | '.join(cells)} |"


def _frozen(frozen_by: dict[str, str]) -> str:
    """Name the commonest reasons, each with one parameter that it froze and how many more."""
    reasons: dict[str, list[str]] = {}
    for name, text in frozen_by.items():
        reasons.setdefault(text.partition(": ")[2], []).append(name)
    said = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
        for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    rest = [f"{len(said) - REASONS} more reasons"] if len(said) > REASONS else []
    return "; ".join(said[:REASONS] + rest)
