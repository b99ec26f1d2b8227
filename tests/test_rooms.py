"""Who imports whom: CONTRIBUTING's table of rooms, read and held."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# learner.report(folder), cut_out, export, certify, push_to_hub, adopt, release, update, revert: loaded when called
FORWARD = {
    "learn/learner.py imports runs", "learn/learner.py imports life", "learn/learner.py imports ship",
    "learn/core.py imports ship", "learn/core.py imports life",
    "learn/hats.py imports ship", "learn/hats.py imports life",
}  # fmt: skip
CLONE = Path(__file__).resolve().parents[1]
SOURCE = CLONE / "src" / "hatrack"


def rows() -> list[tuple[set[str], set[str]]]:
    """Return the table: the rooms (or single files) of each row, and those it may know."""
    lines = (CLONE / "CONTRIBUTING.md").read_text().split("| room |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[set(re.findall(r"`([\w.]+)/?`", cell)) for cell in line.split("|")[1:4]] for line in lines]
    return [({name.removesuffix(".py") for name in names}, known) for names, _, known in cells]


def allowed() -> dict[str, set[str]]:
    """Return all that each room may know: itself, the first row, what its row names, and what these may know."""
    (ground, _), *others = rows()
    table = dict.fromkeys(ground, ground)
    for rooms, known in others:  # in order: a row names rooms of earlier rows only
        reached = rooms | ground | known | {far for room in known for far in table[room]}
        table |= dict.fromkeys(rooms, reached)
    return table


def imports(file: Path) -> Iterator[str]:
    """Yield the rooms of hatrack that a file imports from, wherever in it; the version is everybody's."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide where they lead"
            names = [
                f"{node.module}.{a.name}" for a in node.names if (node.module, a.name) != ("hatrack", "__version__")
            ]
        else:
            continue
        for package, *path in (name.split(".") for name in names):
            if package == "hatrack" and path != ["__version__"]:
                yield path[0] if path else "__init__"


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_file_is_in_a_row() -> None:
    listed = [room for rooms, _ in rows() for room in rooms]
    assert sorted(listed) == sorted({room_of(file) for file in SOURCE.rglob("*.py")})


def test_no_room_knows_more_than_the_table_says() -> None:
    may = allowed()
    wrong = {
        f"{file.relative_to(SOURCE)} imports {room}"
        for file in SOURCE.rglob("*.py")
        for room in imports(file)
        if room not in may[room_of(file)]
    }
    assert wrong == FORWARD


def test_the_table_is_read() -> None:
    may = allowed()
    assert "errors" in may["data"]
    assert "report" not in may["learn"]
    assert {"data", "masks", "learn", "report"} <= may["studies"]
    assert "runs" not in may["report"]
