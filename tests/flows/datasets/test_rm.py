"""Removing: the dataset first, its objects then, and an upload that slept cannot bring it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.datasets.pets import PETS, exists, names, plan_pets, remove_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import FILE, decode_manifest
from tpuctl.datasets import DatasetRef
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.flows.datasets.rm import plan_removal, remove


def test_an_upload_that_was_asleep_cannot_bring_a_removed_dataset_back(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    """It slept before the very last step, while its dataset was finished by another, and then removed."""
    simulator.faults.add(
        "gcs-error", status="403", object="*/manifest.json", method="storage.objects.create", count=1
    )
    with pytest.raises(TpuctlError):
        send(bucket, plan_pets(pictures))
    decided = bucket.stat(PETS.folder + "commit.json")
    assert decided
    assert send(bucket, plan_pets(pictures)).already_there
    remove(bucket, plan_removal(bucket, PETS))
    with pytest.raises(NotFoundError):
        bucket.copy(decided, PETS.folder + FILE)
    assert names(bucket) == []


def test_a_failure_at_any_request_of_a_removal_leaves_all_or_nothing(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    """And what it leaves does not get into the next dataset, which has other shards of the same names."""
    send(bucket, plan_pets(pictures, shards=2))
    count = len(plan_removal(bucket, PETS).objects)
    for request in range(count):
        fault = simulator.faults.add(
            "gcs-error", status="403", method="storage.objects.delete", skip=request, count=1
        )
        with pytest.raises(TpuctlError):
            remove(bucket, plan_removal(bucket, PETS))
        assert fault.id not in {fault.id for fault in simulator.faults.all()}
        if not exists(bucket):
            send(bucket, plan_pets(pictures, shards=2, seed=request + 1))
        assert exists(bucket)
    remove_pets(bucket)
    with pytest.raises(NotFoundError, match="There is no dataset 'pets'"):
        plan_removal(bucket, DatasetRef.parse("pets"))


def test_a_removal_that_may_not_delete_the_manifest_deletes_nothing(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    send(bucket, plan_pets(pictures))
    simulator.faults.add("gcs-error", status="403", method="storage.objects.delete", object="*/manifest.json")
    with pytest.raises(TpuctlError):
        remove_pets(bucket)
    assert exists(bucket)


def test_a_removal_leaves_a_later_dataset_alone(bucket: Bucket, pictures: Path) -> None:
    """One that was planned before, and slept."""
    send(bucket, plan_pets(pictures))
    asleep = plan_removal(bucket, PETS)
    remove(bucket, asleep)
    send(bucket, plan_pets(pictures, seed=1))
    remove(bucket, asleep)
    assert exists(bucket)
    assert decode_manifest(bucket.read(PETS.folder + FILE)).source.seed == 1


@pytest.mark.parametrize("folder", ["latest", "99999999999999999999.0.0", "-rf"])
def test_a_folder_that_is_no_version_makes_the_name_no_less_clear(
    bucket: Bucket, pictures: Path, folder: str
) -> None:
    send(bucket, plan_pets(pictures))
    bucket.upload(f"datasets/pets/{folder}/manifest.json", [b"{}"], "application/json")
    remove_pets(bucket)
    assert not exists(bucket)
