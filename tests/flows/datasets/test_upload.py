"""Uploading: all of a dataset or nothing of it, whatever happens on the way."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.data.source_trees import produce, write_image
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.data.bad_records import BadRecordsError
from tpuctl.data.output.manifest import FILE, decode_manifest
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.errors import ConflictError, NotFoundError, TpuctlError, UsageError
from tpuctl.flows.datasets import conversion
from tpuctl.flows.datasets.check import verify
from tpuctl.flows.datasets.conversion import Done
from tpuctl.flows.datasets.lookup import find
from tpuctl.flows.datasets.removal import removal, remove
from tpuctl.flows.datasets.staging import Staging
from tpuctl.flows.datasets.upload import Uploaded, upload

FOLDER = "datasets/pets/1.0.0/"


def planned(root: Path, **options: Any) -> DatasetPlan:
    return plan(root, **{"name": "pets", "shards": 4, **options})


def send(bucket: Bucket, wanted: DatasetPlan, **options: Any) -> Uploaded:
    return upload(bucket, wanted, lambda done: None, **options)


def names(bucket: Bucket) -> list[str]:
    return [one.name.removeprefix(FOLDER) for one in bucket.objects(FOLDER)]


def is_whole_or_not_there(bucket: Bucket) -> bool:
    """Tell whether there is a dataset; fails when it is a half one."""
    manifest = find(bucket, "pets", "1.0.0")
    if manifest:
        verify(bucket, manifest, deep=True, progress=lambda done, total: None)
    return manifest is not None


def test_what_is_uploaded_is_what_the_plan_makes_and_nothing_else_stays(
    bucket: Bucket, pictures: Path
) -> None:
    done = send(bucket, planned(pictures))
    made = produce(planned(pictures))
    assert {name: bucket.read(FOLDER + name) for name in names(bucket)} == made
    assert (done.already_there, done.kept, done.manifest.records) == (False, 0, 8)


def test_progress_is_told_up_to_the_end(bucket: Bucket, pictures: Path) -> None:
    told: list[Done] = []
    wanted = planned(pictures)
    upload(bucket, wanted, told.append)
    assert told[-1] == Done(8, 8, wanted.bytes)
    assert [one.records for one in told] == sorted(one.records for one in told)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_at_any_request_leaves_all_or_nothing_and_the_next_upload_completes_it(
    bucket: Bucket, simulator: Any, pictures: Path, when: str
) -> None:
    """403 is not tried again: to the upload it is the end, as a kill at that moment would be."""
    wanted = planned(pictures, shards=2)
    digest = send(bucket, wanted).manifest.digest
    request, failed = 0, True
    while failed:
        remove(bucket, removal(bucket, "pets"))
        fault = simulator.faults.add("gcs-error", status="403", when=when, skip=request, count=1)
        try:
            send(bucket, wanted)
        except TpuctlError:
            pass
        failed = fault.id not in {one.id for one in simulator.faults.all()}
        if not failed:
            simulator.faults.remove(fault.id)
        is_whole_or_not_there(bucket)
        assert send(bucket, wanted).manifest.digest == digest
        assert is_whole_or_not_there(bucket)
        assert not [name for name in names(bucket) if name.startswith("staging/") or name == "commit.json"]
        request += 1
    assert request > 15


@pytest.mark.parametrize("kind", ["gcs-error", "gcs-reset"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_service_that_fails_for_a_moment_is_tried_again(
    bucket: Bucket, simulator: Any, pictures: Path, kind: str, when: str
) -> None:
    for skip in (0, 3, 6):
        simulator.faults.add(kind, method="storage.objects.*", when=when, skip=skip, count=1)
    send(bucket, planned(pictures))
    assert is_whole_or_not_there(bucket)
    assert simulator.faults.all() == []


def test_a_cut_connection_costs_nothing(bucket: Bucket, simulator: Any, tmp_path: Path) -> None:
    for index in range(4):
        write_image(tmp_path / "in" / "cat" / f"{index}.png", size=(8, 6))
        with (tmp_path / "in" / "cat" / f"{index}.png").open("ab") as stream:
            stream.write(os.urandom(3_000_000))
    simulator.faults.add(
        "gcs-cut", method="storage.objects.create", object="*.tfrecord", bytes=1_000_000, count=2
    )
    send(bucket, planned(tmp_path / "in", shards=2))
    assert is_whole_or_not_there(bucket)
    assert simulator.faults.all() == []


@pytest.mark.parametrize("times", [1, 3])
def test_what_arrives_damaged_is_sent_again_and_never_published(
    bucket: Bucket, simulator: Any, pictures: Path, times: int
) -> None:
    last = list(planned(pictures).shards())[-1].identity
    # of two requests for it the first only opens a session
    simulator.faults.add(
        "gcs-corrupt", method="storage.objects.create", object=f"*{last}.tfrecord", at=50, count=2 * times
    )
    if times == 3:
        with pytest.raises(TpuctlError, match="00003-of-00004 arrived damaged"):
            send(bucket, planned(pictures))
        assert not is_whole_or_not_there(bucket)
    assert send(bucket, planned(pictures)).manifest.records == 8
    assert is_whole_or_not_there(bucket)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards are made in turn: which of them are whole when one fails is then no matter of luck."""
    monkeypatch.setattr(conversion, "WIDTH", 1)


