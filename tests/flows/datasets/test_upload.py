"""Tests that an upload publishes a complete dataset or nothing, also after failures.

Two uploads of one version at once: one wins, or both succeed with the same.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import msgspec
import pytest

from tests.data.source_trees import damaged_png, produce, write_image
from tests.flows.datasets.pets import PETS, break_off, exists, names, plan_pets, remove_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.config import load
from tpuctl.data.options import BadRecordsError
from tpuctl.data.output.shards import Shard
from tpuctl.errors import ConflictError, DeadlineError, StateError, TpuctlError, UsageError
from tpuctl.flows.datasets import conversion
from tpuctl.flows.datasets.conversion import ConversionProgress
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.datasets.upload import FOLDER, Commit, Staging, Uploaded, upload, version_taken


def test_what_is_uploaded_is_what_the_plan_makes_and_nothing_else_stays(
    bucket: Bucket, pictures: Path
) -> None:
    uploaded = send(bucket, plan_pets(pictures))
    files = produce(plan_pets(pictures))
    assert {name: bucket.read(PETS.folder + name) for name in names(bucket)} == files
    assert (uploaded.already_there, uploaded.kept, uploaded.manifest.records) == (False, 0, 8)


def test_each_file_has_the_type_of_its_content(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    send(bucket, plan_pets(pictures))
    types = {
        name.rpartition(".")[2]: found.text("contentType")
        for name in names(bucket)
        if (found := simulator.gcs.store.objects.find(bucket.name, PETS.folder + name)) and "." in name
    }
    assert (types["json"], types["txt"]) == ("application/json", "text/plain")


def test_progress_is_reported_up_to_the_end(bucket: Bucket, pictures: Path) -> None:
    reported: list[ConversionProgress] = []
    plan = plan_pets(pictures)
    upload(bucket, plan, reported.append)
    assert reported[-1] == ConversionProgress(8, 8, plan.bytes)
    assert [progress.records for progress in reported] == sorted(progress.records for progress in reported)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_at_any_request_leaves_all_or_nothing_and_the_next_upload_completes_it(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path, when: str
) -> None:
    """403 is not tried again: to the upload it is the end, as a kill at that moment would be."""
    plan = plan_pets(pictures, shards=2)
    digest = send(bucket, plan).manifest.digest
    request, failed = 0, True
    while failed:
        remove_pets(bucket)
        fault = simulator.faults.add("gcs-error", status="403", when=when, skip=request, count=1)
        try:
            send(bucket, plan)
        except TpuctlError:
            pass
        failed = fault.id not in {fault.id for fault in simulator.faults.all()}
        if not failed:
            simulator.faults.remove(fault.id)
        exists(bucket)
        assert send(bucket, plan).manifest.digest == digest
        assert exists(bucket)
        assert not [name for name in names(bucket) if name.startswith("staging/") or name == "commit.json"]
        request += 1
    assert request > 15


@pytest.mark.parametrize("kind", ["gcs-error", "gcs-reset"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_service_that_fails_for_a_moment_is_tried_again(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path, kind: str, when: str
) -> None:
    for skip in (0, 3, 6):
        simulator.faults.add(kind, method="storage.objects.*", when=when, skip=skip, count=1)
    send(bucket, plan_pets(pictures))
    assert exists(bucket)
    assert simulator.faults.all() == []


def test_a_cut_connection_costs_nothing(bucket: Bucket, simulator: RunningSimulator, tmp_path: Path) -> None:
    for index in range(4):
        write_image(tmp_path / "in" / "cat" / f"{index}.png", size=(8, 6))
        with (tmp_path / "in" / "cat" / f"{index}.png").open("ab") as stream:
            stream.write(os.urandom(3_000_000))
    simulator.faults.add(
        "gcs-cut", method="storage.objects.create", object="*.tfrecord", bytes=1_000_000, count=2
    )
    send(bucket, plan_pets(tmp_path / "in", shards=2))
    assert exists(bucket)
    assert simulator.faults.all() == []


@pytest.mark.parametrize("times", [1, 3])
def test_what_arrives_damaged_is_sent_again_and_never_published(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path, times: int
) -> None:
    last = list(plan_pets(pictures).shards())[-1].identity
    # of two requests for it the first only opens a session
    simulator.faults.add(
        "gcs-corrupt", method="storage.objects.create", object=f"*{last}.tfrecord", at=50, count=2 * times
    )
    if times == 3:
        with pytest.raises(TpuctlError, match="00003-of-00004 arrived damaged"):
            send(bucket, plan_pets(pictures))
        assert not exists(bucket)
    assert send(bucket, plan_pets(pictures)).manifest.records == 8
    assert exists(bucket)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert shards in turn: which of them are complete when one fails does not depend on luck then."""
    monkeypatch.setattr(conversion, "WIDTH", 1)


