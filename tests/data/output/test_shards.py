"""A shard is streamed, counts what it skips, is told from others; how many shards a split has."""

from __future__ import annotations

import io
import re
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.source_trees import Tree, bytes_of
from tpuctl.data.options import BadRecord, BadRecordsError
from tpuctl.data.order import Members, Permutation
from tpuctl.data.output import shards
from tpuctl.data.output.manifest import FileFormat
from tpuctl.data.output.shards import (
    DEFAULT_SIZE,
    MAX_SIZE,
    MIN_SIZE,
    Shard,
    bounds,
    choose_count,
    fixed_count,
    readable_size,
    shard_file,
)
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Tensor
from tpuctl.data.source import Blocks, Indices, Observations, Part, Source
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.framing import frame
from tpuctl.errors import ConfigError, StateError, UsageError
from tpuctl.object_content import Content

Record = bytes | BadRecord | Frames
BAD = BadRecord("a.png", "is damaged")
needs_array_record = pytest.mark.skipif(
    find_spec("array_record") is None, reason="array_record is not installed"
)


class Held:
    """An origin of records that are held in memory."""

    bad: Sequence[BadRecord] = ()
    fingerprint = "0"
    written = b""

    def stamp(self, indices: Indices) -> bytes:
        return self.written

    def check(self) -> None:
        pass


class InMemory(Source):
    """Blocks that come in their order, whatever is asked for."""

    def __init__(self, *blocks: Record) -> None:
        count = sum(len(block) if isinstance(block, Frames) else 1 for block in blocks)
        super().__init__(
            kind="csv",
            origin=Held(),
            features={"n": Tensor("int64")},
            parts=(Part("train", count, 100 * count),),
        )
        self._blocks = blocks

    def blocks(self, indices: Indices, observations: Observations) -> Blocks:
        observations.note("height", 7)
        return iter(self._blocks)


def shard_of(*blocks: Record, start: int = 0, file_format: FileFormat = "tfrecord") -> Shard:
    source = InMemory(*blocks)
    count = source.parts[0].records
    members = Members("train", 100 * count, Permutation(count, 0, "shard"), np.arange(count, dtype=np.int32))
    file = shards.shard_file("d", "train", 0, 1, file_format)
    return Shard(file, "train", source, members, start, count, "the plan", file_format)


def framed(*records: bytes) -> bytes:
    return b"".join(map(frame, records))


def test_small_records_are_one_piece_and_a_large_one_is_passed_on_as_it_is() -> None:
    small, large = [b"a", b"bb"], b"x" * (1 << 15)
    shard = shard_of(*small, large, b"c")
    pieces = list(shard.stream())
    assert b"".join(pieces) == framed(*small, large, b"c")
    assert [len(piece) for piece in pieces] == [17 + 18 + 12, 1 << 15, 4 + 17]
    assert pieces[1] is large, "it is not copied"
    below = b"x" * ((1 << 15) - 1)
    assert [len(piece) for piece in shard_of(b"a", below).stream()] == [17 + 16 + len(below)]


def test_a_piece_has_a_mebibyte_at_most() -> None:
    record = b"y" * 20_000
    pieces = list(shard_of(*[record] * 100).stream())
    assert b"".join(pieces) == framed(*[record] * 100)
    assert [len(piece) for piece in pieces] == [52 * 20_016 + 12, 20_000, 4 + 47 * 20_016]
    frames = Frames.of([record] * 100)
    assert max(len(piece) for piece in shard_of(frames).stream()) <= 1 << 20


def test_blocks_that_are_framed_come_between_others_in_their_order() -> None:
    frames = Frames.of([b"b", b"c"])
    shard = shard_of(b"a", frames, frames, b"d")
    assert b"".join(shard.stream()) == framed(b"a", b"b", b"c", b"b", b"c", b"d")
    assert shard.stream().drain().entry.records == 6


def test_the_result_is_that_of_the_whole_file() -> None:
    shard = shard_of(b"a", Frames.of([b"b"]), b"c")
    stream = shard.stream()
    with pytest.raises(ValueError, match=r"^d-train\.tfrecord-00000-of-00001 was not read to its end$"):
        stream.result  # noqa: B018
    content = Content.of(b"".join(stream))
    entry = stream.result.entry
    assert (entry.file, entry.records, entry.content) == (shard.file, 3, content)
    assert (stream.result.skipped, stream.result.bad) == (0, ())
    assert stream.result.observed == {"height": [7]}
    assert stream.result.identity == shard.identity
    assert shard.records == 3
    assert shard_of(b"a", b"b", start=1).records == 1


