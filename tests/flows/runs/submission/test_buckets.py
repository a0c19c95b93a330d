"""What the rules of a bucket do to the runs in it is refused, or said, before anything bills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.cloud import storage

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud import google_clients
from tpuctl.cloud.endpoints import Cloud

Tpuctl = Callable[..., CommandResult]
RUN = ("run", "job.py", "--up", "v3-8", "--down", "--yes", "--name", "r1")


@pytest.fixture
def theirs(cloud: Cloud, tmp_path: Path) -> Iterator[storage.Bucket]:
    """The bucket of runs, for who changes its settings."""
    (tmp_path / "work" / "job.py").write_text("print('trained')\n")
    client = google_clients.storage_client("sim-project", cloud.credentials, cloud.endpoints.storage)
    yield client.bucket(cloud.bucket.name)
    client.close()


def test_no_tpu_is_made_for_a_run_whose_bucket_forbids_to_overwrite(
    simulator: RunningSimulator, tpuctl: Tpuctl, theirs: storage.Bucket
) -> None:
    theirs.retention_period = 3600
    theirs.patch()
    refused = tpuctl(*RUN)
    assert refused.code == 3
    assert "keeps each object for 1h (retention policy)" in refused.err
    assert "--clear-retention-period" in refused.err
    assert simulator.world.nodes.all() == []
    assert tpuctl("runs", "--json").json["runs"] == []
    theirs.retention_period = None
    theirs.default_event_based_hold = True
    theirs.patch()
    assert "puts a hold on each new object" in tpuctl(*RUN).err
    assert simulator.world.nodes.all() == []


def test_what_deletes_records_and_who_reads_them_is_said_and_the_run_is_run(
    tpuctl: Tpuctl, theirs: storage.Bucket
) -> None:
    theirs.add_lifecycle_delete_rule(age=7)
    theirs.patch()
    policy = theirs.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"allUsers"}})
    theirs.set_iam_policy(policy)
    done = tpuctl(*RUN)
    assert done.code == 0, done.err
    assert "Warning: A lifecycle rule of gs://sim-project-tpuctl deletes runs/" in done.err
    assert "Warning: gs://sim-project-tpuctl/ IS PUBLIC: everyone on the internet may read it" in done.err


@pytest.mark.usefixtures("theirs")
def test_settings_that_nobody_may_read_refuse_nothing(simulator: RunningSimulator, tpuctl: Tpuctl) -> None:
    simulator.faults.add("permission", method="storage.buckets.get")
    done = tpuctl(*RUN)
    assert done.code == 0, done.err
    assert "where gs://sim-project-tpuctl is cannot be read" in done.err
