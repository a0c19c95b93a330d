"""`--keep`: the folder gets every file of the dataset, byte by byte what the bucket has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.data.source_trees import write_image
from tests.flows.datasets.pets import PETS, break_off, exists, names, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import DatasetPlan
from tpuctl.errors import StateError
from tpuctl.flows.datasets.upload import Uploaded, upload


def keep(bucket: Bucket, plan: DatasetPlan, folder: Path) -> Uploaded:
    return upload(bucket, plan, lambda progress: None, keep=folder)


def assert_copied(bucket: Bucket, folder: Path) -> None:
    stored = {name: bucket.read(PETS.folder + name) for name in names(bucket)}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == stored


def test_the_copy_is_what_the_bucket_has(bucket: Bucket, pictures: Path, tmp_path: Path) -> None:
    keep(bucket, plan_pets(pictures), tmp_path / "a/folder/that/is/new")
    assert exists(bucket)
    assert_copied(bucket, tmp_path / "a/folder/that/is/new")


def test_shards_of_more_than_one_block_are_sent_whole(bucket: Bucket, tmp_path: Path) -> None:
    for index in range(3):
        path = write_image(tmp_path / f"pictures/cat/{index}.png")
        with path.open("ab") as stream:
            stream.write(os.urandom(700_000))  # what follows the end of a PNG is kept
    keep(bucket, plan_pets(tmp_path / "pictures", shards=1), tmp_path / "copy")
    assert exists(bucket)
    assert_copied(bucket, tmp_path / "copy")


def test_shards_that_were_staged_before_are_copied_too(
    bucket: Bucket, simulator: RunningSimulator, pictures: Path, tmp_path: Path
) -> None:
    break_off(bucket, simulator, pictures)
    assert keep(bucket, plan_pets(pictures), tmp_path / "copy").kept == 4
    assert_copied(bucket, tmp_path / "copy")


def test_an_older_copy_is_replaced(bucket: Bucket, pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "pets-train.tfrecord-00000-of-00004").write_bytes(b"old")
    keep(bucket, plan_pets(pictures), folder)
    assert_copied(bucket, folder)


def test_without_a_folder_nothing_is_copied(bucket: Bucket, pictures: Path) -> None:
    before = sorted(Path().rglob("*"))
    send(bucket, plan_pets(pictures))
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_named_and_nothing_is_published(
    bucket: Bucket, pictures: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(
        StateError, match=rf"Cannot write '.*/{place}': (File exists|Not a directory)"
    ) as refused:
        keep(bucket, plan_pets(pictures), tmp_path / place)
    assert "without --keep" in refused.value.hint
    assert refused.value.facts["file"] == str(tmp_path / place)
    assert names(bucket) == []


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_published(
    bucket: Bucket, pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "copy/pets-train.tfrecord-00001-of-00004").mkdir(parents=True)
    with pytest.raises(StateError, match=r"Cannot write '.*00001-of-00004': Is a directory"):
        keep(bucket, plan_pets(pictures), tmp_path / "copy")
    assert not exists(bucket)
