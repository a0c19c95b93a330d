from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.data.source_trees import items
from tpuctl.data.files import temp_files
from tpuctl.data.files.source_files import list_files
from tpuctl.data.files.temp_files import CachedSource
from tpuctl.data.options import BadRecord
from tpuctl.data.schema.features import Text
from tpuctl.data.source import Part, Records
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.framing import frame
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError

BAD = BadRecord("rows", "has no text", line=3)


class Streamed:
    """A source of so many records, the third of them bad, that counts how often it is streamed."""

    def __init__(self, file: Path, listed: int, streamed: int) -> None:
        self.times = 0
        self._streamed = streamed
        file.touch()
        self.source = CachedSource(
            kind="rows",
            origin=list_files(LocalTree.at(file), re.compile("rows")),
            features={"text": Text()},
            parts=[Part("", listed, 0)],
            stream=self._stream,
        )

    def _stream(self) -> Records:
        self.times += 1
        return (BAD if index == 2 else b"%d" % index * index for index in range(self._streamed))


def test_records_are_read_in_any_order_from_one_streaming(tmp_path: Path) -> None:
    streamed = Streamed(tmp_path / "rows", 5_000, 5_000)
    assert streamed.times == 0
    assert items(streamed.source, 4999, 2, 0, 5) == [b"4999" * 4999, BAD, b"", b"5" * 5]
    assert items(streamed.source, 4097, 1) == [b"4097" * 4097, b"1"]
    assert streamed.times == 1
    streamed.source.close()


@pytest.mark.parametrize(("block", "sizes"), [(1, [1, 1, 1, 1, 1]), (60, [3, 2]), (4 << 20, [5])])
def test_records_are_read_together_up_to_a_number_of_bytes(
    tmp_path: Path, block: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of one digit has 17 bytes in the file: 16 are its frame's."""
    monkeypatch.setattr(temp_files, "_PAGE", block)
    rows = tmp_path / "rows"
    rows.touch()
    source = CachedSource(
        kind="rows",
        origin=list_files(LocalTree.at(rows), re.compile("rows")),
        features={"text": Text()},
        parts=[Part("", 5, 0)],
        stream=lambda: (b"%d" % index for index in range(5)),
    )
    blocks = list(source.blocks(np.arange(5), {}))
    assert [len(frames) for frames in blocks] == sizes
    source.close()


def test_records_come_one_by_one_or_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temp_files, "_BATCH", 2)
    rows = tmp_path / "rows"
    rows.touch()
    many = [Frames.joined([frame(b"%d" % number) for number in numbers]) for numbers in ((1, 22), (5, 666))]
    source = CachedSource(
        kind="rows",
        origin=list_files(LocalTree.at(rows), re.compile("rows")),
        features={"text": Text()},
        parts=[Part("", 10, 0)],
        stream=lambda: iter([b"0", many[0], BAD, b"4", many[1], b"7", b"8", b"9"]),
    )
    assert items(source, *range(10)) == [
        b"0", b"1", b"22", BAD, b"4", b"5", b"666", b"7", b"8", b"9",
    ]  # fmt: skip
    source.close()


def test_a_stream_that_is_shorter_than_was_listed_has_changed(tmp_path: Path) -> None:
    streamed = Streamed(tmp_path / "rows", 5, 4)
    with pytest.raises(UsageError, match="had 5 records, and now 4"):
        items(streamed.source, 0)
    streamed.source.close()


def test_a_stream_that_has_failed_is_not_begun_again_by_other_shards(tmp_path: Path) -> None:
    streamed = Streamed(tmp_path / "rows", 5, 4)
    for _ in range(2):
        with pytest.raises(UsageError, match="had 5 records, and now 4"):
            items(streamed.source, 0)
    assert streamed.times == 1
    streamed.source.close()
