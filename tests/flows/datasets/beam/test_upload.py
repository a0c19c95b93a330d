"""Uploading with Apache Beam: the same dataset to the byte, and the errors of workers as they were."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.data.source_trees import produce, write_image
from tests.flows.datasets.pets import PETS, names
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.data import tokens
from tpuctl.data.options import BadRecordsError, Options, TokenOptions
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.errors import ConfigError, DeadlineError, HostError, UsageError
from tpuctl.flows.datasets import upload as local_upload
from tpuctl.flows.datasets.beam import upload as beam_upload
from tpuctl.flows.datasets.beam.worker import Failures, Task, Worker
from tpuctl.flows.datasets.conversion import ConversionProgress, Report
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.datasets.plan import make_plan
from tpuctl.flows.datasets.request import UploadRequest
from tpuctl.flows.datasets.upload import Uploaded

Tpuctl = Callable[..., CommandResult]
THREADS = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")


@pytest.fixture
def beam() -> None:
    """Beam, where it is installed."""
    pytest.importorskip(
        "apache_beam", reason="Apache Beam is not installed here: pip install 'apache-beam[gcp]'"
    )


def pets(root: Path, *, skip_bad: bool = False) -> UploadRequest:
    return UploadRequest(source=str(root), ref=PETS, shards=4, skip_bad=skip_bad)


def send(
    cloud: Cloud,
    request: UploadRequest,
    *options: str,
    report: Report = lambda progress: None,
) -> Uploaded:
    return beam_upload.upload(cloud, make_plan(request), request, options, report)


class TestWorker:
    """What happens on the other machines; it needs no Beam."""

    @pytest.fixture
    def begin(self, task: Task) -> Iterator[Callable[[], Worker]]:
        """Start a worker, with a task that has been on a wire."""
        workers: list[Worker] = []

        def start() -> Worker:
            workers.append(Worker(pickle.loads(pickle.dumps(task))))
            return workers[-1]

        yield start
        for worker in workers:
            worker.close()

    @pytest.fixture
    def planned(self, pictures: Path) -> DatasetPlan:
        return make_plan(pets(pictures))

    @pytest.fixture
    def task(self, cloud: Cloud, planned: DatasetPlan, pictures: Path) -> Task:
        return Task.of(planned, pets(pictures), cloud)

    def test_an_upload_keeps_what_two_workers_have_staged(
        self, cloud: Cloud, planned: DatasetPlan, begin: Callable[[], Worker]
    ) -> None:
        identities = [shard.identity for shard in planned.shards()]
        for worker, numbers in ((begin(), (3, 0)), (begin(), (1, 2))):
            for number in numbers:
                worker.stage(number, identities[number])
        uploaded = local_upload.upload(cloud.bucket, planned, lambda progress: None)
        assert uploaded.kept == 4
        assert {name: cloud.bucket.read(PETS.folder + name) for name in names(cloud.bucket)} == produce(
            planned
        )

    def test_a_copy_with_other_times_makes_the_same_shards(
        self, cloud: Cloud, planned: DatasetPlan, begin: Callable[[], Worker], pictures: Path
    ) -> None:
        identities = [shard.identity for shard in planned.shards()]
        for file in pictures.rglob("*.png"):
            os.utime(file, ns=(1, 1))
        worker = begin()
        worker.stage(0, identities[0])
        staged = cloud.bucket.objects(f"{PETS.folder}staging/")
        assert [listed.name.removeprefix(f"{PETS.folder}staging/") for listed in staged] == [
            f"{identities[0]}.json",
            f"{identities[0]}.tfrecord",
        ]

    def test_a_shard_that_is_there_is_not_made_again(
        self, cloud: Cloud, planned: DatasetPlan, begin: Callable[[], Worker]
    ) -> None:
        """A runner gives an element to another worker when it has lost sight of the first."""
        identity = next(planned.shards()).identity
        begin().stage(0, identity)
        before = cloud.bucket.objects(PETS.folder)
        begin().stage(0, identity)
        assert cloud.bucket.objects(PETS.folder) == before

    def test_bad_records_are_written_down_and_nothing_is_made_after_them(
        self, cloud: Cloud, planned: DatasetPlan, task: Task, begin: Callable[[], Worker], pictures: Path
    ) -> None:
        for name in ("cat", "dog"):
            for index in range(4):
                size = (pictures / name / f"{index}.png").stat().st_size
                (pictures / name / f"{index}.png").write_bytes(b"x" * size)
        worker = begin()
        for number, shard in enumerate(planned.shards()):
            worker.stage(number, shard.identity)
        (error,) = Failures(cloud.bucket, task).take_all()
        assert isinstance(error, BadRecordsError)
        assert "is a text, not an image" in error.message
        assert names(cloud.bucket) == []

    def test_another_source_at_the_same_path_is_refused(
        self, cloud: Cloud, planned: DatasetPlan, task: Task, begin: Callable[[], Worker], pictures: Path
    ) -> None:
        write_image(pictures / "dog" / "9.png")
        begin().stage(0, next(planned.shards()).identity)
        (error,) = Failures(cloud.bucket, task).take_all()
        assert isinstance(error, UsageError)
        assert "pictures' is not the source that was listed at the start" in error.message
        assert "Every worker reads it from this path" in error.hint

    def test_it_receives_the_vocabulary_and_makes_none(
        self, cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"word {n},{n % 2}\n" for n in range(8)))
        options = Options(tokens=TokenOptions("words", 3, vocabulary_size=6))
        request = UploadRequest(source=str(tmp_path / "a.csv"), ref=PETS, shards=4, options=options)
        planned = make_plan(request)
        monkeypatch.setattr(tokens, "learn_vocabulary", None)
        task = pickle.loads(pickle.dumps(Task.of(planned, request, cloud)))
        worker = Worker(task)
        for number, shard in enumerate(planned.shards()):
            worker.stage(number, shard.identity)
        worker.close()
        assert Failures(cloud.bucket, task).take_all() == []
        assert local_upload.upload(cloud.bucket, planned, lambda progress: None).kept == 4

    def test_a_source_that_is_not_there_is_told_with_the_name_of_the_worker(
        self, cloud: Cloud, planned: DatasetPlan, task: Task, begin: Callable[[], Worker], pictures: Path
    ) -> None:
        pictures.rename(pictures.with_name("elsewhere"))
        begin().stage(0, next(planned.shards()).identity)
        (error,) = Failures(cloud.bucket, task).take_all()
        assert error.message.startswith(f"On the worker {os.uname().nodename}: ")
        assert (error.kind, "pictures" in error.message) == ("usage", True)

    def test_an_error_keeps_its_kind(self, cloud: Cloud, task: Task) -> None:
        failures = Failures(cloud.bucket, task)
        failures.add("a", DeadlineError("It was late.", hint="Wait."))
        failures.add("b", ConfigError("It was closed."))
        assert failures.any()
        errors = [(type(error), error.hint) for error in failures.take_all()]
        assert errors == [(DeadlineError, "Wait."), (ConfigError, "")]
        assert not failures.any()


class TestCommand:
    """What is refused before anything is read; it needs no Beam."""

    def test_without_beam_it_says_what_to_install(
        self, tpuctl: Tpuctl, home: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "tpuctl.flows.datasets.beam.pipeline", raising=False)
        monkeypatch.delattr("tpuctl.flows.datasets.beam.pipeline", raising=False)  # where it was imported
        monkeypatch.setitem(sys.modules, "apache_beam", None)
        result = tpuctl("data", "upload", "pets", str(pictures), "--runner", "beam")
        assert result.code == 3
        assert "needs Apache Beam, which is not installed" in result.err
        assert "pip install 'apache-beam[gcp]'" in result.err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("pets", "more"), "unexpected argument: more"),
            (("pets", "--", "--runner=DirectRunner"), "unexpected argument: --runner=DirectRunner"),
            (("pets", "--runner", "beam", "more"), "unexpected argument: more"),
            (("pets", "--runner", "beam", "--keep", "copy"), "--keep writes shards to this machine"),
            (("pets", "--runner", "spark"), "'spark' is not one of 'local', 'beam'"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(
        self, tpuctl: Tpuctl, home: Path, arguments: tuple[str, ...], message: str
    ) -> None:
        result = tpuctl("data", "upload", "pets", *arguments)
        assert (result.code, message in result.err) == (2, True), result.err


@pytest.mark.usefixtures("beam")
class TestPipeline:
    """With the runner that Beam has in this process."""

    @pytest.mark.parametrize("options", [(), ("--runner=DirectRunner",), THREADS])
    def test_the_dataset_is_the_one_made_here_to_the_byte(
        self, cloud: Cloud, pictures: Path, options: tuple[str, ...]
    ) -> None:
        reported: list[ConversionProgress] = []
        splits = "train=3/4,test=1/4"
        request = UploadRequest(source=str(pictures), ref=PETS, splits=splits, shards=2, seed=3)
        uploaded = send(cloud, request, *options, report=reported.append)
        files = produce(make_plan(request))
        assert {name: cloud.bucket.read(PETS.folder + name) for name in names(cloud.bucket)} == files
        assert (uploaded.kept, uploaded.already_there, reported[-1].records) == (0, False, 8)
        assert send(cloud, request, *options).already_there

    def test_token_ids_are_those_made_here(self, tpuctl: Tpuctl, cloud: Cloud, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"word {n},{n % 2}\n" for n in range(8)))
        options = ("--tokens", "wordpiece", "--vocabulary", "30", "--length", "5", "--shards", "2")
        result = tpuctl("data", "upload", "pets", str(tmp_path / "a.csv"), *options, "--runner", "beam")
        assert result.code == 0, result.err
        tokens = Options(tokens=TokenOptions("wordpiece", 5, vocabulary_size=30))
        files = produce(plan(tmp_path / "a.csv", name="pets", shards=2, options=tokens))
        assert {name: cloud.bucket.read(PETS.folder + name) for name in names(cloud.bucket)} == files

    def test_all_that_is_bad_is_named_at_once_and_skipped_when_asked(
        self, cloud: Cloud, pictures: Path
    ) -> None:
        (pictures / "cat" / "2.png").write_bytes(b"")
        (pictures / "dog" / "1.png").write_bytes(b"text")
        with pytest.raises(BadRecordsError) as caught:
            send(cloud, pets(pictures))
        assert caught.value.message == (
            "2 records cannot be used: 'cat/2.png' is empty; 'dog/1.png' is a text, not an image."
        )
        assert find_manifest(cloud.bucket, PETS) is None
        manifest = send(cloud, pets(pictures, skip_bad=True)).manifest
        assert (manifest.records, manifest.source.skipped) == (6, 2)

    def test_only_missing_shards_are_made_again(
        self, cloud: Cloud, simulator: RunningSimulator, pictures: Path
    ) -> None:
        fault = simulator.faults.add(
            "gcs-error", status="403", method="storage.objects.create", object="*.tfrecord", skip=4
        )
        with pytest.raises(ConfigError, match="On the worker"):
            send(cloud, pets(pictures))
        simulator.faults.remove(fault.id)
        assert find_manifest(cloud.bucket, PETS) is None
        assert send(cloud, pets(pictures)).kept == 2

    def test_a_pipeline_that_fails_publishes_nothing(
        self, cloud: Cloud, simulator: RunningSimulator, pictures: Path
    ) -> None:
        """The worker cannot even write down what went wrong: to Beam that is a crash."""
        fault = simulator.faults.add(
            "gcs-error", status="403", method="storage.objects.create", object="*staging/*"
        )
        with pytest.raises(HostError, match="The Beam pipeline failed"):
            send(cloud, pets(pictures))
        simulator.faults.remove(fault.id)
        assert names(cloud.bucket) == []

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--runer=DirectRunner",), "there is no option --runer=DirectRunner"),
            (("--runner=Direkt",), "there is no runner Direkt"),
            (("--runner=nowhere.Runner",), "the runner nowhere.Runner cannot be imported"),
            (("--direct_num_workers=two",), "invalid int value: 'two'"),
            (("--runner",), "expected one argument"),
            (("--direct_num_workers", "2", "more"), "there is no option more"),
            (("--runner=DataflowRunner",), "Workers in Google Cloud do not reach the simulator"),
        ],
    )
    def test_wrong_options_of_beam_are_refused_before_the_source_is_read(
        self, tpuctl: Tpuctl, home: Path, options: tuple[str, ...], message: str
    ) -> None:
        result = tpuctl("data", "upload", "pets", "nowhere", "--runner", "beam", "--", *options)
        if "nowhere does not" in result.err or "cannot be imported: Google Cloud Dataflow" in result.err:
            pytest.skip("Beam is here without its part for Google Cloud: pip install 'apache-beam[gcp]'")
        assert (result.code, message in result.err) == (2, True), result.err

    def test_an_interrupted_upload_publishes_nothing_and_is_taken_up_again(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, bucket: Bucket, pictures: Path
    ) -> None:
        stall = simulator.faults.add(
            "gcs-stall", method="storage.objects.create", object="*.tfrecord", skip=4
        )
        command = ("data", "upload", "pets", str(pictures), "--shards", "4", "--runner", "beam")
        process = subprocess.Popen(
            [sys.executable, "-m", "tpuctl", *command], env=os.environ, stderr=subprocess.PIPE, text=True
        )
        while len(bucket.objects(f"{PETS.folder}staging/", glob="**/staging/*.json")) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
        assert process.returncode == 130, messages
        assert "nothing was published" in messages
        simulator.faults.remove(stall.id)
        assert find_manifest(bucket, PETS) is None
        result = tpuctl(*command)
        assert "2 kept from an earlier upload" in result.out, result.err
        assert tpuctl("data", "verify", "pets", "--deep").code == 0
