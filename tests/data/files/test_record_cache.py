from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.data.source_trees import items
from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.record_cache import CachedSource
from tpuctl.data.schema.features import Text
from tpuctl.data.source import Part
from tpuctl.errors import UsageError

BAD = BadRecord("rows", "has no text", line=3)


class Streamed:
    """A source of so many records, the third of them bad, that counts how often it is streamed."""

    def __init__(self, said: int, there: int) -> None:
        self.times = 0
        self._there = there
        self.source = CachedSource(
            "rows", {"text": Text()}, None, [Part("", said, 0)], "", self._stream, b"", lambda: None
        )

    def _stream(self) -> Iterator[bytes | BadRecord]:
        self.times += 1
        return (BAD if index == 2 else b"%d" % index * index for index in range(self._there))


def test_records_are_read_in_any_order_from_one_streaming() -> None:
    streamed = Streamed(10_000, 10_000)
    assert streamed.times == 0
    assert items(streamed.source, 9999, 2, 0, 5) == [b"9999" * 9999, BAD, b"", b"5" * 5]
    assert items(streamed.source, 4097, 1) == [b"4097" * 4097, b"1"]
    assert streamed.times == 1
    streamed.source.close()


def test_a_stream_that_is_shorter_than_was_said_has_changed() -> None:
    streamed = Streamed(5, 4)
    with pytest.raises(UsageError, match="had 5 records, and now 4"):
        items(streamed.source, 0)
    streamed.source.close()
