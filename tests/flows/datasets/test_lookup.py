"""Datasets by their references: the newest version, the nearest name, all of them in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.datasets.pets import plan_pets, send
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import plan
from tpuctl.datasets import DatasetRef
from tpuctl.errors import NotFoundError
from tpuctl.flows.datasets.lookup import find_manifest, list_manifests, pin, read_manifest


def send_version(bucket: Bucket, root: Path, name: str, version: str) -> str:
    """Upload a dataset and return the digest of its manifest."""
    return send(bucket, plan(root, name=name, version=version, shards=1)).manifest.digest


def test_without_a_version_the_newest_is_meant_by_its_numbers(bucket: Bucket, pictures: Path) -> None:
    for version in ("1.9.0", "1.10.0", "1.2.0"):
        send_version(bucket, pictures, "pets", version)
    assert read_manifest(bucket, DatasetRef.parse("pets")).version == "1.10.0"
    assert read_manifest(bucket, DatasetRef.parse("pets/1.2.0")).version == "1.2.0"


def test_a_version_without_a_manifest_and_other_folders_are_passed_over(
    bucket: Bucket, pictures: Path
) -> None:
    send_version(bucket, pictures, "pets", "1.0.0")
    for folder in ("2.0.0", "notes"):
        bucket.upload(f"datasets/pets/{folder}/staging/x", [b"x"], "text/plain")
    assert read_manifest(bucket, DatasetRef.parse("pets")).version == "1.0.0"
    with pytest.raises(NotFoundError, match=r"There is no dataset 'pets/2\.0\.0'") as missing:
        read_manifest(bucket, DatasetRef.parse("pets/2.0.0"))
    assert missing.value.hint == "Upload it: tpuctl data upload pets FOLDER"
    assert missing.value.facts["dataset"] == "pets/2.0.0"


def test_a_missing_dataset_names_the_nearest(bucket: Bucket, pictures: Path) -> None:
    send(bucket, plan_pets(pictures))
    with pytest.raises(NotFoundError, match="There is no dataset 'pest' in gs://sim-project") as missing:
        read_manifest(bucket, DatasetRef.parse("pest"))
    assert missing.value.hint == "Did you mean pets?"


def test_find_returns_none_for_what_is_not_there(bucket: Bucket) -> None:
    assert find_manifest(bucket, DatasetRef("pets", "1.0.0")) is None


def test_every_version_of_every_dataset_is_listed_by_name(bucket: Bucket, pictures: Path) -> None:
    for name, version in (("pets", "1.0.1"), ("cats", "1.0.0"), ("pets", "1.0.0")):
        send_version(bucket, pictures, name, version)
    listed = [(manifest.name, manifest.version) for manifest in list_manifests(bucket)]
    assert listed == [("cats", "1.0.0"), ("pets", "1.0.0"), ("pets", "1.0.1")]


def test_a_run_pins_the_very_content(bucket: Bucket, pictures: Path) -> None:
    digest = send_version(bucket, pictures, "pets", "1.0.0")
    pinned = pin(bucket, DatasetRef.parse("pets"))
    assert (pinned.name, pinned.version, pinned.manifest_sha256) == ("pets", "1.0.0", digest)
