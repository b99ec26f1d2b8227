"""One picture to pixels: what is taken of strangers, and that a wrong size costs no decoding."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from hatrack.errors import HatrackError
from hatrack.pictures import pixels


def encoded(picture: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_black_and_white_come_out_the_same_from_every_kind_of_pixel(mode: str) -> None:
    wanted = np.random.default_rng(0).integers(0, 2, (4, 5), np.uint8) * 255
    raw = encoded(Image.fromarray(wanted).convert(mode))
    for channels in (1, 3):
        found = pixels("here", raw, (channels, 4, 5), foreign=True)
        np.testing.assert_array_equal(found, np.broadcast_to(wanted, (channels, 4, 5)))


def test_every_grey_survives_the_way_through_colour() -> None:
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    raw = encoded(Image.fromarray(np.stack([grey] * 3, -1)))
    np.testing.assert_array_equal(pixels("here", raw, (1, 16, 16), foreign=True)[0], grey)


def test_of_strangers_only_png_and_jpeg_of_eight_bits_are_opened() -> None:
    picture = Image.fromarray(np.zeros((4, 5), np.uint8))
    assert pixels("here", encoded(picture, "BMP"), (1, 4, 5)).shape == (1, 4, 5)
    with pytest.raises(HatrackError, match="broken"):
        pixels("here", encoded(picture, "BMP"), (1, 4, 5), foreign=True)
    deep = encoded(Image.fromarray(np.full((4, 5), 4096, np.uint16)))
    with pytest.raises(HatrackError, match="8 bits a channel"):
        pixels("here", deep, (1, 4, 5), foreign=True)


def test_a_huge_picture_is_refused_by_its_head_alone() -> None:
    """Its head says 12,000 × 12,000 pixels and nothing follows: decoding it would say that it is truncated."""

    def chunk(kind: bytes, held: bytes) -> bytes:
        return struct.pack(">I", len(held)) + kind + held + struct.pack(">I", zlib.crc32(kind + held))

    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 12000, 12000, 8, 2, 0, 0, 0))
    raw += chunk(b"IDAT", b"\x78\x9c")
    with pytest.warns(Image.DecompressionBombWarning), pytest.raises(HatrackError, match="12000 wide and 12000 high"):
        pixels("here", raw, (3, 8, 8), foreign=True)
