"""A source in a bucket becomes the dataset that its copy on the disk becomes.

Several files of a folder as a source, by a pattern: on the disk and in a bucket.
"""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from tests.data.source_trees import examples, no_progress, opened, produce
from tests.data.sources.annotated.test_webdataset import sample, shard
from tests.data.trees.bucket_sources import SOURCES, copy, images
from tests.flows.datasets.pets import PETS
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.config import load
from tpuctl.data.options import Options
from tpuctl.data.plan import DatasetPlan
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.trees.local import name_pattern
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.plan import make_plan
from tpuctl.flows.datasets.request import UploadRequest
from tpuctl.polling import poll

Tpuctl = Callable[..., CommandResult]


def planned(cloud: Cloud, source: object, **options: object) -> DatasetPlan:
    request = UploadRequest(source=str(source), ref=PETS, shards=2, **options)  # type: ignore[arg-type]
    return make_plan(request, open_bucket=cloud.source_objects)


@pytest.mark.parametrize("kind", SOURCES)
def test_it_gives_the_bytes_and_the_manifest_of_its_copy_on_the_disk(
    cloud: Cloud, tmp_path: Path, kind: str
) -> None:
    source = SOURCES[kind](tmp_path / "source")
    uri = copy(cloud.bucket, source, "raw/pets")
    if source.is_file():
        uri = copy(cloud.bucket, source, f"raw/{source.name}")
    in_bucket = produce(planned(cloud, uri))
    assert in_bucket == produce(planned(cloud, source))


def test_the_command_uploads_a_folder_of_a_bucket(tpuctl: Tpuctl, cloud: Cloud, tmp_path: Path) -> None:
    uri = copy(cloud.bucket, images(tmp_path / "pictures"), "raw/pictures")
    plan = tpuctl("data", "plan", "pets", uri, "--json")
    assert (plan.code, plan.json["records"]) == (0, 12), plan.err
    uploaded = tpuctl("data", "upload", "pets", uri, "--json")
    assert uploaded.code == 0, uploaded.err
    assert tpuctl("data", "verify", "pets", "--deep").code == 0
    assert tpuctl("data", "upload", "pets", str(tmp_path / "pictures"), "--json").json["already_there"]


def test_bytes_that_leave_their_location_are_told_before_the_upload(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator, tmp_path: Path
) -> None:
    url = f"{simulator.simulator.endpoints['storage']}/storage/v1/b"
    for name, location in (("far-away", "EUROPE-NORTH1"), ("close-by", cloud.bucket.location().name)):
        resource = {"name": name, "location": location}
        created = requests.post(url, params={"project": "p"}, json=resource, timeout=60)
        assert created.status_code == 200, created.text
        there = connect(load({"bucket": name}))
        copy(there.bucket, images(tmp_path / name), "pictures")
        there.close()
    warning = "The bucket gs://far-away is in europe-north1, and gs://sim-project-tpuctl in"
    for command in ("plan", "upload"):
        far = tpuctl("data", command, "pets", "gs://far-away/pictures")
        assert far.code == 0, far.err
        assert warning in far.err
        assert "that leave europe-north1 as traffic" in far.err
    near = tpuctl("data", "plan", "pets", "gs://close-by/pictures")
    assert (near.code, "traffic" in near.err) == (0, False)


def test_a_dry_run_of_a_source_in_a_bucket_writes_nothing(
    tpuctl: Tpuctl, cloud: Cloud, tmp_path: Path
) -> None:
    uri = copy(cloud.bucket, images(tmp_path / "pictures"), "raw/pictures")
    before = cloud.bucket.objects("")
    result = tpuctl("data", "upload", "pets", uri, "--for", "v3-32", "--dry-run")
    assert (result.code, "datasets%2Fpets%2F1.0.0" in result.out) == (0, True), result.err
    assert cloud.bucket.objects("") == before


def test_an_upload_that_was_killed_keeps_its_shards(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator, tmp_path: Path
) -> None:
    uri = copy(cloud.bucket, images(tmp_path / "pictures"), "raw/pictures")
    stall = simulator.faults.add("gcs-stall", method="storage.objects.create", object="*.tfrecord", skip=8)
    command = ("data", "upload", "pets", uri, "--shards", "4")
    process = commands.start(*command, stderr=subprocess.DEVNULL)
    staged = f"{PETS.folder}staging/"
    try:
        poll(
            lambda: cloud.bucket.objects(staged, glob="**/staging/*.json") or None,
            awaiting="a staged shard",
            timeout=120,
        )
    finally:
        process.kill()
        process.wait()
    simulator.faults.remove(stall.id)
    result = tpuctl("data", "upload", "pets", uri, "--shards", "4", "--json")
    assert result.code == 0, result.err
    assert result.json["shards_kept"] >= 1
    assert tpuctl("data", "verify", "pets", "--deep").code == 0


