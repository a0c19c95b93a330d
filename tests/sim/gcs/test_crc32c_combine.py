"""The checksum of two parts together, without their bytes."""

from __future__ import annotations

import google_crc32c
import pytest

from tpuctl.sim.gcs.storage.store import combine_crc32c

DATA = bytes(range(256)) * 5


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 255, 256, 1023, len(DATA)])
def test_the_checksum_of_two_parts_is_that_of_the_whole(size: int) -> None:
    first, second = DATA[: len(DATA) - size], DATA[len(DATA) - size :]
    combined = combine_crc32c(google_crc32c.value(first), google_crc32c.value(second), size)
    assert combined == google_crc32c.value(DATA)


def test_parts_may_have_terabytes() -> None:
    """However 2**41 bytes are made up, their checksum is one."""
    half, size = google_crc32c.value(bytes(1 << 20)), 1 << 20
    while size < 1 << 40:
        half, size = combine_crc32c(half, half, size), size * 2
    whole = combine_crc32c(half, half, size)
    rest = google_crc32c.value(DATA)
    ends_with_half = combine_crc32c(half, rest, len(DATA))
    assert combine_crc32c(half, ends_with_half, size + len(DATA)) == combine_crc32c(whole, rest, len(DATA))
