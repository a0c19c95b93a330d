"""A dataset in the bucket is what its manifest says, or each difference is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.datasets.pets import PETS, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import Manifest
from tpuctl.errors import StateError
from tpuctl.flows.datasets.pull import verify


def shard(number: int, count: int = 8) -> str:
    return f"pets-train.tfrecord-{number:05}-of-{count:05}"


@pytest.fixture
def uploaded(bucket: Bucket, pictures: Path) -> Manifest:
    """That of eight shards of one record."""
    return send(bucket, plan_pets(pictures, shards=8)).manifest


def difference(bucket: Bucket, uploaded: Manifest, *, deep: bool = False) -> StateError:
    with pytest.raises(StateError) as damaged:
        verify(bucket, uploaded, deep=deep, report=lambda checked, total: None)
    return damaged.value


def remove(bucket: Bucket, file: str) -> None:
    stored = bucket.stat(PETS.folder + file)
    assert stored
    bucket.remove(stored)


@pytest.mark.parametrize("deep", [False, True])
def test_every_file_is_counted_once_up_to_the_last(bucket: Bucket, uploaded: Manifest, deep: bool) -> None:
    reports: list[tuple[int, int]] = []
    verify(bucket, uploaded, deep=deep, report=lambda checked, total: reports.append((checked, total)))
    total = 8 + len(uploaded.files)
    assert reports == [(number, total) for number in range(total + 1)]


def test_only_a_deep_check_reads_records(
    bucket: Bucket, simulator: RunningSimulator, uploaded: Manifest
) -> None:
    def downloads() -> int:
        return len(simulator.events.find(kind="request", service="storage", what="*objects.get"))

    before = downloads()
    verify(bucket, uploaded, deep=False, report=lambda checked, total: None)
    assert downloads() == before
    verify(bucket, uploaded, deep=True, report=lambda checked, total: None)
    assert downloads() >= before + 8


@pytest.mark.parametrize("deep", [False, True])
def test_a_missing_shard_is_named(bucket: Bucket, uploaded: Manifest, deep: bool) -> None:
    remove(bucket, shard(3))
    error = difference(bucket, uploaded, deep=deep)
    assert error.message == f"The dataset pets/1.0.0 is damaged: {shard(3)} is missing."
    assert error.hint == "Remove it: tpuctl data rm pets/1.0.0\nUpload it again: tpuctl data upload"
    assert error.facts["wrong"] == [f"{shard(3)} is missing."]


def test_one_of_the_small_files_is_checked_too(bucket: Bucket, uploaded: Manifest) -> None:
    remove(bucket, "features.json")
    assert "features.json is missing." in difference(bucket, uploaded).message


def test_other_content_of_the_same_size_is_a_difference(bucket: Bucket, uploaded: Manifest) -> None:
    data = bucket.read(PETS.folder + shard(0))
    remove(bucket, shard(0))
    bucket.create(PETS.folder + shard(0), data[::-1])
    assert f"{shard(0)} has crc32c " in difference(bucket, uploaded).message


@pytest.mark.parametrize(("missing", "more"), [(5, ""), (6, " And 1 more."), (8, " And 3 more.")])
def test_five_differences_are_named_and_the_rest_counted(
    bucket: Bucket, uploaded: Manifest, missing: int, more: str
) -> None:
    for number in range(missing):
        remove(bucket, shard(number))
    error = difference(bucket, uploaded)
    named = " ".join(f"{shard(number)} is missing." for number in range(5))
    assert error.message == f"The dataset pets/1.0.0 is damaged: {named}{more}"
    assert len(error.facts["wrong"]) == missing