def test_bad_records_are_skipped_and_counted_only_if_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = shard_of(b"a", BAD, Frames.of([b"b"]), BAD, BAD, b"c", BAD)
    with pytest.raises(BadRecordsError, match=r"^'a\.png' is damaged\."):
        shard.stream().drain()
    result = shard.stream(skip_bad=True).drain()
    assert (result.entry.records, result.skipped, result.bad) == (3, 4, (BAD,) * 4)
    assert b"".join(shard.stream(skip_bad=True)) == framed(b"a", b"b", b"c")
    monkeypatch.setattr(shards, "MOST_BAD", 2)
    result = shard.stream(skip_bad=True).drain()
    assert (result.skipped, result.bad) == (4, (BAD,) * 2)
    alone = shard_of(BAD).stream(skip_bad=True).drain()
    assert (alone.entry.records, alone.entry.bytes, alone.skipped) == (0, 0, 1)


def test_progress_counts_every_record_and_every_byte() -> None:
    reports: list[tuple[int, int]] = []
    large = b"x" * (1 << 15)
    shard = shard_of(b"a", BAD, large, Frames.of([b"b", b"c"]), BAD)
    stream = shard.stream(skip_bad=True, report=lambda records, size: reports.append((records, size)))
    size = len(b"".join(stream))
    assert sum(records for records, _ in reports) == 6
    assert sum(part for _, part in reports) == size
    assert all(records >= 0 for records, _ in reports)
    assert reports[0] == (3, 17 + 12)


def test_all_that_decides_on_the_bytes_is_in_the_identity() -> None:
    shard = shard_of(b"a", b"b", b"c")
    assert shard_of(b"a", b"b", b"c").identity == shard.identity
    others = [replace(shard, plan="another"), replace(shard, file="x"), replace(shard, start=1)]
    modified = shard_of(b"a", b"b", b"c")
    modified.source.origin.written = b"later"  # type: ignore[attr-defined]
    identities = {each.identity for each in [shard, *others, modified]}
    assert len(identities) == 5
    assert {len(identity) for identity in identities} == {64}


@pytest.mark.parametrize(("batch", "count"), [(1, 5), (2, 3), (5, 1), (100, 1)])
def test_indices_come_in_batches_in_the_order_of_writing(
    monkeypatch: pytest.MonkeyPatch, batch: int, count: int
) -> None:
    monkeypatch.setattr(shards, "_BATCH", batch)
    shard = shard_of(*[b"a"] * 6, start=1)
    parts: Iterator[list[int]] = (part.tolist() for part in shard.indices())
    listed = list(parts)
    assert len(listed) == count
    assert [index for part in listed for index in part] == shard.members.indices(1, 6).tolist()


@needs_array_record
class TestArrayRecord:
    def test_its_file_is_the_same_each_time_and_has_each_record(self, tmp_path: Path) -> None:
        records = [b"%d" % number * (number % 100) for number in range(300)]
        shard = shard_of(*records[:200], Frames.of(records[200:]), file_format="arrayrecord")
        data, note = bytes_of(shard)
        assert bytes_of(shard) == (data, note)
        assert (note.entry.records, note.entry.content) == (300, Content.of(data))
        assert note.bytes_of_records == sum(map(len, records))
        (tmp_path / "shard").write_bytes(data)
        reader = shards.array_record().ArrayRecordReader(str(tmp_path / "shard"))
        assert reader.read([299, 7]) == [records[299], records[7]]
        assert list(shards.shard_records(io.BytesIO(data), "arrayrecord")) == records
        assert "group_size:1," in reader.writer_options_string()

    def test_records_that_unpack_to_much_are_not_held_together(self) -> None:
        size = 8 << 20
        data, _ = bytes_of(shard_of(*[bytes(size)] * 30, file_format="arrayrecord"))
        assert len(data) < 1 << 20
        tracemalloc.start()
        assert sum(1 for _ in shards.shard_records(io.BytesIO(data), "arrayrecord")) == 30
        assert tracemalloc.get_traced_memory()[1] < 4 * size
        tracemalloc.stop()

    def test_bad_records_are_skipped_or_end_it(self) -> None:
        shard = shard_of(b"one", BAD, b"two", file_format="arrayrecord")
        data, note = bytes_of(shard, skip_bad=True)
        assert list(shards.shard_records(io.BytesIO(data), "arrayrecord")) == [b"one", b"two"]
        assert (note.skipped, note.bad, note.entry.records) == (1, (BAD,), 2)
        with pytest.raises(BadRecordsError):
            bytes_of(shard)

    @pytest.mark.parametrize("flip", [0, 100, -1])
    def test_a_damaged_or_cut_file_is_refused(self, flip: int) -> None:
        data, note = bytes_of(shard_of(b"one", b"two" * 100, file_format="arrayrecord"))
        broken = bytearray(data)
        broken[flip] ^= 1
        for wrong in (bytes(broken), data[:-1], b"", data + data):
            with pytest.raises(UsageError, match=r"^d-train\.array_record-00000-of-00001") as caught:
                shards.verify_shard(io.BytesIO(wrong), note.entry, "arrayrecord")
            assert caught.value.facts["file"] == note.entry.file

    def test_a_process_that_is_killed_leaves_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        for _ in shard_of(b"one", b"two", file_format="arrayrecord").stream():
            assert not list(tmp_path.iterdir())

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
    def test_a_full_disk_is_said_with_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = shards.array_record().ArrayRecordWriter
        # no real disk gets full at a chosen moment
        monkeypatch.setattr(
            shards.array_record(), "ArrayRecordWriter", lambda path, options: writer("/dev/full", options)
        )
        with pytest.raises(StateError, match=r"Cannot write a shard to '.*': .*No space left") as caught:
            bytes_of(shard_of(b"one", file_format="arrayrecord"))
        assert "TMPDIR=" in caught.value.hint


