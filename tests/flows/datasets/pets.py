"""The dataset of pictures of pets that the tests of uploads send, and what they look for in the bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.datasets import DatasetRef
from tpuctl.errors import TpuctlError
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.datasets.pull import verify
from tpuctl.flows.datasets.rm import plan_removal, remove
from tpuctl.flows.datasets.upload import Uploaded, upload

PETS = DatasetRef("pets", "1.0.0")


def plan_pets(root: Path, *, shards: int = 4, seed: int = 0) -> DatasetPlan:
    return plan(root, name=PETS.name, shards=shards, seed=seed)


def send(bucket: Bucket, plan: DatasetPlan, *, skip_bad: bool = False) -> Uploaded:
    return upload(bucket, plan, lambda progress: None, skip_bad=skip_bad)


def remove_pets(bucket: Bucket) -> None:
    remove(bucket, plan_removal(bucket, DatasetRef.parse("pets")))


def names(bucket: Bucket) -> list[str]:
    """Return the names of all objects in the dataset's folder."""
    return [listed.name.removeprefix(PETS.folder) for listed in bucket.objects(PETS.folder)]


def exists(bucket: Bucket) -> bool:
    """Return whether there is a dataset; fails when it is incomplete."""
    manifest = find_manifest(bucket, PETS)
    if manifest:
        verify(bucket, manifest, deep=True, report=lambda checked, total: None)
    return manifest is not None


def break_off(bucket: Bucket, simulator: RunningSimulator, root: Path) -> None:
    """Have an upload end when all shards are staged, and nothing is decided yet."""
    simulator.faults.add(
        "gcs-error", status="403", method="storage.objects.create", object="*/commit.json", count=1
    )
    with pytest.raises(TpuctlError):
        send(bucket, plan_pets(root))
