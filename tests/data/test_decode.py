from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hatrack.data.decode import Frame, Table, from_parquet, natural_shape
from hatrack.data.image_set import load
from hatrack.errors import HatrackError

from .make import entries, pixels, png, write_parquet, write_set

GREY = (1, 28, 28)
COLOUR = (3, 32, 32)


@pytest.mark.parametrize("shape", [GREY, COLOUR, (3, 5, 9)])
def test_a_lossless_picture_decodes_to_its_own_pixels(shape: tuple[int, int, int]) -> None:
    wanted = [pixels(row, 3, shape) for row in range(4)]
    decoded = Frame(shape).chunk([("here", png(picture)) for picture in wanted])
    np.testing.assert_array_equal(decoded, wanted)
    assert decoded.flags.c_contiguous


def test_a_jpeg_decodes_as_pillow_decodes_it() -> None:
    raw = png(pixels(1, 2, COLOUR), "JPEG", quality=90)
    wanted = np.asarray(Image.open(io.BytesIO(raw))).transpose(2, 0, 1)
    np.testing.assert_array_equal(Frame(COLOUR).chunk([("here", raw)])[0], wanted)


def test_padding_surrounds_the_picture_with_zeros() -> None:
    decoded = Frame(GREY, pad=2).chunk([("here", png(pixels(1, 2, GREY)))])[0]
    assert decoded.shape == Frame(GREY, pad=2).result == (1, 32, 32)
    np.testing.assert_array_equal(decoded[:, 2:-2, 2:-2], pixels(1, 2, GREY))
    assert decoded.sum() == pixels(1, 2, GREY).astype(int).sum()


def test_grey_pictures_of_a_colour_set_get_three_equal_channels() -> None:
    decoded = Frame(COLOUR).chunk([("here", png(pixels(0, 1, (1, 32, 32))))])[0]
    for channel in decoded:
        np.testing.assert_array_equal(channel, pixels(0, 1, (1, 32, 32))[0])


def test_another_size_is_scaled_where_the_set_allows_it_and_an_error_where_not() -> None:
    raw = png(np.full((3, 64, 64), 9, np.uint8))
    np.testing.assert_array_equal(Frame(COLOUR, resize=True).chunk([("here", raw)])[0], np.full(COLOUR, 9))
    with pytest.raises(HatrackError, match="here: the picture is 64 wide and 64 high, expected 32 and 32"):
        Frame(COLOUR).chunk([("here", raw)])


def test_the_natural_shape_tells_grey_from_colour() -> None:
    assert natural_shape("here", png(pixels(0, 0, (1, 4, 6)))) == (1, 4, 6)
    assert natural_shape("here", png(pixels(0, 0, (3, 4, 6)))) == (3, 4, 6)


def test_all_rows_of_all_files_come_in_order_across_chunks(tmp_path: Path) -> None:
    for part in range(2):
        write_parquet(tmp_path / f"{part}.parquet", [0, 1] * 40, GREY, start=80 * part)
    write_parquet(tmp_path / "test.parquet", [1, 0], GREY)
    tables = [Table.open(tmp_path / f"{part}.parquet") for part in range(2)]
    source = from_parquet(tables, [Table.open(tmp_path / "test.parquet")], Frame(GREY), classes=2)
    x, y = (np.concatenate(parts) for parts in zip(*source.chunks, strict=True))
    assert (source.rows, source.trained) == (162, 160)
    np.testing.assert_array_equal(x[:160], [pixels(row, row % 2, GREY) for row in range(160)])
    np.testing.assert_array_equal(y, [0, 1] * 80 + [1, 0])
    np.testing.assert_array_equal(np.concatenate([y for _, y in tables[0].encoded(7)]), [0, 1] * 40)


