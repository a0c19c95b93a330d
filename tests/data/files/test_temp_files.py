"""Temporary files that vanish with their owner, and records that are kept in them."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.source_trees import items
from tpuctl.data.files import temp_files
from tpuctl.data.files.source_files import list_files
from tpuctl.data.files.temp_files import CachedSource, RecordOffsets, TempFile, decompressed
from tpuctl.data.options import BadRecord
from tpuctl.data.schema.features import Text
from tpuctl.data.source import Part, Records
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.framing import frame
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import StateError, UsageError


@pytest.mark.parametrize("records", [0, 1, 1000, (1 << 20) + 5, 3 << 20])
def test_offsets_are_found_again_however_many_there_are(records: int) -> None:
    offsets = RecordOffsets()
    every = np.arange(records + 1) * 3
    for part in np.array_split(every, 3):
        offsets.extend(part)
    offsets.finish()
    assert len(offsets) == records
    some = np.unique(np.linspace(0, records - 1, 50).astype(np.int64)) if records else np.array([], np.int64)
    assert offsets.spans(some).tolist() == [[3 * index, 3 * index + 3] for index in some.tolist()]
    offsets.close()


@pytest.mark.parametrize("sizes", [(1, 2, 1), (4, 1), (4, 4, 4), (1, 1, 1, 1, 1, 2), (9,)])
def test_offsets_are_in_their_order_in_the_file_too(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temp_files, "_MOST_HELD", 3)
    offsets = RecordOffsets()
    every = np.arange(sum(sizes)) * 5
    for part in np.split(every, np.cumsum(sizes)[:-1]):
        offsets.extend(part)
    offsets.finish()
    order = np.arange(len(every) - 1)[::-1]
    assert offsets.spans(order).tolist() == [[5 * index, 5 * index + 5] for index in order.tolist()]
    offsets.close()


@pytest.mark.parametrize(("extended", "files"), [(1 << 20, 0), ((1 << 20) + 1, 1)])
def test_a_million_offsets_are_held_in_memory(
    extended: int, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[TempFile] = []

    def make() -> TempFile:
        made.append(TempFile())
        return made[-1]

    monkeypatch.setattr(temp_files, "TempFile", make)
    offsets = RecordOffsets()
    offsets.extend(np.arange(extended))
    offsets.finish()
    assert len(made) == files
    offsets.close()


@pytest.mark.parametrize(
    ("before", "left"), [(2000, 1000), (3 << 30, 1 << 30)], ids=["half of a small disk", "1 GiB of a large"]
)
def test_unpacked_files_leave_some_of_the_disk_free(
    before: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [before]
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result([1, 1, 0, 0, free[0], *[0] * 5]))
    monkeypatch.setattr(temp_files, "_CHECKED", 0)
    scratch = TempFile()
    free[0] = left
    scratch.append(b"one")
    free[0] = left - 1
    with pytest.raises(StateError) as caught:
        scratch.append(b"two")
    assert caught.value.message == (
        f"There is no space left in '{tempfile.gettempdir()}' for unpacked files: "
        f"what is unpacked would leave less than {left / 1e9:.1f} GB free."
    )
    assert caught.value.hint == "Free some, or name a larger disk: TMPDIR=/large tpuctl data upload ..."
    scratch.close()


def test_a_scratch_file_has_no_name_and_so_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scratch = TempFile()
    scratch.append(b"one")
    scratch.append(b"two")
    assert os.pread(scratch.finish(), 2, 2) == b"et"
    assert list(tmp_path.iterdir()) == []
    scratch.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = TempFile()
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, scratch.finish())
    os.close(full)
    scratch.append(b"one")
    with pytest.raises(StateError, match="no space left in") as caught:
        scratch.finish()
    assert "TMPDIR=" in caught.value.hint
    with pytest.raises(OSError, match="No space left"):
        scratch.close()


def test_the_space_that_is_left_is_looked_at_every_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = TempFile()
    part = bytes(1 << 20)
    for _ in range(64):
        scratch.append(part)
    # no real disk gets full at a chosen moment
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result([1] * 10))
    with pytest.raises(StateError, match="what is unpacked would leave less than"):
        scratch.append(part)
    scratch.close()


def test_the_space_is_not_looked_at_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temp_files, "_CHECKED", 10)
    scratch = TempFile()
    looks: list[int] = []

    def look(_: int) -> os.statvfs_result:
        looks.append(scratch.size)
        return os.statvfs_result([1 << 20] * 10)

    monkeypatch.setattr(os, "fstatvfs", look)
    for _ in range(12):
        scratch.append(b"four")
    assert looks == [12, 24, 36, 48]
    scratch.close()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"no", lambda data: data[:30] + b"?" * 40]
)
def test_a_damaged_gzip_file_is_named(tmp_path: Path, damage) -> None:
    import gzip

    file = tmp_path / "rows.csv.gz"
    file.write_bytes(gzip.compress(os.urandom(1000)))
    assert sum(map(len, decompressed(file.open("rb"), file.name))) == 1000
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UsageError, match=r"'rows.csv.gz' is a damaged gzip file"):
        list(decompressed(file.open("rb"), file.name))


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
