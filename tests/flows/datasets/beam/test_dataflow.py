"""The command for Dataflow and its estimate; its options and job as far as Google's client goes offline."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.data.trees.bucket_sources import SOURCES, copy, images
from tests.flows.datasets.pets import PETS
from tests.running_simulator import CommandResult
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import DatasetPlan
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.beam import dataflow
from tpuctl.flows.datasets.beam import upload as beam_upload
from tpuctl.flows.datasets.beam.dataflow import WHEEL, Settings, beam_options, estimate
from tpuctl.flows.datasets.beam.worker import Task
from tpuctl.flows.datasets.plan import make_plan
from tpuctl.flows.datasets.request import UploadRequest

Tpuctl = Callable[..., CommandResult]
SETTINGS = Settings("my-project", "europe-west4", "my-bucket")


@pytest.fixture
def request_(bucket: Bucket, tmp_path: Path) -> UploadRequest:
    uri = copy(bucket, images(tmp_path / "pictures"), "raw/pictures")
    return UploadRequest(source=uri, ref=PETS, shards=4)


class TestEstimate:
    def test_hours_and_cost_follow_from_workers_rate_and_price(
        self, cloud: Cloud, request_: UploadRequest
    ) -> None:
        planned = make_plan(request_, open_bucket=cloud.source_objects)
        rate = planned.bytes // 100
        settings = Settings("p", "r", "b", "n1-standard-4", workers=2, price=0.5, rate=rate)
        result = estimate(planned, settings)
        assert (result.workers, result.vcpus) == (2, 4)
        assert result.seconds - 180 == pytest.approx(13, abs=1), "8 shards on 8 vCPUs, 100 s of work in all"
        assert result.vcpu_hours == pytest.approx(result.seconds * 8 / 3600)
        assert result.cost == pytest.approx(result.vcpu_hours * 0.5)
        assert (result.bytes_read, result.bytes_written) == (planned.bytes, planned.bytes)

    def test_workers_are_added_for_half_an_hour_of_work_but_no_more_than_shards(
        self, cloud: Cloud, request_: UploadRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned = make_plan(request_, open_bucket=cloud.source_objects)
        monkeypatch.setattr(dataflow, "_GOAL", planned.bytes // 4)  # at a byte a second four vCPUs do it
        assert estimate(planned, SETTINGS).workers == 1
        assert estimate(planned, Settings("p", "r", "b", "n1-standard-1", rate=2)).workers == 3
        assert estimate(planned, Settings("p", "r", "b", "n1-standard-2", rate=1)).workers == 3
        monkeypatch.setattr(dataflow, "_GOAL", 1)
        assert estimate(planned, Settings("p", "r", "b", "n1-standard-4", rate=1)).workers == 2, "8 shards"
        assert estimate(planned, SETTINGS).cost is None

    def test_every_process_reads_a_table(self, cloud: Cloud, bucket: Bucket, tmp_path: Path) -> None:
        uri = copy(bucket, SOURCES["csv"](tmp_path / "source"), "raw/rows")
        planned = make_plan(UploadRequest(source=uri, ref=PETS), open_bucket=cloud.source_objects)
        result = estimate(planned, Settings("p", "r", "b", "n1-standard-4", workers=2))
        planned.source.close()
        assert result.bytes_read == 8 * planned.bytes
        assert any("each of 8 processes reads the source once" in text for text in result.assumptions)

    def test_a_machine_type_without_its_vcpus_is_refused(self, cloud: Cloud, request_: UploadRequest) -> None:
        planned = make_plan(request_, open_bucket=cloud.source_objects)
        with pytest.raises(UsageError, match="'e2-medium' does not name its vCPUs"):
            estimate(planned, Settings("p", "r", "b", "e2-medium"))


class TestCommand:
    def test_it_prints_the_command_with_the_options_that_were_typed(
        self, tpuctl: Tpuctl, request_: UploadRequest
    ) -> None:
        options = ("--shards", "4", "--skip-bad", "--seed", "3", "--version", "1.2.0")
        result = tpuctl(
            "data", "dataflow", "pets", request_.source, *options, "--region", "us-east1", "--json"
        )
        assert result.code == 0, result.err
        words = result.json["command"]
        assert words[: words.index("--runner")] == [
            "tpuctl", "data", "upload", "pets", request_.source,
            "--shards", "4", "--skip-bad", "--seed", "3", "--version", "1.2.0",
        ]  # fmt: skip
        assert words[words.index("--runner") : words.index("--") + 1] == ["--runner", "beam", "--"]
        assert {
            "--runner=DataflowRunner", "--project=sim-project", "--region=us-east1", "--num_workers=1",
            "--temp_location=gs://sim-project-tpuctl/dataflow/temp", "--job_name=tpuctl-pets-1-2-0",
        } <= set(words)  # fmt: skip
        assert result.json["cost"] is None

    def test_people_see_what_is_assumed_and_the_command_last(
        self, tpuctl: Tpuctl, request_: UploadRequest
    ) -> None:
        result = tpuctl("data", "dataflow", "pets", request_.source, "--price", "0.07")
        assert result.code == 0, result.err
        assert "USD, by --price" in result.out
        assert "assumption: a vCPU makes 20 MB of shards in a second" in result.err
        hint = result.err.strip().splitlines()[-1]
        assert shlex.split(hint.removeprefix("Next: "))[:3] == ["tpuctl", "data", "upload"]
        assert "unknown: give --price" in tpuctl("data", "dataflow", "pets", request_.source).out

    def test_a_source_on_this_machine_is_refused_before_it_is_listed(
        self, tpuctl: Tpuctl, cloud: Cloud
    ) -> None:
        result = tpuctl("data", "dataflow", "pets", "./pictures")
        assert result.code == 2
        assert "Workers of Dataflow do not reach 'pictures', which is on this machine" in result.err
        assert "gcloud storage cp -r pictures gs://sim-project-tpuctl/raw/" in result.err


def planned(size: int, shards: int, kind: str = "images") -> DatasetPlan:
    """Return what an estimate needs of a plan: one split of so many shards."""
    split = SimpleNamespace(sharding=SimpleNamespace(count=shards))
    return cast("DatasetPlan", SimpleNamespace(bytes=size, splits=[split], source=SimpleNamespace(kind=kind)))


class TestNumbers:
    """Of the estimate with its own assumptions: 20 MB a second, 180 s to start, work of half an hour."""

    @pytest.mark.parametrize(
        ("seconds", "shards", "workers"),
        [(3600, 1000, 1), (3601, 1000, 2), (3601, 2, 1), (0, 1, 1), (10_000_000, 100_000, 100)],
    )
    def test_two_processors_do_half_an_hour_of_work_each(
        self, seconds: int, shards: int, workers: int
    ) -> None:
        assert estimate(planned(20_000_000 * seconds, shards), SETTINGS).workers == workers

    def test_a_worker_is_billed_from_its_start(self) -> None:
        settings = Settings("p", "r", "b", workers=1, price=2.0)
        result = estimate(planned(20_000_000 * 40, 4), settings)
        assert (result.vcpus, result.seconds) == (2, 180 + 20)
        assert (result.vcpu_hours, result.cost) == (400 / 3600, 800 / 3600)

    def test_what_is_assumed_is_said(self) -> None:
        assert estimate(planned(1, 1), SETTINGS).assumptions == (
            "a vCPU makes 20 MB of shards in a second (assumed: measure it with a part of the source)",
            "a worker is billed 180 s before it begins (assumed)",
            "the source is in the region of the workers, and read once",
        )
        given = Settings("p", "r", "b", rate=1_500_000, workers=3)
        assert estimate(planned(1, 1, "csv"), given).assumptions == (
            "a vCPU makes 1.5 MB of shards in a second (as given)",
            "a worker is billed 180 s before it begins (assumed)",
            "the source is in the region of the workers, and each of 6 processes reads the source once",
        )

    @pytest.mark.parametrize(
        "machine", ["e2-medium", "n1-standard-0", "", "4", "n1-standard-4x", "N1-standard-4"]
    )
    def test_a_machine_type_has_its_vcpus_in_its_name(self, machine: str) -> None:
        with pytest.raises(UsageError) as refused:
            estimate(planned(1, 1), Settings("p", "r", "b", machine))
        assert refused.value.message == f"The machine type '{machine}' does not name its vCPUs."
        assert refused.value.hint == "Give one such as n1-standard-4."

    def test_the_options_of_beam_are_those_of_the_project(self) -> None:
        request = UploadRequest(source="gs://b/x", ref=DatasetRef("Pets_" + "x" * 60, "1.0.0"))
        assert beam_options(request, SETTINGS, 3) == [
            "--runner=DataflowRunner", "--project=my-project", "--region=europe-west4",
            "--temp_location=gs://my-bucket/dataflow/temp",
            "--staging_location=gs://my-bucket/dataflow/staging",
            f"--job_name=tpuctl-pets-{'x' * 48}", "--machine_type=n1-standard-2", "--num_workers=3",
            "--max_num_workers=3", f"--extra_package={WHEEL}",
        ]  # fmt: skip


class TestGooglesClient:
    """With Beam and its part for Google Cloud, without a project."""

    @pytest.fixture(autouse=True)
    def client(self) -> Any:
        reason = "Beam's part for Google Cloud is not installed here: pip install 'apache-beam[gcp]'"
        return pytest.importorskip("apache_beam.runners.dataflow.internal.apiclient", reason=reason)

    def test_the_options_are_those_that_it_takes(self, request_: UploadRequest) -> None:
        assert beam_upload.are_checked(beam_options(request_, SETTINGS, 3))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (Settings("P!", "europe-west4", "my-bucket"), "Invalid Project ID"),
            (Settings("12345", "europe-west4", "my-bucket"), "project"),
            (Settings("my-project", "europe-west4", "a"), "Invalid GCS bucket"),
            (Settings("my-project", "", "my-bucket"), "region"),
        ],
    )
    def test_what_it_refuses_is_refused(
        self, request_: UploadRequest, settings: Settings, message: str
    ) -> None:
        with pytest.raises(UsageError, match=message):
            beam_upload.are_checked(
                [word for word in beam_options(request_, settings, 3) if not word.endswith("=")]
            )

    def test_the_job_is_described_without_asking_google(
        self, cloud: Cloud, request_: UploadRequest, client: Any
    ) -> None:
        """All but the staging of files and the call that creates the job."""
        from tpuctl.flows.datasets.beam import pipeline

        planned = make_plan(request_, open_bucket=cloud.source_objects)
        shards = [(number, shard.identity) for number, shard in enumerate(planned.shards())]
        *words, _requirements = beam_options(request_, SETTINGS, 3)  # which pip would download
        options = pipeline.Options([*words, "--dry_run=True"])
        job = pipeline.staging_pipeline(options, Task.of(planned, request_, cloud), shards).run().job
        assert job.proto.name == "tpuctl-pets-1-0-0"
        transforms = {each.unique_name for each in job.proto_pipeline.components.transforms.values()}
        assert "Stage shards" in transforms
        environment = client.Environment(
            [], job.options, "2", "gs://my-bucket/pipeline", job.proto_pipeline
        ).proto
        (pool,) = environment.worker_pools
        assert (pool.machine_type, pool.num_workers) == ("n1-standard-2", 3)
        assert "my-bucket/dataflow/temp" in environment.temp_storage_prefix
