from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.data.source_trees import items
from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.record_cache import CachedSource
from tpuctl.data.files.source_files import list_files
from tpuctl.data.schema.features import Text
from tpuctl.data.source import Part, Records
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
    streamed = Streamed(tmp_path / "rows", 10_000, 10_000)
    assert streamed.times == 0
    assert items(streamed.source, 9999, 2, 0, 5) == [b"9999" * 9999, BAD, b"", b"5" * 5]
    assert items(streamed.source, 4097, 1) == [b"4097" * 4097, b"1"]
    assert streamed.times == 1
    streamed.source.close()


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
