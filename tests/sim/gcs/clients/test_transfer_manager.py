"""Many files and large ones through google-cloud-storage's transfer manager: in slices, in parts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager

from tests.sim.gcs.running_server import RunningGcs

MIB = 1 << 20


def test_many_files_go_up_and_come_down(bucket: storage.Bucket, tmp_path: Path) -> None:
    source, target = tmp_path / "up", tmp_path / "down"
    source.mkdir()
    target.mkdir()
    names = [f"shard-{number:03}" for number in range(40)]
    for name in names:
        (source / name).write_bytes(os.urandom(10_000))
    failures = transfer_manager.upload_many_from_filenames(
        bucket, names, source_directory=str(source), blob_name_prefix="data/", worker_type="thread"
    )
    assert failures == [None] * len(names)
    skipped = transfer_manager.upload_many_from_filenames(
        bucket, names[:3], source_directory=str(source), blob_name_prefix="data/",
        skip_if_exists=True, worker_type="thread",
    )  # fmt: skip
    assert all(isinstance(error, exceptions.PreconditionFailed) for error in skipped)
    assert {blob.metageneration for blob in bucket.list_blobs(prefix="data/")} == {1}
    transfer_manager.download_many_to_path(
        bucket, names, destination_directory=str(target), blob_name_prefix="data/", worker_type="thread"
    )
    assert all((target / name).read_bytes() == (source / name).read_bytes() for name in names)


@pytest.mark.parametrize("checksum", ["auto", "md5", None])
def test_a_large_file_goes_up_in_parts(
    gcs: RunningGcs, bucket: storage.Bucket, tmp_path: Path, checksum: str | None
) -> None:
    data = os.urandom(23 * MIB + 17)
    (tmp_path / "big").write_bytes(data)
    blob = bucket.blob("dir/größe")
    blob.metadata = {"k": "v"}
    transfer_manager.upload_chunks_concurrently(
        str(tmp_path / "big"), blob, chunk_size=5 * MIB, worker_type="thread", checksum=checksum
    )
    again = bucket.get_blob("dir/größe")
    assert (again.size, again.metadata, again.md5_hash) == (len(data), {"k": "v"}, None)
    assert again.download_as_bytes(checksum="crc32c") == data


def test_a_large_object_comes_down_in_slices(bucket: storage.Bucket, tmp_path: Path) -> None:
    data = os.urandom(11 * MIB + 5)
    blob = bucket.blob("big")
    blob.upload_from_string(data)
    transfer_manager.download_chunks_concurrently(
        blob, str(tmp_path / "big"), chunk_size=2 * MIB, worker_type="thread"
    )
    assert (tmp_path / "big").read_bytes() == data


def test_a_failed_upload_in_parts_is_aborted(bucket: storage.Bucket, gcs: RunningGcs, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 6 * MIB)
    blob = bucket.blob("a", chunk_size=None)
    blob.upload_from_string(b"old")
    with pytest.raises(Exception, match="400"):
        transfer_manager.upload_chunks_concurrently(
            str(tmp_path / "big"), blob, chunk_size=1 * MIB, worker_type="thread"
        )
    assert bucket.blob("a").download_as_bytes() == b"old"
    assert list(gcs.server.store.database.rows(str, "select id from multiparts")) == []
