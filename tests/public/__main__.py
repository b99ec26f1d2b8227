"""Put networks through their trial; exit 1 where one did not end as it should."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from . import page
from .apart import put_through
from .catalogue import NETS
from .trial import trial

LIMIT = 120


def main() -> int:
    """Parse, run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m public", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; without any, every network")
    parser.add_argument("--exactly", metavar="NAME", help="one network, in this process, with all that it prints")
    parser.add_argument("--list", action="store_true", help="print the names, run nothing")
    parser.add_argument("--workers", type=int, default=2, help="networks at a time")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds of processor time for a network")
    parser.add_argument("--lines", type=Path, help="append each outcome to this file, as a line of JSON")
    parser.add_argument("--page", type=Path, help="write the table in Markdown to this file")
    given = parser.parse_args()
    if given.exactly:
        outcome = trial(given.exactly, NETS[given.exactly])
        print(outcome.traceback, page.line(outcome), *outcome.notes, sep="\n")
        return int(page.unexpected(outcome))
    names = [n for n in NETS if not given.names or any(part in n for part in given.names)]
    if not names:
        parser.error(f"no network's name has {' or '.join(given.names)} in it; --list prints all")
    if given.list:
        print(*names, sep="\n")
        return 0
    outcomes = {}
    for outcome in put_through(names, given.workers, given.limit):
        outcomes[outcome.name] = outcome
        print(page.line(outcome), flush=True)
        if given.lines:
            with given.lines.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
    ordered = [outcomes[name] for name in names]
    print("", page.summary(ordered), sep="\n")
    if given.page:
        given.page.write_text(page.markdown(ordered, page.made()))
    return int(any(page.unexpected(outcome) for outcome in ordered))


if __name__ == "__main__":
    sys.exit(main())
