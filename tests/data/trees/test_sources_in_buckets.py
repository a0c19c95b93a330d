"""A source in a bucket becomes the dataset that its copy on the disk becomes."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from tests.data.source_trees import produce
from tests.data.trees.bucket_sources import SOURCES, copy, images
from tests.flows.datasets.pets import PETS
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.config import load
from tpuctl.data.plan import DatasetPlan
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
