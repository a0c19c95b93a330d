"""Uploading with Apache Beam: the same dataset to the byte, and whatever a worker meets is told as it was."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.data.source_trees import produce, write_image
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.data.bad_records import BadRecordsError
from tpuctl.data.options import Options, TokenOptions
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.tokens import tokenizing
from tpuctl.errors import ConfigError, DeadlineError, HostError, UsageError
from tpuctl.flows.datasets import upload as dataset_upload
from tpuctl.flows.datasets.beam import upload as dataset_beam
from tpuctl.flows.datasets.beam.worker import Failures, Task, Worker
from tpuctl.flows.datasets.conversion import Done
from tpuctl.flows.datasets.lookup import find
from tpuctl.flows.datasets.upload import Uploaded

FOLDER = "datasets/pets/1.0.0/"
THREADS = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")


@pytest.fixture
def beam() -> None:
    """Beam, where it is installed."""
    pytest.importorskip("apache_beam", reason="Apache Beam is not installed here: pip install 'tpuctl[beam]'")


def asked(root: Path, **options: Any) -> dict[str, Any]:
    return {"source": root, "name": "pets", "shards": 4, "skip_bad": False, **options}


def send(
    cloud: Cloud,
    arguments: dict[str, Any],
    *options: str,
    progress: Callable[[Done], None] = lambda done: None,
) -> Uploaded:
    return dataset_beam.upload(cloud, plan(**arguments), arguments, options, progress)


def names(bucket: Bucket) -> list[str]:
    return [one.name.removeprefix(FOLDER) for one in bucket.objects(FOLDER)]


class TestWorker:
    """What happens on the other machines; it needs no Beam."""

    @pytest.fixture
    def begin(self, task: Task) -> Iterator[Callable[[], Worker]]:
        """Start a worker, with a task that has been on a wire."""
        begun: list[Worker] = []

        def start() -> Worker:
            begun.append(Worker(pickle.loads(pickle.dumps(task))))
            return begun[-1]

        yield start
        for one in begun:
            one.close()

    @pytest.fixture
    def planned(self, pictures: Path) -> DatasetPlan:
        return plan(**asked(pictures))

    @pytest.fixture
    def task(self, cloud: Cloud, planned: DatasetPlan, pictures: Path) -> Task:
        return Task.of(planned, asked(pictures), cloud)

    def test_an_upload_keeps_what_two_workers_have_staged(
        self, cloud: Cloud, planned: DatasetPlan, begin: Callable[[], Worker]
    ) -> None:
        identities = [shard.identity for shard in planned.shards()]
        for worker, numbers in ((begin(), (3, 0)), (begin(), (1, 2))):
            for number in numbers:
                worker.make(number, identities[number])
        done = dataset_upload.upload(cloud.bucket, planned, lambda done: None)
        assert done.kept == 4
        assert {name: cloud.bucket.read(FOLDER + name) for name in names(cloud.bucket)} == produce(planned)

    def test_a_copy_with_other_times_makes_the_same_shards(
        self, cloud: Cloud, planned: DatasetPlan, begin: Callable[[], Worker], pictures: Path
    ) -> None:
        identities = [shard.identity for shard in planned.shards()]
        for file in pictures.rglob("*.png"):
            os.utime(file, ns=(1, 1))
        worker = begin()
        worker.make(0, identities[0])
        staged = cloud.bucket.objects(f"{FOLDER}staging/")
        assert [one.name.removeprefix(f"{FOLDER}staging/") for one in staged] == [
            f"{identities[0]}.json",
            f"{identities[0]}.tfrecord",
        ]

    def test_a_shard_that_is_there_is_not_made_again(
        self, cloud: Cloud, planned: DatasetPlan, begin: Callable[[], Worker]
    ) -> None:
        """A runner gives an element to another worker when it has lost sight of the first."""
        identity = next(planned.shards()).identity
        begin().make(0, identity)
        before = cloud.bucket.objects(FOLDER)
        begin().make(0, identity)
        assert cloud.bucket.objects(FOLDER) == before

    def test_bad_records_are_written_down_and_nothing_is_made_after_them(
        self, cloud: Cloud, planned: DatasetPlan, task: Task, begin: Callable[[], Worker], pictures: Path
    ) -> None:
        for name in ("cat", "dog"):
            for index in range(4):
                size = (pictures / name / f"{index}.png").stat().st_size
                (pictures / name / f"{index}.png").write_bytes(b"x" * size)
        worker = begin()
        for number, shard in enumerate(planned.shards()):
            worker.make(number, shard.identity)
        (error,) = Failures(cloud.bucket, task).all()
        assert isinstance(error, BadRecordsError)
        assert "is not a PNG or JPEG image" in error.message
        assert names(cloud.bucket) == []

    def test_another_source_at_the_same_path_is_refused(
        self, cloud: Cloud, planned: DatasetPlan, task: Task, begin: Callable[[], Worker], pictures: Path
    ) -> None:
        write_image(pictures / "dog" / "9.png")
        begin().make(0, next(planned.shards()).identity)
        (error,) = Failures(cloud.bucket, task).all()
        assert isinstance(error, UsageError)
        assert "pictures' is not the source that was listed at the start" in error.message
        assert "Every worker reads it from this path" in error.hint

    def test_it_is_given_the_vocabulary_and_makes_none(
        self, cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"word {n},{n % 2}\n" for n in range(8)))
        arguments = asked(
            tmp_path / "a.csv", options=Options(tokens=TokenOptions("words", 3, vocabulary_size=6))
        )
        made = plan(**arguments)
        monkeypatch.setattr(tokenizing, "learn", None)
        told = pickle.loads(pickle.dumps(Task.of(made, {**arguments, "vocabulary": made.vocabulary}, cloud)))
        worker = Worker(told)
        for number, shard in enumerate(made.shards()):
            worker.make(number, shard.identity)
        worker.close()
        assert Failures(cloud.bucket, told).all() == []
        assert dataset_upload.upload(cloud.bucket, made, lambda done: None).kept == 4

    def test_a_source_that_is_not_there_is_told_with_the_name_of_the_worker(
        self, cloud: Cloud, planned: DatasetPlan, task: Task, begin: Callable[[], Worker], pictures: Path
    ) -> None:
        pictures.rename(pictures.with_name("elsewhere"))
        begin().make(0, next(planned.shards()).identity)
        (error,) = Failures(cloud.bucket, task).all()
        assert error.message.startswith(f"On the worker {os.uname().nodename}: ")
        assert (error.kind, "pictures" in error.message) == ("usage", True)

    def test_an_error_keeps_its_kind(self, cloud: Cloud, task: Task) -> None:
        told = Failures(cloud.bucket, task)
        told.add("a", DeadlineError("It was late.", hint="Wait."))
        told.add("b", ConfigError("It was closed."))
        assert told.any()
        assert [(type(one), one.hint) for one in told.all()] == [(DeadlineError, "Wait."), (ConfigError, "")]
        assert not told.any()


class TestCommand:
    """What is refused before anything is read; it needs no Beam."""

    def test_without_beam_it_says_what_to_install(
        self, tpuctl: Any, home: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "tpuctl.flows.datasets.beam.pipeline", raising=False)
        monkeypatch.setitem(sys.modules, "apache_beam", None)
        done = tpuctl("data", "upload", "pets", str(pictures), "--runner", "beam")
        assert done.code == 3
        assert "needs Apache Beam, which is not installed" in done.err
        assert "pip install 'tpuctl[beam]'" in done.err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("gs://bucket/pets", "--runner", "beam"), "gs://bucket/pets is in a bucket"),
            (("pets", "more"), "unexpected argument: more"),
            (("pets", "--", "--runner=DirectRunner"), "unexpected argument: --runner=DirectRunner"),
            (("pets", "--runner", "beam", "more"), "unexpected argument: more"),
            (("pets", "--runner", "beam", "--keep", "copy"), "--keep writes shards to this machine"),
            (("pets", "--runner", "spark"), "'spark' is not one of 'local', 'beam'"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(
        self, tpuctl: Any, home: Path, arguments: tuple[str, ...], message: str
    ) -> None:
        done = tpuctl("data", "upload", "pets", *arguments)
        assert (done.code, message in done.err) == (2, True), done.err


@pytest.mark.usefixtures("beam")
class TestPipeline:
    """With the runner that Beam has in this process."""

    @pytest.mark.parametrize("options", [(), ("--runner=DirectRunner",), THREADS])
    def test_the_dataset_is_the_one_made_here_to_the_byte(
        self, cloud: Cloud, pictures: Path, options: tuple[str, ...]
    ) -> None:
        told: list[Done] = []
        arguments = asked(pictures, splits="train=3/4,test=1/4", shards=2, seed=3)
        done = send(cloud, arguments, *options, progress=told.append)
        made = produce(plan(**arguments))
        assert {name: cloud.bucket.read(FOLDER + name) for name in names(cloud.bucket)} == made
        assert (done.kept, done.already_there, told[-1].records) == (0, False, 8)
        assert send(cloud, arguments, *options).already_there

    def test_token_ids_are_those_made_here(self, tpuctl: Any, cloud: Cloud, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"word {n},{n % 2}\n" for n in range(8)))
        options = ("--tokens", "wordpiece", "--vocabulary", "30", "--length", "5", "--shards", "2")
        done = tpuctl("data", "upload", "pets", str(tmp_path / "a.csv"), *options, "--runner", "beam")
        assert done.code == 0, done.err
        wanted = Options(tokens=TokenOptions("wordpiece", 5, vocabulary_size=30))
        made = produce(plan(tmp_path / "a.csv", name="pets", shards=2, options=wanted))
        assert {name: cloud.bucket.read(FOLDER + name) for name in names(cloud.bucket)} == made

    def test_all_that_is_bad_is_named_at_once_and_skipped_when_asked(
        self, cloud: Cloud, pictures: Path
    ) -> None:
        (pictures / "cat" / "2.png").write_bytes(b"")
        (pictures / "dog" / "1.png").write_bytes(b"text")
        with pytest.raises(BadRecordsError) as caught:
            send(cloud, asked(pictures))
        assert caught.value.message == (
            "2 records cannot be used: 'cat/2.png' is empty; 'dog/1.png' is not a PNG or JPEG image."
        )
        assert find(cloud.bucket, "pets", "1.0.0") is None
        manifest = send(cloud, asked(pictures, skip_bad=True)).manifest
        assert (manifest.records, manifest.source.skipped) == (6, 2)

    def test_only_missing_shards_are_made_again(self, cloud: Cloud, simulator: Any, pictures: Path) -> None:
        fault = simulator.faults.add(
            "gcs-error", status="403", method="storage.objects.create", object="*.tfrecord", skip=4
        )
        with pytest.raises(ConfigError, match="On the worker"):
            send(cloud, asked(pictures))
        simulator.faults.remove(fault.id)
        assert find(cloud.bucket, "pets", "1.0.0") is None
        assert send(cloud, asked(pictures)).kept == 2

    def test_a_pipeline_that_fails_publishes_nothing(
        self, cloud: Cloud, simulator: Any, pictures: Path
    ) -> None:
        """The worker cannot even write down what went wrong: to Beam that is a crash."""
        fault = simulator.faults.add(
            "gcs-error", status="403", method="storage.objects.create", object="*staging/*"
        )
        with pytest.raises(HostError, match="The Beam pipeline failed"):
            send(cloud, asked(pictures))
        simulator.faults.remove(fault.id)
        assert names(cloud.bucket) == []

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--runer=DirectRunner",), "there is no option --runer=DirectRunner"),
            (("--runner=Direkt",), "there is no runner Direkt"),
            (("--runner=nowhere.Runner",), "the runner nowhere.Runner cannot be had"),
            (("--direct_num_workers=two",), "invalid int value: 'two'"),
            (("--runner",), "expected one argument"),
            (("--direct_num_workers", "2", "more"), "there is no option more"),
            (("--runner=DataflowRunner",), "Workers in Google Cloud do not reach the simulator"),
        ],
    )
    def test_wrong_options_of_beam_are_refused_before_the_source_is_read(
        self, tpuctl: Any, home: Path, options: tuple[str, ...], message: str
    ) -> None:
        done = tpuctl("data", "upload", "pets", "nowhere", "--runner", "beam", "--", *options)
        if "nowhere does not" in done.err or "cannot be had: Google Cloud Dataflow" in done.err:
            pytest.skip("Beam is here without its part for Google Cloud: pip install 'tpuctl[beam]'")
        assert (done.code, message in done.err) == (2, True), done.err

    def test_an_interrupted_upload_publishes_nothing_and_is_taken_up_again(
        self, tpuctl: Any, simulator: Any, bucket: Bucket, pictures: Path
    ) -> None:
        stall = simulator.faults.add(
            "gcs-stall", method="storage.objects.create", object="*.tfrecord", skip=4
        )
        command = ("data", "upload", "pets", str(pictures), "--shards", "4", "--runner", "beam")
        process = subprocess.Popen(
            [sys.executable, "-m", "tpuctl", *command], env=os.environ, stderr=subprocess.PIPE, text=True
        )
        while len(bucket.objects(f"{FOLDER}staging/", glob="**/staging/*.json")) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 130, told
        assert "nothing was published" in told
        simulator.faults.remove(stall.id)
        assert find(bucket, "pets", "1.0.0") is None
        done = tpuctl(*command)
        assert "2 kept from an upload before" in done.out, done.err
        assert tpuctl("data", "verify", "pets", "--deep").code == 0
