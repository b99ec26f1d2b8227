"""A folder of exports is read whole or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hatrack.errors import Edited, HatrackError
from hatrack.serve.exported import read_all

from .exports import ALL, DIGITS, MAPS, write, write_all


def test_a_folder_of_tasks_and_one_task_alone_are_read(exports: Path) -> None:
    assert read_all(exports).keys() == {made.name for made in ALL}
    assert read_all(exports / "maps").keys() == {"maps"}
    assert read_all(exports)["maps"].model == MAPS.model()


def test_one_changed_bit_of_a_network_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, DIGITS.card(), DIGITS.model()) / "model.onnx"
    held = bytearray(file.read_bytes())
    for place in (0, len(held) // 2, len(held) - 1):
        held[place] ^= 1
        file.write_bytes(held)
        with pytest.raises(Edited, match="SHA-256 differs"):
            read_all(tmp_path)
        held[place] ^= 1
    file.write_bytes(held)
    read_all(tmp_path)
    file.unlink()
    with pytest.raises(HatrackError, match=r"model\.onnx cannot be read"):
        read_all(tmp_path)


def card(**changed: Any) -> str:
    return json.dumps(DIGITS.card() | {"files": {"model.onnx": {"bytes": 1, "sha256": "0"}}} | changed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "is no card"),
        ("{}", r"is no card of an export \(schema"),
        (card(schema=2), "has schema 2; this hatrack reads 1"),
        (card(task=""), r"is no card of an export \(task"),
        (card(inputs=[]), r"is no card of an export \(inputs"),
        (card(inputs=[{"name": "x", "shape": [1], "dtype": "object"}]), r"inputs\.0\.dtype"),
        (card(files={}), r"has no model\.onnx; export the task"),
        (card(files={"../model.onnx": {"bytes": 1, "sha256": "0"}}), r"has no model\.onnx"),
        (card(classes=["a"]), r"names 1 classes for answers of shape \(3,\)"),
    ],
)
def test_a_card_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    place = write(tmp_path, DIGITS.card(), DIGITS.model())
    (place / "card.json").write_text(text)
    with pytest.raises(HatrackError, match=said) as caught:
        read_all(tmp_path)
    assert "\n" not in str(caught.value)


def test_folders_without_a_task_and_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HatrackError, match="is no folder"):
        read_all(tmp_path / "nothing")
    with pytest.raises(HatrackError, match="holds no exported task"):
        read_all(tmp_path)
    write_all(tmp_path, [DIGITS])
    (tmp_path / "digits-0-1").rename(tmp_path / "other")
    write_all(tmp_path, [DIGITS])
    with pytest.raises(HatrackError, match="a task 'digits 0-1' already"):
        read_all(tmp_path)


def test_a_score_that_is_no_number_is_null(tmp_path: Path) -> None:
    write(tmp_path, DIGITS.card() | {"score": {"accuracy": float("nan")}}, DIGITS.model())
    assert read_all(tmp_path)["digits 0-1"].told["score"] == {"accuracy": None}