def test_without_the_library_array_record_is_refused_before_anything_is_read(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    with pytest.raises(ConfigError, match="array_record, which is not installed"):
        plan(tree({"cat": 2}), name="pets", file_format="arrayrecord")


@given(
    st.integers(1, 10**7),
    st.integers(0, 10**13),
    st.sampled_from([1, 2, 4, 16, 64]),
    st.integers(MIN_SIZE, MAX_SIZE),
)
def test_the_count_is_a_multiple_of_the_hosts_within_records_and_bounds(
    records: int, size: int, hosts: int, target: int
) -> None:
    count = choose_count(records, size, hosts=hosts, target=target).count
    assert 1 <= count <= records
    if records >= hosts:
        assert count % hosts == 0
    if count + hosts <= records and count > hosts:
        assert size / count >= MIN_SIZE or size / (count - hosts) > MAX_SIZE
    if count + hosts <= records:
        assert size / count <= MAX_SIZE


@pytest.mark.parametrize(
    ("records", "size", "hosts", "count", "why"),
    [
        (1_797, 500_000, 1, 1, "500 kB in one file"),
        (1_797, 500_000, 4, 4, "one for each of the 4 hosts, 125 kB each"),
        (10_000, 1_030_000_000, 1, 10, "103 MB each, near the target of 100 MB"),
        (10_000, 1_030_000_000, 4, 12, "85.8 MB each, near the target of 100 MB, a multiple of the 4 hosts"),
        (3, 900, 4, 3, "one record each; some of the 4 hosts will read nothing"),
        (7, 10_000_000_000, 4, 4, "at most the 7 records, and the same for each host"),
    ],
)
def test_the_count_comes_with_its_reason(records: int, size: int, hosts: int, count: int, why: str) -> None:
    chosen = choose_count(records, size, hosts=hosts, target=DEFAULT_SIZE)
    assert (chosen.count, chosen.why) == (count, why)


@given(st.integers(1, 10**9), st.data())
def test_shards_differ_by_one_record_at_most_and_leave_none_out(records: int, data: st.DataObject) -> None:
    starts = bounds(records, data.draw(st.integers(1, min(records, 300))))
    lengths = [stop - start for start, stop in pairwise(starts)]
    assert max(lengths) - min(lengths) <= 1
    assert (starts[0], starts[-1]) == (0, records)


@pytest.mark.parametrize(
    ("shards", "hosts", "message"),
    [
        (0, 1, "A split cannot have 0 shards"),
        (6, 4, "6 shards cannot be shared evenly by 4 hosts"),
        (12, 1, "The split 'test' has 10 records, fewer than 12 shards"),
    ],
)
def test_a_count_that_cannot_be_is_refused(shards: int, hosts: int, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        fixed_count(shards, 10, hosts=hosts, split="test")
    assert caught.value.hint


def test_files_are_named_as_tfds_names_them() -> None:
    assert shard_file("digits", "train", 3, 16) == "digits-train.tfrecord-00003-of-00016"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (999_000, "999 kB"),
        (1_000_000, "1 MB"),
        (67_108_864, "67.1 MB"),
        (999_000_000, "999 MB"),
        (1_000_000_000, "1 GB"),
        (150_000_000_000, "150 GB"),
    ],
)
def test_sizes_have_three_digits_and_a_unit(size: int, text: str) -> None:
    assert readable_size(size) == text


@pytest.mark.parametrize(
    ("records", "size", "hosts", "count", "why"),
    [
        (10, 5_000_000, 1, 1, "5 MB in one file"),
        (1000, 1_000_000_000, 1, 10, "100 MB each, near the target of 100 MB"),
        (1000, 400_000_000, 4, 4, "one for each of the 4 hosts, 100 MB each"),
        (1000, 1_600_000_000, 4, 16, "100 MB each, near the target of 100 MB, a multiple of the 4 hosts"),
        (3, 400_000_000, 4, 3, "one record each; some of the 4 hosts will read nothing"),
        (10, 1_600_000_000, 4, 8, "at most the 10 records, and the same for each host"),
    ],
)
def test_the_reason_for_a_count_is_in_words(
    records: int, size: int, hosts: int, count: int, why: str
) -> None:
    chosen = choose_count(records, size, hosts=hosts)
    assert (chosen.count, chosen.why) == (count, why)


def test_bounds_and_target_are_those_of_tfds_and_tensorflows_guide() -> None:
    assert (MIN_SIZE, MAX_SIZE, DEFAULT_SIZE) == (67_108_864, 1_073_741_824, 100_000_000)
