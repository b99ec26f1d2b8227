from __future__ import annotations

from math import nan
from pathlib import Path

import numpy as np
import pytest

from hatrack.data.ts import read_ts, resampled
from hatrack.errors import HatrackError

HEAD = "@problemName x\n@timeStamps false\n@classLabel true slow fast\n@data\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "x_TRAIN.ts"
    file.write_text(text, encoding="utf-8")
    return file


def test_channels_of_unequal_lengths_with_missing_values(tmp_path: Path) -> None:
    text = f"# äußerst\n%# more\n\n{HEAD}1,2.5,?:4:fast\n\n -1e-3 , NaN,7,8 : 0,0 : slow \n"
    found = read_ts(write(tmp_path, text))
    wanted = [[[1, 2.5, nan], [4]], [[-0.001, nan, 7, 8], [0, 0]]]
    assert len(found.channels) == 2
    for channels, table in zip(found.channels, wanted, strict=True):
        for channel, values in zip(channels, table, strict=True):
            np.testing.assert_array_equal(channel, values)
    assert (found.labels, found.names) == ([1, 0], ("slow", "fast"))


def test_keys_of_the_header_in_any_case(tmp_path: Path) -> None:
    found = read_ts(write(tmp_path, "@TimeStamps False\n@CLASSLABEL true 1 2\n@Data\n5:2\n"))
    assert (found.labels, found.names) == ([1], ("1", "2"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD, "x_TRAIN.ts holds no series"),
        ("", "x_TRAIN.ts holds no series"),
        ("1,2:slow\n", "line 1: values stand before @data, got '1,2:slow'"),
        ("@data\n1:a\n", "line 1: the header names no classes; write @classLabel true"),
        ("@classLabel false\n@data\n1\n", "line 2: the header names no classes"),
        ("@targetLabel true\n@data\n1:0.5\n", "line 2: the header names no classes"),
        ("@timeStamps true\n", "line 1: series with timestamps are not read"),
        (f"{HEAD}1,2:slo\n", "unknown class in .*line 5, 'slo'; did you mean 'slow'"),
        (f"{HEAD}slow\n", "line 5: a channel needs values, and the class, after a colon; got 'slow'"),
        (f"{HEAD}1,two:slow\n", "line 5: could not convert string to float: 'two'; values are numbers, or"),
        (f"{HEAD}1,,2:slow\n", "line 5: could not convert"),
        (f"{HEAD}1:slow\n1,inf:slow\n", "line 6: a channel needs finite values, got '1,inf'"),
        (f"{HEAD}?,?:slow\n", "line 5: a channel needs finite values, got"),
        (f"{HEAD}1:slow\n1:2:slow\n", "series have 1 to 2 channels; all must have as many"),
    ],
)
def test_what_is_broken_is_said_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(HatrackError, match=says) as caught:
        read_ts(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HatrackError, match=r"none\.ts cannot be read \(No such file"):
        read_ts(tmp_path / "none.ts")
    (tmp_path / "bytes.ts").write_bytes(b"\xff\xfe")
    with pytest.raises(HatrackError, match=r"bytes\.ts cannot be read"):
        read_ts(tmp_path / "bytes.ts")


@pytest.mark.parametrize(
    ("values", "length", "wanted"),
    [
        ([0, 2, 4], 5, [0, 1, 2, 3, 4]),
        ([3, 1, 2], 3, [3, 1, 2]),
        ([7], 3, [7, 7, 7]),
        ([0, nan, 2, 3], 4, [0, 1, 2, 3]),
        ([nan, 5, nan, 9, nan], 5, [5, 5, 7, 9, 9]),
        ([1, -1, 1, -1, 1, -1], 3, [0, 0, 0]),  # six points, of which two are averaged
        ([0, 3, 6, 9, 12], 2, [2.4, 9.6]),  # of 0, 2.4, 4.8 and of 7.2, 9.6, 12
    ],
)
def test_resampled_by_hand(values: list[float], length: int, wanted: list[float]) -> None:
    np.testing.assert_allclose(resampled(np.array(values, dtype=float), length), wanted, atol=1e-12)
