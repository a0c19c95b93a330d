"""Datasets by their references: the newest version, the nearest name, all of them in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.flows.datasets.pets import plan_pets, send
from tpuctl.bucket_objects import BadObjectError
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


def damage(bucket: Bucket, *versions: str) -> None:
    for version in versions:
        bucket.upload(f"datasets/pets/{version}/manifest.json", [b"{}"], "application/json")


def test_a_newer_version_that_cannot_be_read_is_named_and_passed_over(bucket: Bucket, pictures: Path) -> None:
    send_version(bucket, pictures, "pets", "1.0.0")
    damage(bucket, "2.0.0", "0.9.0", "3.0.0")
    warned: list[str] = []
    assert read_manifest(bucket, DatasetRef.parse("pets"), warned.append).version == "1.0.0"
    assert [re.findall(r"pets/([0-9.]+)/", line) for line in warned] == [["3.0.0"], ["2.0.0"]]


def test_of_several_that_cannot_be_read_the_newest_is_named(bucket: Bucket) -> None:
    damage(bucket, "1.0.0", "2.0.0")
    warned: list[str] = []
    with pytest.raises(BadObjectError, match=r"pets/2\.0\.0/manifest\.json"):
        read_manifest(bucket, DatasetRef.parse("pets"), warned.append)
    assert warned == []


def test_a_list_names_what_cannot_be_read_and_goes_on(bucket: Bucket, pictures: Path) -> None:
    send_version(bucket, pictures, "pets", "1.0.0")
    damage(bucket, "0.9.0", "2.0.0", "latest")
    warned: list[str] = []
    listed = [manifest.version for manifest in list_manifests(bucket, warned.append)]
    assert listed == ["1.0.0"]
    assert [re.findall(r"pets/([a-z0-9.]+)/", line) for line in warned] == [["0.9.0"], ["2.0.0"], ["latest"]]
    assert "is in a folder that cannot be a dataset's" in warned[2]
