"""`--keep`: the folder gets every file of the dataset, byte by byte what the bucket has."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from tests.data.source_trees import write_image
from tests.flows.datasets.pets import PETS, break_off, exists, names, plan_pets, send
from tests.hostile.names import NAMES
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.data.options import Options
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.errors import StateError, UsageError
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


TRAVERSALS = [name for name in NAMES.values() if len(name) < 100 and "\\" not in name]


@pytest.mark.parametrize("column", TRAVERSALS)
def test_no_name_of_a_column_leads_out_of_the_folder(bucket: Bucket, tmp_path: Path, column: str) -> None:
    """The file of classes is named after the column of the labels, and a table may come from elsewhere."""
    folder = tmp_path / "a/b/copy"
    with (tmp_path / "table.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["x", column], [1, "cat"], [2, "dog"]])
    before = everything_but(folder, tmp_path)
    message = ""
    try:
        planned = plan(tmp_path / "table.csv", name="pets", options=Options(label=column))
        keep(bucket, planned, folder)
    except UsageError as refused:
        message = refused.message
    if message:
        assert column in message or column.replace("/", ".") in message
        assert not folder.exists()
        assert names(bucket) == [], "nothing is sent"
    else:
        assert (folder / f"{column.replace('/', '.')}.labels.txt").read_text() == "cat\ndog\n"
    assert everything_but(folder, tmp_path) == before


def everything_but(folder: Path, top: Path) -> set[Path]:
    """Return the files of classes outside of `folder`: below `top`, and where absolute names lead."""
    files = {path for path in top.rglob("*.labels.txt") if not path.is_relative_to(folder)}
    return files | set(Path("/tmp").glob("escaped*"))


def test_a_link_below_the_folder_is_not_followed(bucket: Bucket, tmp_path: Path) -> None:
    folder, private = tmp_path / "copy", tmp_path / "private"
    folder.mkdir()
    private.mkdir()
    (folder / "a.b.labels.txt").symlink_to(private)
    (tmp_path / "table.csv").write_text("x,a/b\n1,cat\n2,dog\n")
    keep(bucket, plan(tmp_path / "table.csv", name="pets", options=Options(label="a/b")), folder)
    assert (folder / "a.b.labels.txt").read_text() == "cat\ndog\n"
    assert not (folder / "a.b.labels.txt").is_symlink()
    assert list(private.iterdir()) == []
