"""A source in a bucket becomes the dataset that its copy on the disk becomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.source_trees import produce
from tests.data.trees.bucket_sources import SOURCES, copy, images
from tests.flows.datasets.pets import PETS
from tests.running_simulator import CommandResult
from tpuctl.cloud.endpoints import Cloud
from tpuctl.data.plan import DatasetPlan
from tpuctl.flows.datasets.plan import make_plan
from tpuctl.flows.datasets.request import UploadRequest

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