@pytest.mark.usefixtures("one_at_a_time")
def test_only_missing_shards_are_made_again(bucket: Bucket, simulator: Any, pictures: Path) -> None:
    wanted = planned(pictures)
    last = list(wanted.shards())[-1].identity
    fault = simulator.faults.add(
        "gcs-error", status="403", method="storage.objects.create", object=f"*{last}*"
    )
    with pytest.raises(TpuctlError):
        send(bucket, wanted)
    simulator.faults.remove(fault.id)
    told: list[Done] = []
    done = upload(bucket, planned(pictures), told.append)
    assert done.kept == 3
    assert told[-1].records == 8
    assert told[-1].bytes < wanted.bytes / 2
    assert is_whole_or_not_there(bucket)


@pytest.mark.usefixtures("one_at_a_time")
def test_a_mended_picture_costs_its_own_shard_alone(bucket: Bucket, pictures: Path) -> None:
    wanted = planned(pictures)
    (bad,) = list(wanted.shards())[-1].indices()
    file = pictures / ("cat", "dog")[bad[0] // 4] / f"{bad[0] % 4}.png"
    file.write_bytes(b"")
    with pytest.raises(BadRecordsError):
        send(bucket, planned(pictures))
    write_image(file, shade=99)
    assert send(bucket, planned(pictures)).kept == 3


def break_off(bucket: Bucket, simulator: Any, root: Path) -> None:
    """Have an upload end when all shards are staged, and nothing is decided yet."""
    simulator.faults.add(
        "gcs-error", status="403", method="storage.objects.create", object="*/commit.json", count=1
    )
    with pytest.raises(TpuctlError):
        send(bucket, planned(root))


def test_what_another_upload_clears_up_meanwhile_is_made_anew(
    bucket: Bucket, simulator: Any, pictures: Path
) -> None:
    break_off(bucket, simulator, pictures)
    staging = Staging(bucket, "pets", "1.0.0")
    shard = next(planned(pictures).shards())
    assert staging.kept(shard, skip_bad=False)
    remove(bucket, removal(bucket, "pets"))
    assert staging.kept(shard, skip_bad=False) is None


def test_another_seed_keeps_nothing(bucket: Bucket, simulator: Any, pictures: Path) -> None:
    break_off(bucket, simulator, pictures)
    assert send(bucket, planned(pictures, seed=1)).kept == 0
    assert is_whole_or_not_there(bucket)


def test_of_two_uploads_at_once_one_wins_and_the_other_says_so(bucket: Bucket, pictures: Path) -> None:
    """Both are past their own look for a dataset when either begins to send."""
    results: dict[int, object] = {}
    met = threading.Barrier(2)

    def one(seed: int) -> None:
        cloud = connect(load({}))
        waited: list[Done] = []

        def wait_for_the_other(done: Done) -> None:
            if done.records == 8 and not waited:
                waited.append(done)
                met.wait(60)

        try:
            results[seed] = upload(cloud.bucket, planned(pictures, seed=seed), wait_for_the_other)
        except TpuctlError as error:
            results[seed] = error
        cloud.close()

    both = [threading.Thread(target=one, args=(seed,)) for seed in (1, 2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    (won,) = (one for one in results.values() if isinstance(one, Uploaded))
    (lost,) = (one for one in results.values() if isinstance(one, ConflictError))
    assert "Version 1.0.0 of the dataset 'pets' exists with other content" in lost.message
    assert find(bucket, "pets", "1.0.0") == won.manifest
    assert is_whole_or_not_there(bucket)


def test_two_uploads_of_the_same_at_once_both_succeed(bucket: Bucket, pictures: Path) -> None:
    results: list[object] = []

    def one() -> None:
        cloud = connect(load({}))
        try:
            results.append(send(cloud.bucket, planned(pictures)).manifest)
        except TpuctlError as error:
            results.append(error)
        cloud.close()

    both = [threading.Thread(target=one) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert results == [find(bucket, "pets", "1.0.0")] * 2
    assert is_whole_or_not_there(bucket)


def test_an_upload_that_was_asleep_cannot_bring_a_removed_dataset_back(
    bucket: Bucket, simulator: Any, pictures: Path
) -> None:
    """It slept before the very last step, while its dataset was finished by another, and then removed."""
    simulator.faults.add(
        "gcs-error", status="403", object="*/manifest.json", method="storage.objects.create", count=1
    )
    with pytest.raises(TpuctlError):
        send(bucket, planned(pictures))
    decided = bucket.stat(FOLDER + "commit.json")
    assert decided
    assert send(bucket, planned(pictures)).already_there
    remove(bucket, removal(bucket, "pets/1.0.0"))
    with pytest.raises(NotFoundError):
        bucket.copy(decided, FOLDER + FILE)
    assert names(bucket) == []


def test_a_source_that_changes_under_way_is_noticed(bucket: Bucket, pictures: Path) -> None:
    wanted = planned(pictures)
    write_image(pictures / "dog" / "3.png", shade=77)
    with pytest.raises(
        UsageError, match=r"The source changed during the conversion: 'dog/3\.png' has changed"
    ):
        send(bucket, wanted)
    assert not is_whole_or_not_there(bucket)


def test_all_that_is_bad_is_named_at_once(bucket: Bucket, pictures: Path) -> None:
    for index in range(4):
        (pictures / "cat" / f"{index}.png").write_bytes(b"")
        (pictures / "dog" / f"{index}.png").write_bytes(b"text")
    with pytest.raises(BadRecordsError) as caught:
        send(bucket, planned(pictures))
    named = "; ".join(f"'cat/{index}.png' is empty" for index in range(4))
    assert caught.value.message == (
        f"8 records cannot be used: {named}; 'dog/0.png' is not a PNG or JPEG image; and 3 more."
    )
    assert "--skip-bad" in caught.value.hint
    assert not is_whole_or_not_there(bucket)


def test_bad_records_are_skipped_when_asked_and_those_of_kept_shards_are_not_forgotten(
    bucket: Bucket, simulator: Any, pictures: Path
) -> None:
    (pictures / "cat" / "2.png").write_bytes(b"")
    fault = simulator.faults.add(
        "gcs-error", status="403", method="storage.objects.create", object="*commit.json"
    )
    with pytest.raises(TpuctlError):
        send(bucket, planned(pictures), skip_bad=True)
    simulator.faults.remove(fault.id)
    with pytest.raises(BadRecordsError):
        send(bucket, planned(pictures))
    done = send(bucket, planned(pictures), skip_bad=True)
    assert done.kept == 4
    assert (done.manifest.records, done.manifest.source.skipped) == (7, 1)
    assert [str(one) for one in done.manifest.source.bad] == ["'cat/2.png' is empty"]
    assert is_whole_or_not_there(bucket)


def test_what_is_there_already_is_compared_and_not_sent(bucket: Bucket, pictures: Path) -> None:
    send(bucket, planned(pictures))
    before = bucket.objects(FOLDER)
    assert send(bucket, planned(pictures)).already_there
    write_image(pictures / "dog" / "3.png", shade=77)
    for options in ({}, {"shards": 2}):
        with pytest.raises(ConflictError, match="exists with other content"):
            send(bucket, planned(pictures, **options))
    assert bucket.objects(FOLDER) == before


def test_a_failure_at_any_request_of_a_removal_leaves_all_or_nothing(
    bucket: Bucket, simulator: Any, pictures: Path
) -> None:
    """And what it leaves does not get into the next dataset, which has other shards of the same names."""
    count = len(removal(bucket, send(bucket, planned(pictures, shards=2)).manifest.name).objects)
    for request in range(count):
        fault = simulator.faults.add(
            "gcs-error", status="403", method="storage.objects.delete", skip=request, count=1
        )
        with pytest.raises(TpuctlError):
            remove(bucket, removal(bucket, "pets/1.0.0"))
        assert fault.id not in {one.id for one in simulator.faults.all()}
        if not is_whole_or_not_there(bucket):
            send(bucket, planned(pictures, shards=2, seed=request + 1))
        assert is_whole_or_not_there(bucket)
    remove(bucket, removal(bucket, "pets"))
    with pytest.raises(NotFoundError, match="There is no dataset 'pets'"):
        removal(bucket, "pets")


def test_a_removal_that_may_not_delete_the_manifest_deletes_nothing(
    bucket: Bucket, simulator: Any, pictures: Path
) -> None:
    send(bucket, planned(pictures))
    simulator.faults.add("gcs-error", status="403", method="storage.objects.delete", object="*/manifest.json")
    with pytest.raises(TpuctlError):
        remove(bucket, removal(bucket, "pets"))
    assert is_whole_or_not_there(bucket)


def test_a_removal_leaves_a_later_dataset_alone(bucket: Bucket, pictures: Path) -> None:
    """One that was planned before, and slept."""
    send(bucket, planned(pictures))
    asleep = removal(bucket, "pets")
    remove(bucket, asleep)
    send(bucket, planned(pictures, seed=1))
    remove(bucket, asleep)
    assert is_whole_or_not_there(bucket)
    assert decode_manifest(bucket.read(FOLDER + FILE)).source.seed == 1
