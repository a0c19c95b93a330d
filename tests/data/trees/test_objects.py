"""What a bucket may hold, and what may happen to it while it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import requests

from tests.data.source_trees import only_bad, opened, png, produce
from tests.data.trees.bucket_sources import copy, csv_file, images
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.bucket_layout import split_gs
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.data.files import rows
from tpuctl.data.files.listing import list_class_folders
from tpuctl.data.options import BadRecordsError
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.trees import objects
from tpuctl.data.trees import objects as folder_scans
from tpuctl.data.trees import objects as remembered
from tpuctl.data.trees.objects import ObjectTree, object_tree
from tpuctl.data.trees.tree import Entry, ListedFile
from tpuctl.errors import UsageError

Tpuctl = Callable[..., CommandResult]
Put = Callable[..., None]


@pytest.fixture
def put(bucket: Bucket) -> Put:
    """Write objects of these names, each with a picture."""

    def write(*object_names: str, data: bytes = png(100)) -> None:
        for name in object_names:
            bucket.upload(name, [data], "image/png")

    return write


@pytest.fixture
def tree(cloud: Cloud, bucket: Bucket) -> Callable[[str], ObjectTree]:
    """Return the tree at a path of the bucket."""
    return lambda path: object_tree(cloud.source_objects(bucket.name), path)


def requested(simulator: RunningSimulator, method: str) -> int:
    return len(simulator.events.find(kind="request", service="storage", what=f"*objects.{method}"))


def listed(tree: ObjectTree, path: str) -> ListedFile:
    entry = tree.look(path)
    assert entry
    return ListedFile(path, entry.size, entry.stamp, entry.checksum)


def kinds(entries: list[Entry]) -> dict[str, str]:
    return {entry.name: entry.problem or entry.kind for entry in entries}


class TestNames:
    def test_what_is_below_a_prefix_is_a_folder_of_files(
        self, put: Put, tree: Callable[[str], ObjectTree]
    ) -> None:
        put("raw/b/2", "raw/a", "raw/b/c/3", "raw/.hidden", "raw/.git/1", "rawer/1")
        for path in ("raw", "raw/"):
            root = tree(path)
            assert kinds(root.scan("")) == {"a": "file", "b": "folder"}
            assert kinds(root.scan("b")) == {"2": "file", "c": "folder"}
            assert (root.only, root.name, str(root)) == ("", "raw", "gs://sim-project-tpuctl/raw")
        assert kinds(tree("raw").below("b").scan("c")) == {"3": "file"}
        assert {"raw": "folder", "rawer": "folder"}.items() <= kinds(tree("").scan("")).items()

    def test_one_object_is_a_file(self, put: Put, tree: Callable[[str], ObjectTree]) -> None:
        put("raw/a.csv", data=b"x\n1\n")
        alone = tree("raw/a.csv")
        assert (alone.only, alone.name, str(alone)) == ("a.csv", "a.csv", "gs://sim-project-tpuctl/raw/a.csv")
        assert alone.read(listed(alone, "a.csv")) == b"x\n1\n"

    def test_an_object_and_a_folder_of_one_name_are_told_apart(
        self, put: Put, tree: Callable[[str], ObjectTree]
    ) -> None:
        put("raw/cat", "raw/cat/1.png")
        with pytest.raises(UsageError, match="is an object, and there are objects in a folder") as both:
            tree("raw/cat")
        assert "gs://sim-project-tpuctl/raw/cat/" in both.value.hint
        assert kinds(tree("raw/cat/").scan("")) == {"1.png": "file"}

    def test_where_there_is_nothing_the_nearest_name_is_offered(
        self, put: Put, tree: Callable[[str], ObjectTree]
    ) -> None:
        put("raw/pictures/1.png")
        with pytest.raises(UsageError, match=r"There is nothing at gs://\S+/raw/picture\.") as no:
            tree("raw/picture")
        assert "Did you mean pictures?" in no.value.hint
        with pytest.raises(UsageError, match="There is nothing at gs://sim-project-tpuctl/raw/sounds/"):
            tree("raw/sounds/")

    def test_a_placeholder_of_a_folder_is_no_file(self, put: Put, tree: Callable[[str], ObjectTree]) -> None:
        """Google's console creates `cat/` without bytes; one with bytes has the name of a folder."""
        put("raw/", "raw/cat/", data=b"")
        put("raw/cat/1.png")
        assert list_class_folders(tree("raw")).bad == []
        assert len(list_class_folders(tree("raw")).files) == 1
        put("raw/cat/", data=b"bytes")
        (bad,) = list_class_folders(tree("raw")).bad
        assert str(bad) == "'cat/' has a name that ends in a slash, or has two of them in a row"

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("raw/cat/..", "'cat/..' has a name that no file can have"),
            ("raw/cat/../1.png", "'cat/..' has a name that no file can have"),
            ("raw/cat//1.png", "'cat/' has a name that ends in a slash, or has two of them in a row"),
            ("raw//1.png", "'' has a name that ends in a slash, or has two of them in a row"),
            ("raw/cat/b/1.png", "'cat/b' lies inside a class folder and is not a file"),
            (
                "raw/c\ta/1.png",
                "'c\ta' has blanks around its name, or line breaks or other control characters",
            ),
        ],
    )
    def test_names_that_no_folder_could_have_are_bad(
        self, put: Put, tree: Callable[[str], ObjectTree], name: str, why: str
    ) -> None:
        put("raw/cat/1.png", name)
        assert [str(bad) for bad in list_class_folders(tree("raw")).bad] == [why]
        with pytest.raises(BadRecordsError):
            plan(tree("raw"), name="pets")
        assert plan(tree("raw"), name="pets", skip_bad=True).records == 1

    def test_names_of_1024_bytes_and_of_every_script_are_read(
        self, put: Put, tree: Callable[[str], ObjectTree]
    ) -> None:
        long, script = "x" * (1024 - len("raw/cat/.png")) + ".png", "größe 猫 %2F?#&+.png"
        put(f"raw/cat/{long}", f"raw/cat/{script}")
        root = tree("raw")
        files = list_class_folders(root).files
        assert {files.key(index) for index in range(2)} == {f"cat/{long}", f"cat/{script}"}
        assert list(files.read_each(np.arange(2))) == [png(100)] * 2

    def test_what_is_stored_packed_is_bad(
        self, simulator: RunningSimulator, put: Put, bucket: Bucket, tree: Callable[[str], ObjectTree]
    ) -> None:
        """A download unpacks it, so that size and checksum of the file are not known."""
        put("raw/a.csv", data=b"x,label\n1,a\n")
        url = f"{simulator.simulator.endpoints['storage']}/upload/storage/v1/b/{bucket.name}/o"
        query = {"uploadType": "media", "name": "raw/b.csv", "contentEncoding": "gzip"}
        assert requests.post(url, params=query, data=b"\x1f\x8b...", timeout=60).status_code == 200
        with pytest.raises(BadRecordsError, match=r"'b\.csv' is stored with Content-Encoding: gzip"):
            plan(tree("raw"), name="pets")
        with pytest.raises(UsageError, match=r"raw/b\.csv is stored with Content-Encoding: gzip"):
            tree("raw/b.csv")

    @pytest.mark.parametrize("uri", ["gs://", "gs:///a", "gs://B/a", "gs://a", "gs://x y/a"])
    def test_an_address_without_a_bucket_is_refused(self, uri: str) -> None:
        with pytest.raises(UsageError, match="names no bucket"):
            split_gs(uri)
        assert split_gs("gs://my-bucket.example_1/a//b/") == ("my-bucket.example_1", "a//b/")
        assert split_gs("gs://bucket") == ("bucket", "")


