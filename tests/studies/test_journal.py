"""The journal of a search: what a killed process leaves in it is taken away, what is not Optuna's is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hatrack.errors import HatrackError
from hatrack.studies.journal import mend

WHOLE = b'{"op_code":0}\n{"op_code":4}\n'


@pytest.mark.parametrize("piece", [b"", b'{"op_code":5,"tri', b"\xc3"])
def test_the_beginning_of_a_line_is_taken_away(tmp_path: Path, piece: bytes) -> None:
    journal = tmp_path / "journal.log"
    journal.write_bytes(WHOLE + piece)
    mend(journal)
    assert journal.read_bytes() == WHOLE


def test_the_lock_of_a_killed_process_is_taken_away(tmp_path: Path) -> None:
    # As Optuna makes it, which leads nowhere when the path was relative; and as it renames it to give it up.
    for name in ("journal.log.lock", "journal.log.lock0a1b-2c3d.rename"):
        (tmp_path / name).symlink_to("t/journal.log")
    mend(tmp_path / "journal.log")
    assert list(tmp_path.iterdir()) == []  # a journal that is not there yet is Optuna's to make


@pytest.mark.parametrize("junk", [b"junk", b"", b"\xff\xfe", b"[1]", b"{}", b'{"op_code":5,"tri'])
def test_a_line_that_is_not_a_record_is_named(tmp_path: Path, junk: bytes) -> None:
    journal = tmp_path / "journal.log"
    journal.write_bytes(WHOLE + junk + b"\n" + WHOLE)
    with pytest.raises(HatrackError, match=re.escape(f"{journal}, line 3, is not a record of Optuna's")):
        mend(journal)
