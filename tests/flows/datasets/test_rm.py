"""Removing: the dataset first, its objects then, and an upload that slept cannot bring it back."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.bucket_objects.records import MANIFEST
from tests.flows.datasets.pets import PETS, exists, names, plan_pets, remove_pets, send
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.data.output.manifest import FILE, decode_manifest, encode_manifest
from tpuctl.datasets import DatasetRef
from tpuctl.errors import NotFoundError, TpuctlError, UsageError
from tpuctl.flows.datasets.rm import Removal, plan_removal, remove
from tpuctl.flows.progress import Report, silent


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


class TestPlan:
    """In a bucket in memory."""

    @pytest.fixture
    def memory(self) -> MemoryBucket:
        memory = MemoryBucket()
        for version in ("1.0.0", "2.0.0"):
            for file in ("manifest.json", "a-shard", "commit.json", "z-shard"):
                memory.put(f"datasets/pets/{version}/{file}", file.encode())
        return memory

    def plan(self, memory: MemoryBucket, ref: str, warn: Report = silent) -> Removal:
        return plan_removal(cast("Bucket", memory), DatasetRef.parse(ref), warn)

    def test_begins_with_the_decision_and_the_manifest(self, memory: MemoryBucket) -> None:
        planned = self.plan(memory, "pets/1.0.0")
        files = [item.name.removeprefix("datasets/pets/1.0.0/") for item in planned.objects]
        assert files == ["commit.json", "manifest.json", "a-shard", "z-shard"]
        assert planned.ref == DatasetRef("pets", "1.0.0")
        assert planned.bytes == sum(map(len, files))

    def test_of_a_manifest_that_cannot_be_read_warns_and_goes_on(self, memory: MemoryBucket) -> None:
        warnings: list[str] = []
        assert self.plan(memory, "pets/1.0.0", warnings.append).manifest is None
        assert [line.split()[0] for line in warnings] == ["datasets/pets/1.0.0/manifest.json"]
        memory.put("datasets/pets/1.0.0/manifest.json", encode_manifest(MANIFEST))
        assert self.plan(memory, "pets/1.0.0", pytest.fail).manifest == MANIFEST

    def test_of_a_name_with_several_versions_names_them(self, memory: MemoryBucket) -> None:
        with pytest.raises(UsageError) as several:
            self.plan(memory, "pets")
        assert several.value.message == "The dataset 'pets' has the versions 1.0.0, 2.0.0."
        assert several.value.hint == "Name one of them: tpuctl data rm pets/2.0.0"
        assert several.value.facts == {"versions": ["1.0.0", "2.0.0"]}

    def test_of_a_name_with_one_version_means_that(self, memory: MemoryBucket) -> None:
        memory.put("datasets/cats/1.0.0/staging/x", b"x")
        memory.put("datasets/cats/notes/x", b"x")
        assert self.plan(memory, "cats").ref == DatasetRef("cats", "1.0.0")

    @pytest.mark.parametrize("ref", ["pets/3.0.0", "dogs"])
    def test_of_what_is_not_there_is_an_error(self, memory: MemoryBucket, ref: str) -> None:
        with pytest.raises(NotFoundError) as missing:
            self.plan(memory, ref)
        assert missing.value.message == f"There is no dataset '{ref}' in gs://b."
        assert missing.value.hint == "See: tpuctl data ls"

    def test_is_carried_out_in_that_order(
        self, memory: MemoryBucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned, removed, real = self.plan(memory, "pets/1.0.0"), list[str](), memory.remove

        def note(item: Object) -> None:
            removed.append(item.name.rpartition("/")[2])
            real(item)

        monkeypatch.setattr(memory, "remove", note)
        remove(cast("Bucket", memory), planned, width=1)
        assert removed == ["commit.json", "manifest.json", "a-shard", "z-shard"]
        assert len(memory.objects("datasets/pets/")) == 4, "the other version"
