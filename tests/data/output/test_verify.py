from __future__ import annotations

import io

import msgspec
import pytest

from tests.data.source_trees import Tree, bytes_of
from tpuctl.data.output.manifest import ShardEntry
from tpuctl.data.output.shards import verify_shard
from tpuctl.data.plan import plan
from tpuctl.errors import UsageError


@pytest.fixture
def shard(tree: Tree) -> tuple[bytes, ShardEntry]:
    shard = next(plan(tree({"cat": 5}), name="pets").shards())
    data, note = bytes_of(shard)
    return data, note.entry


def test_a_whole_shard_passes(shard: tuple[bytes, ShardEntry]) -> None:
    verify_shard(io.BytesIO(shard[0]), shard[1])


def test_a_damaged_shard_is_named_with_the_offset(shard: tuple[bytes, ShardEntry]) -> None:
    data, entry = shard
    broken = bytes([*data[:-1], data[-1] ^ 1])
    with pytest.raises(
        UsageError, match=r"pets-train\.tfrecord-00000-of-00001: The record at byte \d+"
    ) as caught:
        verify_shard(io.BytesIO(broken), entry)
    assert caught.value.facts["file"] == entry.file
    assert caught.value.facts["offset"]


def test_a_shard_that_ends_between_two_records_is_found(shard: tuple[bytes, ShardEntry]) -> None:
    data, entry = shard
    with pytest.raises(UsageError, match="has records 10, and its manifest says 5"):
        verify_shard(io.BytesIO(data + data), entry)


@pytest.mark.parametrize(("field", "value"), [("records", 4), ("bytes", 1), ("crc32c", "AAAAAA==")])
def test_each_difference_from_the_manifest_is_said(
    shard: tuple[bytes, ShardEntry], field: str, value: object
) -> None:
    data, entry = shard
    with pytest.raises(UsageError, match=f"has {field} .*, and its manifest says {value}"):
        verify_shard(io.BytesIO(data), msgspec.structs.replace(entry, **{field: value}))
