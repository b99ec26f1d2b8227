"""`key=value` words and the fit of a value to a setting's type."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from hatrack.errors import HatrackError
from hatrack.runs.values import fit, parse, parse_all, parse_tasks, plain


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("c=0.75", "c", 0.75),
        ("c=.5", "c", 0.5),
        ("c=1.", "c", 1.0),
        ("c=1e-4", "c", 1e-4),
        ("epochs=5", "epochs", 5),
        ("n=-3", "n", -3),
        ("hard=false", "hard", False),
        ("net=mlp", "net", "mlp"),
        ('net="mlp"', "net", "mlp"),
        ("data=/a/b=c", "data", "/a/b=c"),
        ("widths=[100, 200]", "widths", [100, 200]),
        ("names=['a', \"b\"]", "names", ["a", "b"]),
        (" lr = 0.1 ", "lr", 0.1),
        ("day=2020-01-01", "day", "2020-01-01"),
        ("x={a = 1}", "x", {"a": 1}),
        ("x=1\ny=2", "x", "1\ny=2"),
    ],
)
def test_parse(word: str, key: str, value: Any) -> None:
    found = parse(word)
    assert found == (key, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("word", ["c", "=1", "c=", "", " = "])
def test_parse_refuses(word: str) -> None:
    with pytest.raises(HatrackError, match="key=value") as caught:
        parse(word)
    assert repr(word) in str(caught.value)


def test_several_settings_each_given_once() -> None:
    assert parse_all(["lr=1", "c=2", "lr=1"]) == {"lr": 1, "c": 2}
    with pytest.raises(HatrackError, match="lr was given twice, as 1 and as 2; give it once"):
        parse_all(["lr=1", "lr=2"])


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (1, float, 1.0),
        (3, int, 3),
        ([1, 2], Sequence[int], [1, 2]),
        ([1, 2], tuple[int, ...], (1, 2)),
        ("none", int | None, None),
        ("none", str, "none"),
        (4, int | None, 4),
        ("a", Literal["a", "b"], "a"),
        (True, bool, True),
    ],
)
def test_fit(value: Any, annotation: Any, expected: Any) -> None:
    found = fit("x", value, annotation)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "says"),
    [
        ("abc", float, "c must be a valid number, got 'abc'."),
        (0.5, int, "c must be a valid integer, got 0.5."),
        (True, int, "c must be a valid integer, got True."),
        (1, bool, "c must be a valid boolean, got 1."),
        (1, str, "c must be a valid string, got 1."),
        (5, Sequence[int], "c must be a list such as [1, 2], got 5."),
        ([1, "x"], Sequence[int], "c[1] must be a valid integer, got 'x'."),
        ("z", Literal["a", "b"], "c must be 'a' or 'b', got 'z'."),
        (float("nan"), float, "c must be finite, got nan."),
        (float("inf"), float, "c must be finite, got inf."),
    ],
)
def test_fit_refuses(value: Any, annotation: Any, says: str) -> None:
    with pytest.raises(HatrackError) as caught:
        fit("c", value, annotation)
    assert str(caught.value) == says


def test_tasks_are_folders_by_name() -> None:
    assert list(parse_tasks(["dogs=a/b", " cats = c=d "]).items()) == [("dogs", "a/b"), ("cats", "c=d")]
    with pytest.raises(HatrackError, match="two tasks are called 'cats'; give each --task a name of its own"):
        parse_tasks(["cats=a", "cats=b"])


@pytest.mark.parametrize("word", ["cats", "=a", "cats=", " = ", ""])
def test_tasks_without_a_name_or_a_folder_are_refused(word: str) -> None:
    with pytest.raises(HatrackError, match="--task takes NAME=DIR") as caught:
        parse_tasks([word])
    assert repr(word) in str(caught.value)


def test_every_path_in_a_table_means_the_same_from_anywhere() -> None:
    paths = dict[str, str | os.PathLike[str]]
    assert fit("x", {"a": "b", "c": "/d"}, paths) == {"a": os.path.abspath("b"), "c": "/d"}
    assert fit("x", {"a": "b"}, dict[str, str]) == {"a": "b"}
    with pytest.raises(HatrackError, match=r"x\.a must not hold a zero byte"):
        fit("x", {"a": "b\0"}, paths)


def test_plain() -> None:
    assert plain((1, (2, "a"), {"b": (3,)})) == [1, [2, "a"], {"b": [3]}]
    assert plain("ab") == "ab"