@pytest.mark.usefixtures("one_at_a_time")
def test_only_missing_shards_are_made_again(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    plan = plan_pets(pictures)
    last = list(plan.shards())[-1].identity
    fault = simulator.faults.add(
        "gcs-error", status="403", method="storage.objects.create", object=f"*{last}*"
    )
    with pytest.raises(TpuctlError):
        send(bucket, plan)
    simulator.faults.remove(fault.id)
    reported: list[ConversionProgress] = []
    uploaded = upload(bucket, plan_pets(pictures), reported.append)
    assert uploaded.kept == 3
    assert reported[-1].records == 8
    assert reported[-1].bytes < plan.bytes / 2
    assert exists(bucket)


@pytest.mark.usefixtures("one_at_a_time")
def test_a_mended_picture_costs_its_own_shard_alone(bucket: Bucket, pictures: Path) -> None:
    plan = plan_pets(pictures)
    (bad,) = list(plan.shards())[-1].indices()
    file = pictures / ("cat", "dog")[bad[0] // 4] / f"{bad[0] % 4}.png"
    file.write_bytes(damaged_png())  # which its header does not show
    with pytest.raises(BadRecordsError):
        send(bucket, plan_pets(pictures))
    write_image(file, shade=99)
    assert send(bucket, plan_pets(pictures)).kept == 3


def test_what_another_upload_clears_up_meanwhile_is_made_anew(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    break_off(bucket, simulator, pictures)
    staging = Staging(bucket, PETS)
    shard = next(plan_pets(pictures).shards())
    assert staging.find(shard, skip_bad=False)
    remove_pets(bucket)
    assert staging.find(shard, skip_bad=False) is None


def test_another_seed_keeps_nothing(bucket: Bucket, simulator: RunningSimulator, pictures: Path) -> None:
    break_off(bucket, simulator, pictures)
    assert send(bucket, plan_pets(pictures, seed=1)).kept == 0
    assert exists(bucket)


def test_a_source_that_changes_under_way_is_noticed(bucket: Bucket, pictures: Path) -> None:
    plan = plan_pets(pictures)
    write_image(pictures / "dog" / "3.png", shade=77)
    with pytest.raises(
        UsageError, match=r"The source changed during the conversion: 'dog/3\.png' has changed"
    ):
        send(bucket, plan)
    assert not exists(bucket)


def test_all_that_is_bad_is_named_at_once(bucket: Bucket, pictures: Path) -> None:
    for index in range(4):
        (pictures / "cat" / f"{index}.png").write_bytes(b"")
        (pictures / "dog" / f"{index}.png").write_bytes(b"text")
    with pytest.raises(BadRecordsError) as caught:
        send(bucket, plan_pets(pictures))
    named = "; ".join(f"'cat/{index}.png' is empty" for index in range(4))
    assert caught.value.message == (
        f"8 records cannot be used: {named}; 'dog/0.png' is a text, not an image; and 3 more."
    )
    assert "--skip-bad" in caught.value.hint
    assert not exists(bucket)


def test_bad_records_are_skipped_when_asked_and_those_of_kept_shards_are_not_forgotten(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    (pictures / "cat" / "2.png").write_bytes(b"")
    fault = simulator.faults.add(
        "gcs-error", status="403", method="storage.objects.create", object="*commit.json"
    )
    with pytest.raises(TpuctlError):
        send(bucket, plan_pets(pictures), skip_bad=True)
    simulator.faults.remove(fault.id)
    with pytest.raises(BadRecordsError):
        send(bucket, plan_pets(pictures))
    uploaded = send(bucket, plan_pets(pictures), skip_bad=True)
    assert uploaded.kept == 4
    assert (uploaded.manifest.records, uploaded.manifest.source.skipped) == (7, 1)
    assert [str(record) for record in uploaded.manifest.source.bad] == ["'cat/2.png' is empty"]
    assert exists(bucket)


def test_what_is_there_already_is_compared_and_not_sent(bucket: Bucket, pictures: Path) -> None:
    send(bucket, plan_pets(pictures))
    before = bucket.objects(PETS.folder)
    assert send(bucket, plan_pets(pictures)).already_there
    write_image(pictures / "dog" / "3.png", shade=77)
    for options in ({}, {"shards": 2}):
        with pytest.raises(ConflictError, match="exists with other content"):
            send(bucket, plan_pets(pictures, **options))
    assert bucket.objects(PETS.folder) == before


class TestStaging:
    """What an interrupted upload has left is kept if it is complete and just what would be made."""

    @pytest.fixture
    def shard(self, bucket: Bucket, simulator: RunningSimulator, pictures: Path) -> Shard:
        """The first shard of an upload that broke off."""
        break_off(bucket, simulator, pictures)
        return next(plan_pets(pictures).shards())

    def note(self, bucket: Bucket, shard: Shard) -> str:
        return Staging(bucket, PETS).shard_name(shard.identity).replace(".tfrecord", ".json")

    def write(self, bucket: Bucket, name: str, data: bytes) -> None:
        bucket.upload(name, [data], "application/json")

    def test_a_shard_without_its_note_is_made_again(self, bucket: Bucket, shard: Shard) -> None:
        item = bucket.stat(self.note(bucket, shard))
        assert item
        bucket.remove(item)
        assert Staging(bucket, PETS).find(shard, skip_bad=False) is None

    def test_a_note_without_its_shard_keeps_nothing(self, bucket: Bucket, shard: Shard) -> None:
        item = bucket.stat(Staging(bucket, PETS).shard_name(shard.identity))
        assert item
        bucket.remove(item)
        assert Staging(bucket, PETS).find(shard, skip_bad=False) is None

    def test_a_note_that_cannot_be_read_keeps_nothing(self, bucket: Bucket, shard: Shard) -> None:
        self.write(bucket, self.note(bucket, shard), b"{")
        assert Staging(bucket, PETS).find(shard, skip_bad=False) is None

    def test_a_note_of_other_bytes_keeps_nothing(self, bucket: Bucket, shard: Shard) -> None:
        note = Staging(bucket, PETS).find(shard, skip_bad=False)
        assert note
        other = msgspec.structs.replace(note.entry, crc32c="AAAAAA==")
        changed = msgspec.structs.replace(note, entry=other)
        self.write(bucket, self.note(bucket, shard), msgspec.json.encode(changed))
        assert Staging(bucket, PETS).find(shard, skip_bad=False) is None

    def test_a_shard_that_left_records_out_is_kept_only_where_that_is_asked_for(
        self, bucket: Bucket, shard: Shard
    ) -> None:
        note = Staging(bucket, PETS).find(shard, skip_bad=False)
        assert note
        assert Staging(bucket, PETS).find(shard, skip_bad=True) == note
        skipping = msgspec.structs.replace(note, skipped=1)
        self.write(bucket, self.note(bucket, shard), msgspec.json.encode(skipping))
        assert Staging(bucket, PETS).find(shard, skip_bad=False) is None
        assert Staging(bucket, PETS).find(shard, skip_bad=True) == skipping


def test_damaged_shards_are_named_with_what_to_do(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path
) -> None:
    simulator.faults.add("gcs-corrupt", method="storage.objects.create", object="*.tfrecord", at=50)
    with pytest.raises(DeadlineError) as caught:
        send(bucket, plan_pets(pictures, shards=1))
    assert caught.value.message == "pets-train.tfrecord-00000-of-00001 arrived damaged."
    assert caught.value.hint == "Run the same command again: complete shards are kept."


class TestCommit:
    """What was decided by an upload that was killed then, and what has become of its parts since."""

    @pytest.fixture(autouse=True)
    def _decided(self, bucket: Bucket, simulator: RunningSimulator, pictures: Path) -> None:
        fault = simulator.faults.add(
            "gcs-error", status="403", object="*-of-00002", method="storage.objects.create"
        )
        with pytest.raises(TpuctlError):
            send(bucket, plan_pets(pictures, shards=2))
        simulator.faults.remove(fault.id)
        assert bucket.stat(PETS.folder + "commit.json")

    def staged(self, bucket: Bucket, end: str) -> Object:
        return next(item for item in bucket.objects(PETS.folder + FOLDER) if item.name.endswith(end))

    def lost(self, bucket: Bucket) -> StateError:
        with pytest.raises(StateError) as caught:
            Commit(bucket, PETS).complete()
        hint = r"([0-9] of 2 failed\. )?Remove what is left of (it|the upload): tpuctl data rm pets/1\.0\.0"
        assert re.fullmatch(hint, caught.value.hint)
        return caught.value

    def test_is_completed_by_whoever_comes(self, bucket: Bucket) -> None:
        manifest = Commit(bucket, PETS).complete()
        assert manifest == bucket.read(PETS.folder + "manifest.json")
        assert exists(bucket)
        assert Commit(bucket, PETS).complete() == manifest

    def test_is_nothing_where_nothing_was_decided(self, bucket: Bucket) -> None:
        remove_pets(bucket)
        assert Commit(bucket, PETS).complete() is None

    def test_without_a_staged_shard_cannot_be_finished(self, bucket: Bucket) -> None:
        bucket.remove(self.staged(bucket, ".tfrecord"))
        error = self.lost(bucket)
        assert error.message.startswith("An upload that was not finished has lost pets-train.tfrecord-0000")
        assert error.facts["file"] == error.message.removesuffix(".").rpartition(" ")[2]

    def test_without_what_says_how_has_lost_all(self, bucket: Bucket) -> None:
        bucket.remove(self.staged(bucket, ".moves.json"))
        assert "has lost pets-train.tfrecord-0000" in self.lost(bucket).message

    def test_of_what_says_no_such_thing_is_named(self, bucket: Bucket) -> None:
        name = self.staged(bucket, ".moves.json").name
        bucket.upload(name, [b"{"], "application/json")
        assert f"{name} does not say how to finish an upload: " in self.lost(bucket).message

    def test_takes_the_place_of_what_a_removed_dataset_left(self, bucket: Bucket) -> None:
        for file in ("pets-train.tfrecord-00000-of-00002", "features.json"):
            bucket.create(PETS.folder + file, b"another")
        assert Commit(bucket, PETS).complete()
        assert exists(bucket)

    def test_keeps_a_shard_that_was_moved_already(self, bucket: Bucket) -> None:
        manifest = Commit(bucket, PETS).complete()
        assert manifest
        standing = bucket.stat(PETS.folder + "manifest.json")
        assert standing
        bucket.remove(standing)
        bucket.create(PETS.folder + "commit.json", manifest)
        assert Commit(bucket, PETS).complete() == manifest
        assert exists(bucket)

    def test_of_another_dataset_is_refused(self, bucket: Bucket) -> None:
        data = bucket.read(PETS.folder + "commit.json").replace(b'"1.0.0"', b'"1.0.1"')
        bucket.upload(PETS.folder + "commit.json", [data], "application/json")
        with pytest.raises(TpuctlError, match=r"commit\.json"):
            Commit(bucket, PETS).complete()
        assert not exists(bucket)


def test_a_version_with_other_content_is_refused_with_a_hint() -> None:
    error = version_taken(PETS)
    assert error.message == "Version 1.0.0 of the dataset 'pets' exists with other content."
    assert error.hint == "Give the new one another number with --version."


@pytest.mark.daily
def test_of_two_uploads_at_once_one_wins_and_the_other_says_so(bucket: Bucket, pictures: Path) -> None:
    """Both are past their own look for a dataset when either begins to send."""
    results: dict[int, object] = {}
    met = threading.Barrier(2)

    def upload_it(seed: int) -> None:
        cloud = connect(load({}))
        waited: list[ConversionProgress] = []

        def wait_for_the_other(progress: ConversionProgress) -> None:
            if progress.records == 8 and not waited:
                waited.append(progress)
                met.wait(60)

        try:
            results[seed] = upload(cloud.bucket, plan_pets(pictures, seed=seed), wait_for_the_other)
        except TpuctlError as error:
            results[seed] = error
        cloud.close()

    threads = [threading.Thread(target=upload_it, args=(seed,), daemon=True) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = (result for result in results.values() if isinstance(result, Uploaded))
    (lost,) = (error for error in results.values() if isinstance(error, ConflictError))
    assert "Version 1.0.0 of the dataset 'pets' exists with other content" in lost.message
    assert find_manifest(bucket, PETS) == won.manifest
    assert exists(bucket)


@pytest.mark.daily
def test_two_uploads_of_the_same_at_once_both_succeed(bucket: Bucket, pictures: Path) -> None:
    results: list[object] = []

    def upload_it() -> None:
        cloud = connect(load({}))
        try:
            results.append(send(cloud.bucket, plan_pets(pictures)).manifest)
        except TpuctlError as error:
            results.append(error)
        cloud.close()

    threads = [threading.Thread(target=upload_it, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [find_manifest(bucket, PETS)] * 2
    assert exists(bucket)
