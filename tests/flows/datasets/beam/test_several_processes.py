"""Beam on a Dask cluster of several processes: from a bucket, also with workers killed on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.data.source_trees import produce, write_image
from tests.data.trees.bucket_sources import SOURCES, copy
from tests.flows.datasets.pets import PETS, names
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.datasets.beam import upload as beam_upload
from tpuctl.flows.datasets.plan import make_plan
from tpuctl.flows.datasets.request import UploadRequest
from tpuctl.flows.datasets.upload import Uploaded
from tpuctl.polling import poll

WORKERS = 2
SHARDS = 6
PATIENCE = 300.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Dask cluster of processes, where Beam and Dask are installed."""
    pytest.importorskip("apache_beam.runners.dask.dask_runner", reason="pip install 'apache-beam[gcp,dask]'")
    from distributed import LocalCluster

    with LocalCluster(
        WORKERS, processes=True, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as running:
        yield running


def pids(cluster: Any) -> set[int]:
    """Return the processes of the workers, which the cluster replaces."""
    return {worker.pid for worker in cluster.workers.values() if worker.pid}


def send(cloud: Cloud, request: UploadRequest, cluster: Any) -> Uploaded:
    planned = make_plan(request, open_bucket=cloud.source_objects)
    options = ("--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}")
    try:
        return beam_upload.upload(cloud, planned, request, options, lambda progress: None)
    finally:
        planned.source.close()


def contents(bucket: Bucket) -> dict[str, bytes]:
    return {name: bucket.read(PETS.folder + name) for name in names(bucket)}


@pytest.mark.parametrize("kind", ["images", "csv", "parquet", "tfrecord"])
def test_workers_need_nothing_but_the_bucket(
    cluster: Any, cloud: Cloud, bucket: Bucket, tmp_path: Path, kind: str
) -> None:
    source = SOURCES[kind](tmp_path / "source")
    uri = copy(bucket, source, "raw")
    local = produce(make_plan(UploadRequest(source=str(source), ref=PETS, shards=2)))
    source.rename(tmp_path / "hidden")
    send(cloud, UploadRequest(source=uri, ref=PETS, shards=2), cluster)
    assert contents(bucket) == local


def test_workers_that_are_killed_are_replaced_and_the_dataset_is_complete(
    cluster: Any, cloud: Cloud, bucket: Bucket, simulator: RunningSimulator, tmp_path: Path
) -> None:
    for shade in range(24):
        write_image(tmp_path / "pictures" / ("cat", "dog")[shade % 2] / f"{shade}.png", shade=shade)
    uri = copy(bucket, tmp_path / "pictures", "raw")
    stall = simulator.faults.add("gcs-stall", method="storage.objects.create", object="*.tfrecord", skip=3)
    # of the first three requests one completes a shard, as two workers begin with one each; then all stall
    before = pids(cluster)
    assert len(before) == WORKERS
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, cloud, UploadRequest(source=uri, ref=PETS, shards=SHARDS), cluster)

        def first_is_staged() -> bool | None:
            assert not sent.done(), sent.result()
            return bool(bucket.objects(f"{PETS.folder}staging/", glob="**/staging/*.json")) or None

        poll(first_is_staged, awaiting="the first shard", timeout=PATIENCE)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        simulator.faults.remove(stall.id)
        uploaded = sent.result(PATIENCE)
    assert not before & pids(cluster)
    assert uploaded.kept == 0
    local = UploadRequest(source=str(tmp_path / "pictures"), ref=PETS, shards=SHARDS)
    assert contents(bucket) == produce(make_plan(local))
