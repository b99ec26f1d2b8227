"""metrics.jsonl keeps its order and its bytes, however often a run is cut off and goes on."""

from __future__ import annotations

import json
import math
import re
from hashlib import sha256
from pathlib import Path

import pytest

from hatrack.errors import Edited, HatrackError
from hatrack.runs.records import Records


def done(task: int) -> dict[str, object]:
    return {"name": f"t{task}", "accuracy": [0.5] * (task + 1), "seconds": 2.0}


def write_run(path: Path, places: list[tuple[int, float]]) -> None:
    records = Records(path)
    records.start({"seed": 0})
    for task, epoch in places:
        fields = {"task": task, "epoch": epoch, "loss": task + epoch / 10, "seconds": 1.0}
        records.task(task, done(task)) if epoch == math.inf else records.epoch(fields)
    records.close()


WHOLE = [(0, 1), (0, 2), (0, math.inf), (1, 1), (1, 2), (1, 3), (1, math.inf)]


def test_lines_by_hand(tmp_path: Path) -> None:
    write_run(tmp_path / "m", [(0, 1), (0, math.inf)])
    expected, before = [], ""
    for line in (
        '{"event": "spec", "spec": {"seed": 0}, "seconds": 0.0, "sha256": "%s"}',
        '{"event": "epoch", "task": 0, "epoch": 1, "loss": 0.1, "seconds": 1.0, "sha256": "%s"}',
        '{"event": "task", "task": 0, "name": "t0", "accuracy": [0.5], "seconds": 2.0, "sha256": "%s"}',
    ):
        before = sha256((before + line % "" + "\n").encode()).hexdigest()
        expected.append(line % before)
    assert (tmp_path / "m").read_text().splitlines() == expected


def test_another_device_is_no_other_run(tmp_path: Path) -> None:
    spec = {"seed": 0, "device": "cuda", "engine": "graph"}
    for device in ("cuda", "cuda:0", "cpu"):
        records = Records(tmp_path / "m")
        records.start(spec | {"device": device, "engine": "eager"})
        records.close()
    records = Records(tmp_path / "m")
    with pytest.raises(HatrackError, match=r"was changed after the run had started \(seed\)"):
        records.start(spec | {"seed": 1})
    records.close()


@pytest.mark.parametrize("cut", range(len(WHOLE) + 1))
@pytest.mark.parametrize("again", range(len(WHOLE) + 1))
def test_going_on_from_any_place_gives_the_same_bytes(tmp_path: Path, cut: int, again: int) -> None:
    write_run(tmp_path / "whole", WHOLE)
    write_run(tmp_path / "cut", WHOLE[:cut])
    write_run(tmp_path / "cut", WHOLE[min(cut, again) :])
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_line_cut_off_anywhere_is_dropped(tmp_path: Path) -> None:
    write_run(tmp_path / "whole", WHOLE)
    whole = (tmp_path / "whole").read_bytes()
    for length in [*range(0, len(whole), 37), *range(len(whole) - 20, len(whole))]:
        (tmp_path / "cut").write_bytes(whole[:length])
        done = whole[:length].count(b"\n") - 1  # the spec's line is not in WHOLE
        write_run(tmp_path / "cut", WHOLE[max(0, done) :])
        assert (tmp_path / "cut").read_bytes() == whole


def test_what_is_on_record(tmp_path: Path) -> None:
    write_run(tmp_path / "m", WHOLE)
    records = Records(tmp_path / "m")
    assert [line["task"] for line in records.tasks()] == [0, 1]
    assert [records.epochs(task) for task in (0, 1, 2)] == [2, 3, 0]
    assert records.seconds == 2.0
    assert len(records) == len(WHOLE) + 1
    records.close()


def test_losses_that_blew_up_are_null(tmp_path: Path) -> None:
    records = Records(tmp_path / "m")
    records.epoch({"task": 0, "epoch": 1, "a": math.nan, "b": math.inf, "seconds": 0.0})
    records.close()
    line = json.loads((tmp_path / "m").read_text())
    assert line["a"] is None
    assert line["b"] is None