def test_a_worker_looks_at_no_picture_that_the_plan_has_looked_at(
    cloud: Cloud, simulator: RunningSimulator, tmp_path: Path
) -> None:
    uri = copy(cloud.bucket, images(tmp_path / "pictures"), "raw/pictures")
    first = planned(cloud, uri)
    request = UploadRequest(source=uri, ref=PETS, shards=2).fixed(None, first.source.headers)
    task = pickle.loads(pickle.dumps(request))

    def gets() -> int:
        return len(simulator.events.find(kind="request", service="storage", what="*objects.get"))

    before = gets()
    second = make_plan(task, open_bucket=cloud.source_objects)
    assert gets() - before == 1, "whether the folder is an object"
    assert second.identity == first.identity
    assert second.source.headers == first.source.headers
    assert produce(second) == produce(first)
    assert gets() - before - 1 == 12


def read(path: Path) -> Source:
    return opened(open_source(path, None, Options(), no_progress))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Four tables, and a file that no pattern here means."""
    folder = tmp_path / "tables"
    folder.mkdir()
    for number in range(4):
        (folder / f"part-{number:02}.csv").write_text(f"n\n{number}\n")
    (folder / "notes.csv").write_text("other,columns\n1,2\n")
    return folder


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("part-*.csv", [0, 1, 2, 3]),
        ("part-0?.csv", [0, 1, 2, 3]),
        ("part-0[13].csv", [1, 3]),
        ("part-{00..02}.csv", [0, 1, 2]),
        ("part-{02..00}.csv", [0, 1, 2]),
        ("part-0{1,3}.csv", [1, 3]),
        ("part-{0,0}{1..2}.csv", [1, 2]),
        ("part-{01..01}.csv", [1]),
        ("{part,none}-*.csv", [0, 1, 2, 3]),
    ],
)
def test_a_pattern_is_the_files_that_it_means(tables: Path, pattern: str, numbers: list[int]) -> None:
    assert [record["n"] for record in examples(read(tables / pattern))] == [[n] for n in numbers]


def test_a_file_that_is_called_as_a_pattern_is_read_itself(tables: Path) -> None:
    (tables / "part-{00..02}.csv").write_text("n\n9\n")
    assert [record["n"] for record in examples(read(tables / "part-{00..02}.csv"))] == [[9]]


@pytest.mark.parametrize("text", ["a.csv", "a{b}.csv", "a{1..x}", "{}", "a{..}"])
def test_other_names_are_no_patterns(text: str) -> None:
    assert name_pattern(text) is None


def test_shards_of_webdataset_are_named_by_braces(tmp_path: Path, cloud: Cloud) -> None:
    for number in range(3):
        shard(tmp_path / "shards" / f"train-{number:04}.tar", sample(str(number), number))
    source = read(tmp_path / "shards" / "train-{0000..0001}.tar")
    assert (source.kind, [record["label"] for record in examples(source)]) == ("webdataset", [[0], [1]])
    uri = copy(cloud.bucket, tmp_path / "shards", "raw/shards")
    here = planned(cloud, tmp_path / "shards" / "train-{0001..0002}.tar")
    assert produce(planned(cloud, f"{uri}/train-{{0001..0002}}.tar")) == produce(here)


def test_a_pattern_in_a_bucket_is_that_on_the_disk(tables: Path, cloud: Cloud) -> None:
    uri = copy(cloud.bucket, tables, "raw/tables")
    assert produce(planned(cloud, f"{uri}/part-*.csv")) == produce(planned(cloud, tables / "part-*.csv"))
    with pytest.raises(UsageError, match=r"There is no file 'x\*' in 'gs://.*/raw/tables'"):
        planned(cloud, f"{uri}/x*")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("part-{00..04}.csv", "'part-{{00..04}}.csv' names 'part-04.csv', not in '{}'."),
        (
            "part-{2..9}.csv",
            "'part-{{2..9}}.csv' names 'part-2.csv' and 7 more, not in '{}'.",
        ),
        ("x*.csv", "There is no file 'x*.csv' in '{}'."),
        ("{0..999999}", "'{{0..999999}}' means more than 100000 files."),
        ("{0..999}{0..999}", "'{{0..999}}{{0..999}}' means more than 100000 files."),
    ],
)
def test_what_a_pattern_names_and_is_not_there_is_said(tables: Path, pattern: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tables / pattern)
    assert caught.value.message == message.format(tables)


def test_a_file_that_appears_under_way_is_noticed_if_the_pattern_means_it(tables: Path) -> None:
    source = read(tables / "part-*.csv")
    (tables / "other.csv").write_text("n\n7\n")
    source.check()
    (tables / "part-04.csv").write_text("n\n7\n")
    with pytest.raises(UsageError, match=r"'part-04\.csv' is new"):
        source.check()
