"""The orientation in EXIF data, byte by byte (Exif 2.32, 4.6.2; TIFF 6.0, 2)."""

from __future__ import annotations

import struct

import pytest

from tpuctl.data.images.header import orientation

TAG, WIDTH = 0x0112, 0x0100
SHORT, LONG = 3, 4
Entry = tuple[int, int, int, int]


def exif_tiff(*entries: Entry, order: str = "<", start: int = 8) -> bytes:
    """Return EXIF data from its TIFF header on."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    rows = b"".join(struct.pack(f"{order}HHIHH", *entry, 0) for entry in entries)
    head = mark + struct.pack(f"{order}I", start)
    return head.ljust(start, b"\0") + struct.pack(f"{order}H", len(entries)) + rows


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("value", range(1, 9))
def test_it_is_read_in_both_byte_orders(value: int, order: str) -> None:
    assert orientation(exif_tiff((TAG, SHORT, 1, value), order=order)) == value
    assert (
        orientation(exif_tiff((WIDTH, SHORT, 1, 5), (TAG, SHORT, 1, value), order=order, start=20)) == value
    )


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_another_value_is_upright(value: int) -> None:
    assert orientation(exif_tiff((TAG, SHORT, 1, value))) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"II",
        b"XX" + exif_tiff((TAG, SHORT, 1, 6))[2:],
        exif_tiff((WIDTH, SHORT, 1, 6)),
        exif_tiff((TAG, LONG, 1, 6)),
        exif_tiff((TAG, SHORT, 1, 6))[:-3],
        exif_tiff((WIDTH, SHORT, 1, 6)) + exif_tiff((TAG, SHORT, 1, 6))[10:],
    ],
    ids=["nothing", "an order", "no order", "no tag", "another type", "cut", "behind the last entry"],
)
def test_data_without_an_orientation_is_upright(data: bytes) -> None:
    assert orientation(data) == 1