def test_the_hubs_cifar100_columns_are_found(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    write_parquet(file, [0, 1], GREY, names=["ape", "bee"], image="img", label="fine_label")
    table = Table.open(file)
    assert (table.image, table.label, table.rows, table.names) == ("img", "fine_label", 2, ("ape", "bee"))


def train_file(data: Path) -> Path:
    return write_set(data, "mnist", train=2, test=1) / "train-00000-of-00001.parquet"


def refuses(data: Path, cache: Path, *words: str) -> None:
    """Loading mnist fails with these words, and leaves nothing in the cache."""
    with pytest.raises(HatrackError) as caught:
        load("mnist", data)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert entries(cache) == []


def test_a_truncated_parquet_file_is_named(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    file.write_bytes(file.read_bytes()[:-100])
    refuses(data, own_cache, str(file), "broken or truncated")


def test_a_parquet_file_with_damaged_pages_is_named_with_the_row(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    raw = bytearray(file.read_bytes())
    raw[4:400] = bytes(396)
    file.write_bytes(bytes(raw))
    refuses(data, own_cache, str(file), "after row 0", "broken or truncated")


def test_a_truncated_picture_is_named_with_its_row(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    whole = png(pixels(13, 3, GREY))
    write_parquet(file, list(range(10)) * 2, GREY, broken={13: whole[: len(whole) // 2]})
    refuses(data, own_cache, f"{file}, row 13", "broken or truncated")


def test_bytes_that_are_no_picture_are_named_with_their_row(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    write_parquet(file, list(range(10)) * 2, GREY, broken={7: b"not a picture"})
    refuses(data, own_cache, f"{file}, row 7", "broken or truncated")


@pytest.mark.parametrize("label", [10, -1])
def test_a_label_outside_the_classes_is_named_with_its_row(data: Path, own_cache: Path, label: int) -> None:
    file = train_file(data)
    write_parquet(file, [*range(10), label], GREY)
    refuses(data, own_cache, f"{file}, row 10", f"label {label}", "0..9")


@pytest.mark.parametrize("part", ["train", "test"])
def test_an_empty_class_is_named_with_its_file(data: Path, own_cache: Path, part: str) -> None:
    file = train_file(data).with_name(f"{part}-00000-of-00001.parquet")
    write_parquet(file, [0, 1, 2, 3, 5, 6, 7, 8, 9], GREY)
    refuses(data, own_cache, str(file), "class 4", "no picture")


def test_a_missing_picture_or_label_is_named_with_its_row(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    write_parquet(file, list(range(10)), GREY, broken={4: None})
    refuses(data, own_cache, f"{file}, row 4", "picture is missing")
    write_parquet(file, [*range(9), None], GREY)
    refuses(data, own_cache, f"{file}, row 9", "label is missing")


def test_a_picture_of_the_wrong_size_is_named_with_its_row(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    write_parquet(file, list(range(10)), GREY, broken={2: png(pixels(0, 0, (1, 8, 8)))})
    refuses(data, own_cache, f"{file}, row 2", "8 wide")


def test_a_file_without_the_columns_lists_what_it_has(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    write_parquet(file, list(range(10)), GREY, label="digit")
    refuses(data, own_cache, str(file), "no label column", "'label' or 'fine_label'", "'digit'")


def test_a_file_with_another_number_of_classes_is_refused(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    write_parquet(file, list(range(10)), GREY, names=["only", "two"])
    refuses(data, own_cache, str(file), "2 classes, expected 10")


def test_a_file_without_rows_is_refused(data: Path, own_cache: Path) -> None:
    file = train_file(data)
    write_parquet(file, [], GREY)
    refuses(data, own_cache, str(file), "holds no row")


@pytest.mark.parametrize("package", ["pyarrow", "PIL.Image"])
def test_a_missing_package_says_how_to_install_it(
    data: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, package: str
) -> None:
    caplog.set_level("INFO", logger="hatrack")
    train_file(data)
    monkeypatch.setitem(sys.modules, package, None)
    refuses(data, own_cache, "pyarrow and Pillow", "pip install 'hatrack[data]'")
    assert caplog.messages == []  # decoding is not announced