def test_a_changed_spec_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "m", WHOLE)
    records = Records(tmp_path / "m")
    with pytest.raises(HatrackError, match=r"changed after the run had started \(seed\)"):
        records.start({"seed": 1})
    with pytest.raises(HatrackError, match=r"changed after the run had started \(scheduler\)"):
        records.start({"seed": 0, "scheduler": "cosine"})
    with pytest.raises(HatrackError, match=r"changed after the run had started \(seed\)"):
        records.start({})  # what is as usual may be left out of a spec
    records.close()


def test_a_foreign_line_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "m", WHOLE)
    with open(tmp_path / "m", "a") as file:
        file.write("hello\n")
    with pytest.raises(HatrackError, match="line 9 is not a record of a run: 'hello'"):
        Records(tmp_path / "m")


def test_a_line_that_is_changed_put_in_or_taken_out_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "m", WHOLE)
    raw = (tmp_path / "m").read_text().splitlines(keepends=True)
    false = raw[3].replace('"seconds": 2.0', '"seconds": 2.1')
    assert false != raw[3]
    for lines, says in (
        ([*raw[:3], false, *raw[4:]], "line 4 or the one before it was changed"),
        ([*raw[:3], *raw[4:]], "line 4 or the one before it was changed"),
        ([*raw[:3], raw[2], *raw[3:]], "line 4 or the one before it was changed"),
        ([*raw, re.sub(', "sha256": "[0-9a-f]*"', "", raw[-1])], "line 9 or the one before it was changed"),
        ([re.sub(', "sha256": "[0-9a-f]*"', "", raw[0]), *raw[1:]], "line 2 or the one before it was changed"),
    ):
        (tmp_path / "cut").write_text("".join(lines))
        with pytest.raises(Edited, match=says):
            Records(tmp_path / "cut")
        assert (tmp_path / "cut").read_text() == "".join(lines), "nothing was cut off from what is refused"


def test_what_a_checkpoint_covers_must_be_there(tmp_path: Path) -> None:
    write_run(tmp_path / "m", WHOLE[:4])
    records = Records(tmp_path / "m")
    covered = records.mark()
    records.close()
    write_run(tmp_path / "m", WHOLE[4:])  # lines beyond the checkpoint are no matter
    Records(tmp_path / "m", covered).close()
    raw = (tmp_path / "m").read_text().splitlines(keepends=True)
    (tmp_path / "m").write_text("".join(raw[:4]))
    with pytest.raises(Edited, match="lacks lines that its checkpoint has: 4 of 5 are there"):
        Records(tmp_path / "m", covered)
    (tmp_path / "m").unlink()
    with pytest.raises(Edited, match="0 of 5 are there"):
        Records(tmp_path / "m", covered)
    write_run(tmp_path / "m", [(0, 1), (0, math.inf), (1, 1), (1, math.inf)])
    with pytest.raises(Edited, match="is not the one that its checkpoint belongs to"):
        Records(tmp_path / "m", covered)


def test_lines_of_version_0_1_are_taken_as_they_are_and_sealed_by_what_follows(tmp_path: Path) -> None:
    write_run(tmp_path / "m", WHOLE[:3])
    old = re.sub(', "sha256": "[0-9a-f]*"', "", (tmp_path / "m").read_text())
    (tmp_path / "m").write_text(old)
    write_run(tmp_path / "m", WHOLE[3:])
    whole = (tmp_path / "m").read_text()
    assert whole.startswith(old)
    Records(tmp_path / "m").close()
    (tmp_path / "m").write_text(whole.replace('"loss": 0.2', '"loss": 0.1'))
    with pytest.raises(Edited, match="line 5 or the one before it was changed"):
        Records(tmp_path / "m")
