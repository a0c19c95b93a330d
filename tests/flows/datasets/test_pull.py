"""A dataset on this machine: what its manifest says, whole once the manifest is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.datasets.pets import PETS, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import FILE, Manifest
from tpuctl.errors import StateError, TpuctlError, UsageError
from tpuctl.flows.datasets.pull import DatasetCopy, pull


@pytest.fixture
def manifest(bucket: Bucket, pictures: Path) -> Manifest:
    return send(bucket, plan_pets(pictures, shards=8)).manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pets"


def fetch(bucket: Bucket, manifest: Manifest, folder: Path) -> DatasetCopy:
    return pull(bucket, manifest, folder, lambda text: None, lambda here, size: None)


def test_the_folder_has_what_the_bucket_has(bucket: Bucket, manifest: Manifest, folder: Path) -> None:
    copy = fetch(bucket, manifest, folder)
    stored = {
        item.name.removeprefix(PETS.folder): bucket.read(item.name) for item in bucket.objects(PETS.folder)
    }
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == stored
    assert copy == DatasetCopy(folder, len(stored) - 1, copy.size, 0)
    assert fetch(bucket, manifest, folder).unchanged == copy.files


def test_one_that_broke_off_has_no_manifest_and_is_resumed(
    bucket: Bucket, simulator: RunningSimulator, manifest: Manifest, folder: Path
) -> None:
    fetch(bucket, manifest, folder)
    shard = manifest.shards[3].file
    (folder / shard).write_bytes(b"damaged")
    fault = simulator.faults.add("gcs-error", status="403", method="storage.objects.get", object=f"*/{shard}")
    with pytest.raises(TpuctlError):
        fetch(bucket, manifest, folder)
    assert not (folder / FILE).exists()
    simulator.faults.remove(fault.id)
    copy = fetch(bucket, manifest, folder)
    assert copy.unchanged == copy.files - 1
    assert (folder / FILE).exists()


def test_a_folder_with_something_else_is_left_alone(bucket: Bucket, manifest: Manifest, folder: Path) -> None:
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"has files that are not of dataset pets/1\.0\.0"):
        fetch(bucket, manifest, folder)
    assert [path.name for path in folder.iterdir()] == ["photo.jpg"]


def test_a_shard_that_the_manifest_does_not_know_so_is_refused(
    bucket: Bucket, manifest: Manifest, folder: Path
) -> None:
    shard = manifest.shards[0].file
    bucket.upload(f"{PETS.folder}{shard}", [b"other"], "application/octet-stream")
    with pytest.raises(
        StateError, match=f"{shard} of the dataset .* is not what its manifest says"
    ) as refused:
        fetch(bucket, manifest, folder)
    assert refused.value.hint == "tpuctl data verify pets/1.0.0"
    assert not folder.exists()
