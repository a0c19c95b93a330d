"""A dataset on this machine: what its manifest says, whole once the manifest is there.

A dataset in the bucket is what its manifest says, or each difference is named.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.flows.datasets.pets import PETS, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.output.manifest import FILE, Manifest, encode_manifest
from tpuctl.errors import StateError, TpuctlError, UsageError
from tpuctl.flows.datasets import pull as pulling
from tpuctl.flows.datasets.pull import DatasetCopy, pull, verify
from tpuctl.local.staged_folder import StagedFolder


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
    assert copy == DatasetCopy(folder, len(stored) - 1, copy.bytes, 0)
    assert fetch(bucket, manifest, folder).kept == copy.files


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
    assert copy.kept == copy.files - 1
    assert (folder / FILE).exists()


class FillingCommand:
    """Another command that fills a folder with a dataset; it completes that once somebody waits for it."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._manifest = manifest
        self._local = StagedFolder(folder)

    def begin(self) -> None:
        self._local.write(str(self._manifest.ref).encode(), (".tpuctl-dataset",))

    def complete(self, text: str) -> None:
        if text.startswith("waiting for another command"):
            self._local.write(encode_manifest(self._manifest), (FILE,))
            self._local.remove((".tpuctl-dataset",))
            self._local.__exit__(None, None, None)


def test_a_second_one_does_not_read_what_the_first_deletes_meanwhile(
    bucket: Bucket, manifest: Manifest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of which dataset is on its way goes once it is there."""
    first, read_text = FillingCommand(folder, manifest), Path.read_text
    first.begin()

    def read_late(path: Path, *arguments: Any, **options: Any) -> str:
        first.complete("waiting for another command")
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", read_late)
    copy = pull(bucket, manifest, folder, first.complete, lambda here, size: None)
    assert copy.files == len(manifest.files) + 8


def test_a_second_one_of_another_dataset_leaves_what_the_first_has_filled(
    bucket: Bucket, manifest: Manifest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When both began the folder was empty."""
    monkeypatch.setattr(pulling, "_objects", lambda *_: {})
    first, other = FillingCommand(folder, manifest), msgspec.structs.replace(manifest, name="other")
    with pytest.raises(UsageError, match=r"has files that are not of dataset other/1\.0\.0"):
        pull(bucket, other, folder, first.complete, lambda here, size: None)
    assert [path.name for path in folder.iterdir()] == [FILE]


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


def test_a_file_that_is_missing_is_named_before_anything_is_written(
    bucket: Bucket, manifest: Manifest, folder: Path
) -> None:
    stored = bucket.stat(f"{PETS.folder}features.json")
    assert stored
    bucket.remove(stored)
    with pytest.raises(StateError) as refused:
        fetch(bucket, manifest, folder)
    assert refused.value.message == ("features.json of the dataset pets/1.0.0 is not what its manifest says.")
    assert refused.value.hint == "tpuctl data verify pets/1.0.0"
    assert not folder.exists()


def test_a_name_that_is_not_safe_on_a_disk_is_refused(
    bucket: Bucket, manifest: Manifest, folder: Path
) -> None:
    for name, why in HOSTILE.items():
        content = bucket.read(f"{PETS.folder}features.json")
        bucket.upload(f"{PETS.folder}{name}", [content], "text/plain")
        hostile = msgspec.structs.replace(manifest, files={name: manifest.files["features.json"]})
        with pytest.raises(StateError) as refused:
            fetch(bucket, hostile, folder)
        assert refused.value.message == f"{name} {why}."
        assert refused.value.hint == "tpuctl data describe pets/1.0.0"
        assert not folder.exists()


HOSTILE = {
    "../key": "leads out of the folder",
    "/tmp/key": "leads out of the folder",
    "a/.git/config": "is a folder of version control",
    "HEAD": "would make the folder a git repository",
    "tpuctl.toml": "is a file of settings for tpuctl",
    ".bashrc": "is a hidden file or folder",
}


def test_a_link_in_the_folder_is_not_followed(
    bucket: Bucket, manifest: Manifest, folder: Path, tmp_path: Path
) -> None:
    """Somebody has put it there before: for a folder of the dataset, and for a file of it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_bytes(b"mine")
    bucket.upload(f"{PETS.folder}more/notes", [bucket.read(f"{PETS.folder}features.json")], "text/plain")
    entry = manifest.files["features.json"]
    deeper = msgspec.structs.replace(manifest, files={**manifest.files, "more/notes": entry})
    fetch(bucket, deeper, folder)
    (folder / "more/notes").unlink()
    (folder / "more/notes").symlink_to(tmp_path / "mine/notes")
    with pytest.raises(UsageError, match="more/notes has something else in its place"):
        fetch(bucket, deeper, folder)
    (folder / "more/notes").unlink()
    (folder / "more").rmdir()
    (folder / "more").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match="more/notes has something else in its place"):
        fetch(bucket, deeper, folder)
    assert [path.read_bytes() for path in (tmp_path / "mine").iterdir()] == [b"mine"]


def test_no_file_is_executable(bucket: Bucket, manifest: Manifest, folder: Path) -> None:
    mask = os.umask(0)
    try:
        fetch(bucket, manifest, folder)
    finally:
        os.umask(mask)
    assert [path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o111] == []


def test_something_else_in_the_place_of_a_file_is_named(
    bucket: Bucket, manifest: Manifest, folder: Path
) -> None:
    fetch(bucket, manifest, folder)
    (folder / "features.json").unlink()
    (folder / "features.json").symlink_to(folder / FILE)
    with pytest.raises(
        UsageError, match=r"^features\.json has something else in its place: a link"
    ) as refused:
        fetch(bucket, manifest, folder)
    assert refused.value.hint.endswith("Name another folder with --to.")


def test_bytes_are_counted_up_to_all_of_them(bucket: Bucket, manifest: Manifest, folder: Path) -> None:
    told: list[tuple[int, int]] = []
    reports: list[str] = []
    copy = pull(bucket, manifest, folder, reports.append, lambda here, size: told.append((here, size)))
    assert told[-1] == (copy.bytes, copy.bytes)
    assert {size for _, size in told} == {copy.bytes}
    assert reports == [f"fetching {copy.files} files"]


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


@pytest.mark.daily
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
