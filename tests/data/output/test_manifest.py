"""What a manifest says of a dataset, and whether its shards are what it says."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest

from tests.data.source_trees import Tree, bytes_of, produce
from tests.data.sources.annotated.trees import write_coco
from tpuctl.bucket_objects import BadObjectError
from tpuctl.data.options import BadRecord
from tpuctl.data.output.manifest import Manifest, ShardEntry, decode_manifest, encode_manifest
from tpuctl.data.output.shards import verify_shard
from tpuctl.data.plan import plan
from tpuctl.errors import UsageError


@pytest.fixture
def manifest(tree: Tree) -> Manifest:
    return decode_manifest(produce(plan(tree({"cat": 2}), name="pets"))["manifest.json"])


def test_a_manifest_reads_back_as_it_was(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_the_digest_is_of_the_data_and_not_of_the_program(manifest: Manifest) -> None:
    assert msgspec.structs.replace(manifest, tpuctl="9.9.9").digest == manifest.digest
    assert msgspec.structs.replace(manifest, version="9.9.9").digest != manifest.digest


def test_the_digest_depends_on_which_records_are_bad_and_not_on_how_that_is_worded(
    manifest: Manifest,
) -> None:
    def skipping(record: BadRecord) -> str:
        source = msgspec.structs.replace(manifest.source, skipped=1, bad=(record,))
        return msgspec.structs.replace(manifest, source=source).digest

    assert skipping(BadRecord("a.csv", "is wrong", 3, "Fix it")) == skipping(BadRecord("a.csv", "is bad", 3))
    assert skipping(BadRecord("a.csv", "is wrong", 3)) != skipping(BadRecord("a.csv", "is wrong", 4))


def test_a_manifest_of_a_later_schema_asks_for_an_update(manifest: Manifest) -> None:
    with pytest.raises(BadObjectError, match="schema 99") as caught:
        decode_manifest(encode_manifest(msgspec.structs.replace(manifest, schema=99)))
    assert caught.value.hint == "Update tpuctl."


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema": 1}'])
def test_what_is_no_manifest_is_a_clear_error(data: bytes) -> None:
    with pytest.raises(BadObjectError, match="not a dataset's manifest"):
        decode_manifest(data)


def test_a_manifest_of_the_first_schema_is_still_read(manifest: Manifest) -> None:
    content = json.loads(encode_manifest(manifest))
    content["schema"] = 1
    assert content["source"].keys() == {"kind", "fingerprint", "seed"}
    assert decode_manifest(json.dumps(content).encode()) == msgspec.structs.replace(manifest, schema=1)


def test_a_manifest_asks_for_an_update_only_where_an_earlier_tpuctl_lacks_a_feature(
    manifest: Manifest, tmp_path: Path
) -> None:
    assert manifest.schema == 2
    write_coco(tmp_path / "coco")
    with_boxes = decode_manifest(produce(plan(tmp_path / "coco", name="boxes"))["manifest.json"])
    assert with_boxes.schema == 3
    assert decode_manifest(encode_manifest(with_boxes)) == with_boxes
    assert with_boxes.classes == ("cat", "dog")


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
