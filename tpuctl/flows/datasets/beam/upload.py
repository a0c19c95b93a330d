"""Uploading a dataset with Apache Beam, where one machine is not enough: workers stage, this machine commits.

Each shard is one element. What workers stage is what `dataset_upload` would have staged: that then finds all
shards there, and commits them. Workers write down why a shard could not be made; see `dataset_worker`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tpuctl.data.bad_records import BadRecordsError
from tpuctl.data.output.shards import Shard, ShardResult
from tpuctl.data.plan import DatasetPlan
from tpuctl.errors import ConfigError, TpuctlError, UsageError
from tpuctl.flows.datasets import upload as dataset_upload
from tpuctl.flows.datasets.beam.worker import Failures, Task
from tpuctl.flows.datasets.commit import Commit
from tpuctl.flows.datasets.conversion import Conversion, Done, Progress
from tpuctl.flows.datasets.staging import Staging
from tpuctl.flows.datasets.upload import Uploaded
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud
    from tpuctl.cloud.storage import Bucket

_WIDTH = 8
_LOOK_EVERY = 2.0
"""Seconds between two looks at what the workers have staged."""


def check(source: str, options: Sequence[str], target: str) -> None:
    """Raise before anything is listed: ConfigError without Beam, UsageError for what it cannot take."""
    if source.startswith("gs:/"):
        raise UsageError(
            f"gs://{source[4:].lstrip('/')} is in a bucket, and a source is read from a path.",
            hint="Give a folder or file that every worker finds at the same path: "
            "on a network file system, or in the workers' image.",
        )
    if _pipeline().Options(options).in_google_cloud and target == "sim":
        raise UsageError(
            "Workers in Google Cloud do not reach the simulator.",
            hint="Rehearse with the runner that Beam has in this process: leave --runner out after --.",
        )


def upload(
    cloud: Cloud, plan: DatasetPlan, asked: Mapping[str, Any], options: Sequence[str], progress: Progress
) -> Uploaded:
    """Upload as `dataset_upload.upload` does, with the shards made by a Beam pipeline.

    `asked` are the arguments the plan was made with, `options` those of Beam. Raises what the other raises,
    ConfigError without Beam, UsageError for wrong options, HostError when the pipeline fails.
    """
    made = _pipeline().Options(options)
    bucket = cloud.data_bucket
    bucket.check()
    kept, told = 0, progress
    if Commit(bucket, plan.name, plan.version).complete() is None:
        kept = _stage(bucket, plan, Task.of(plan, asked, cloud), made, progress)
        told = _only_the_end(progress)
    done = dataset_upload.upload(bucket, plan, told, skip_bad=asked["skip_bad"])
    return replace(done, kept=kept)


def _stage(bucket: Bucket, plan: DatasetPlan, task: Task, options: Any, progress: Progress) -> int:
    """Have the shards staged that are not; return how many were."""
    shards = list(plan.shards())
    staging = Staging(bucket, plan.name, plan.version)
    found = values(
        fanout(lambda one: staging.kept(one, skip_bad=task.asked["skip_bad"]), shards, width=_WIDTH)
    )
    missing = [(number, shards[number].identity) for number, note in enumerate(found) if note is None]
    if missing:
        failures = Failures(bucket, task)
        try:
            with _watching(_Staged(bucket, task.staging, shards, plan.records), progress):
                _pipeline().run(options, task, missing)
        except TpuctlError:
            _raise(failures, plan, task)  # says more than the end of the pipeline
            raise
        _raise(failures, plan, task)
    return len(shards) - len(missing)


def _raise(failures: Failures, plan: DatasetPlan, task: Task) -> None:
    """Raise what went wrong on the workers: all that is bad at once, or the first of the others."""
    found = failures.all()
    bad = [one for one in found if isinstance(one, BadRecordsError)]
    if bad:

        def work(shard: Shard) -> ShardResult:
            raise BadRecordsError([one for error in bad for one in error.bad])

        Conversion(plan, lambda done: None, skip_bad=task.asked["skip_bad"]).run(work, [next(plan.shards())])
    if found:
        raise found[0]


@dataclass(frozen=True)
class _Staged:
    """What is staged so far, as the bucket lists it."""

    bucket: Bucket
    folder: str
    shards: Sequence[Shard]
    total: int

    def look(self) -> Done:
        there = {one.name.removeprefix(self.folder): one.size for one in self.bucket.objects(self.folder)}
        whole = [one for one in self.shards if f"{one.identity}.json" in there]
        size = sum(there.get(f"{one.identity}.tfrecord", 0) for one in whole)
        return Done(sum(one.records for one in whole), self.total, size)


@contextmanager
def _watching(staged: _Staged, progress: Progress) -> Iterator[None]:
    """Tell of progress while the block runs; no runner does."""
    end = Event()

    def watch() -> None:
        while not end.wait(_LOOK_EVERY):
            try:
                progress(staged.look())
            except TpuctlError:
                pass  # the next look may work: it is not what the upload depends on

    thread = Thread(target=watch, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _only_the_end(progress: Progress) -> Progress:
    """What is committed has been counted while it was made."""
    return lambda done: progress(done) if done.records == done.total else None


def _pipeline() -> Any:
    try:
        from tpuctl.flows.datasets.beam import pipeline  # noqa: PLC0415  imports Beam
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "apache_beam":
            raise
        raise ConfigError(
            "--runner beam needs Apache Beam, which is not installed.",
            hint="Install it: pip install 'tpuctl[beam]'",
        ) from error
    return pipeline