class TestListing:
    def test_every_page_is_listed_and_each_folder_once(
        self, put: Put, tree: Callable[[str], ObjectTree], simulator: RunningSimulator,
        cloud: Cloud, bucket: Bucket, monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        objects = cloud.source_objects(bucket.name)
        page = objects.page
        monkeypatch.setattr(objects, "page", lambda prefix, token="", most=0: page(prefix, token, most or 2))
        monkeypatch.setattr(folder_scans, "_PAGES_AHEAD", 1)
        names = [f"raw/{folder}/{number}.png" for folder in ("a", "b", "c") for number in range(5)]
        put(*names)
        root = object_tree(objects, "raw")
        before = requested(simulator, "list")
        files = list_class_folders(root).files
        assert [f"raw/{files.key(index)}" for index in range(len(files))] == names
        assert requested(simulator, "list") - before == 2 + 3 * 3, "two pages of folders, three of each"
        list_class_folders(root)
        assert requested(simulator, "list") - before == 2 + 3 * 3, "remembered"
        list_class_folders(root.again())
        assert requested(simulator, "list") - before == 2 * (2 + 3 * 3)

    def test_folders_that_were_scanned_are_forgotten_when_they_are_many(
        self, put: Put, tree: Callable[[str], ObjectTree], simulator: RunningSimulator,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(folder_scans, "_MOST_HELD", 3)
        put(*(f"raw/{folder}/{number}.png" for folder in ("a", "b") for number in range(3)))
        root = tree("raw")
        assert list_class_folders(root).files.fingerprint == list_class_folders(root).files.fingerprint
        assert len(root._scans._remembered) == 1


class TestReading:
    def test_each_file_is_fetched_once_although_its_head_is_read_before(
        self, put: Put, tree: Callable[[str], ObjectTree], simulator: RunningSimulator
    ) -> None:
        put(*(f"raw/{folder}/{number}.png" for folder in ("a", "b") for number in range(20)))
        root = tree("raw")
        before = requested(simulator, "get")
        produce(plan(root, name="pets"))
        assert requested(simulator, "get") - before == 40

    def test_what_is_remembered_is_bounded(
        self, put: Put, tree: Callable[[str], ObjectTree], simulator: RunningSimulator,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(remembered, "MOST_IN_MEMORY", 1000)
        monkeypatch.setattr(remembered, "MOST_ON_DISK", 0)
        put(*(f"raw/a/{number:02}.png" for number in range(20)))
        root = tree("raw")
        files = list_class_folders(root).files
        assert {len(head) for head in files.read_heads(np.arange(20), 50) if isinstance(head, bytes)} <= {
            50,
            100,
        }
        assert root._remembered._size <= 1000
        assert list(files.read_each(np.arange(20))) == [png(100)] * 20
        assert root._remembered._size == 0

    def test_files_are_fetched_ahead_but_not_without_bounds(
        self, put: Put, tree: Callable[[str], ObjectTree], simulator: RunningSimulator,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(objects, "AHEAD_BYTES", 300)
        put(*(f"raw/a/{number:02}.png" for number in range(20)))
        files = list_class_folders(tree("raw")).files
        before = requested(simulator, "get")
        reading = files.read_each(np.arange(20))
        assert next(reading) == png(100)
        reading.close()  # type: ignore[attr-defined]  # a generator
        assert requested(simulator, "get") - before <= 4

    def test_a_large_object_is_read_in_parts(
        self, put: Put, tree: Callable[[str], ObjectTree], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = bytes(range(256)) * 40
        put("raw/large", data=data)
        monkeypatch.setattr(objects, "PART", 1000)
        monkeypatch.setattr("tpuctl.data.trees.objects.PART", 1000)
        root = tree("raw")
        file = listed(root, "large")
        assert root.read(file) == data
        ranges = root.open(file)
        assert (ranges.read(5, 10), ranges.read(len(data) - 3, 10), ranges.read(len(data), 1)) == (
            data[5:15], data[-3:], b"",
        )  # fmt: skip
        with root.stream(file) as stream:
            assert stream.read(1500) == data[:1500]
            stream.seek(-10, 2)
            assert stream.read() == data[-10:]
            stream.seek(100)
            assert stream.read() == data[100:]

    def test_tables_beyond_what_is_copied_are_read_where_they_are(
        self, cloud: Cloud, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = csv_file(tmp_path / "source")
        uri = copy(bucket, source, "raw/a.csv")
        root = object_tree(cloud.source_objects(bucket.name), split_gs(uri)[1])
        monkeypatch.setattr(rows, "MOST_COPIED", 0)
        assert produce(plan(root, name="pets")) == produce(plan(source, name="pets"))


class TestChanges:
    """Between the listing and the end of the conversion."""

    @pytest.fixture
    def planned(self, bucket: Bucket, tree: Callable[[str], ObjectTree], tmp_path: Path) -> DatasetPlan:
        copy(bucket, images(tmp_path / "pictures"), "raw")
        monkeypatch = pytest.MonkeyPatch()
        monkeypatch.setattr(remembered, "LARGEST_REMEMBERED", 0)
        planned = plan(tree("raw"), name="pets")
        opened(planned.source)
        monkeypatch.undo()
        return planned

    def test_an_object_that_was_replaced_is_named(self, planned: DatasetPlan, put: Put) -> None:
        put("raw/train/cat/1.png", data=png(200))
        with pytest.raises(UsageError, match=r"'train/cat/1\.png' has changed"):
            produce(planned)

    def test_an_object_that_was_removed_is_named(self, planned: DatasetPlan, bucket: Bucket) -> None:
        (item,) = bucket.objects("raw/train/cat/1.png")
        bucket.remove(item)
        with pytest.raises(UsageError, match=r"'train/cat/1\.png' was removed"):
            produce(planned)

    def test_a_new_object_is_named_at_the_end(self, planned: DatasetPlan, put: Put) -> None:
        put("raw/train/cat/new.png")
        with pytest.raises(UsageError, match=r"'train/cat/new\.png' is new"):
            produce(planned)

    def test_the_same_bytes_written_again_are_a_change(
        self, planned: DatasetPlan, put: Put, tmp_path: Path
    ) -> None:
        put("raw/train/cat/1.png", data=(tmp_path / "pictures/train/cat/1.png").read_bytes())
        with pytest.raises(UsageError, match=r"'train/cat/1\.png' has changed"):
            planned.source.check()

    def test_a_bad_picture_is_named_as_on_the_disk(self, put: Put, tree: Callable[[str], ObjectTree]) -> None:
        put("raw/a/1.png")
        put("raw/a/2.png", data=b"text")
        source = opened(plan(tree("raw"), name="pets").source)
        assert only_bad(source).startswith("'a/2.png' is ")


class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "options"),
        [
            ("gcs-error", {"status": "429", "count": 5}),
            ("gcs-error", {"status": "503", "count": 5}),
            ("gcs-cut", {"bytes": "50", "count": 5}),
            ("gcs-reset", {"count": 5}),
        ],
    )
    def test_failures_that_pass_change_nothing(
        self, simulator: RunningSimulator, bucket: Bucket, tree: Callable[[str], ObjectTree], tmp_path: Path,
        kind: str, options: dict[str, str],
    ) -> None:  # fmt: skip
        source = images(tmp_path / "pictures")
        copy(bucket, source, "raw")
        simulator.faults.add(kind, method="storage.objects.get", object="raw/*", **options)
        assert produce(plan(tree("raw"), name="pets")) == produce(plan(source, name="pets"))
        assert simulator.faults.all() == []
