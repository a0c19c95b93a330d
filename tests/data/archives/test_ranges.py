"""Ranges of what lies in an archive end where the member ends, wherever its bytes are."""

from __future__ import annotations

import os

import pytest

from tpuctl.data.archives import tree
from tpuctl.data.archives.tree import HeldRanges, PartRanges, TempRanges, held
from tpuctl.data.files.temp_files import TempFile

CONTENT = b"0123456789"


class Whole(HeldRanges):
    """Notes that it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("at", "size", "expected"),
    [(0, 4, b"3456"), (1, 2, b"45"), (0, 5, b"3456"), (3, 9, b"6"), (4, 1, b""), (5, 3, b""), (0, 0, b"")],
)
def test_a_part_has_no_byte_of_what_is_beside_it(at: int, size: int, expected: bytes) -> None:
    whole = Whole(CONTENT)
    part = PartRanges(whole, 3, 4)
    assert part.read(at, size) == expected
    part.close()
    assert not whole.is_closed, "other members are read of it"


@pytest.mark.parametrize(("most", "kind"), [(10, HeldRanges), (9, TempRanges)])
def test_what_was_unpacked_is_in_memory_up_to_a_size(
    most: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_MOST_HELD", most)
    unpacked = held(CONTENT)
    assert type(unpacked) is kind
    assert [unpacked.read(at, 4) for at in (0, 3, 8, 10)] == [b"0123", b"3456", b"89", b""]
    unpacked.close()


def test_the_place_of_what_was_unpacked_to_a_file_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TempFile] = []

    def make() -> TempFile:
        made.append(TempFile())
        return made[-1]

    monkeypatch.setattr(tree, "_MOST_HELD", 0)
    monkeypatch.setattr(tree, "TempFile", make)
    held(CONTENT).close()
    with pytest.raises(ValueError, match="closed"):
        made[0].finish()


def test_a_file_that_cannot_be_written_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TempFile] = []

    class Full(TempFile):
        def append(self, data: bytes) -> None:
            made.append(self)
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(tree, "_MOST_HELD", 0)
    monkeypatch.setattr(tree, "TempFile", Full)
    with pytest.raises(OSError, match="No space left"):
        held(CONTENT)
    with pytest.raises(ValueError, match="closed"):
        made[0].finish()
