"""Uploads a dataset with Apache Beam: workers stage the shards, this machine commits.

Each shard is one element. Workers stage what `flows/datasets/upload.py` would have staged: that then finds
all shards complete, and commits them. Workers write down why a shard could not be converted; see `worker.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Thread
from types import ModuleType
from typing import TYPE_CHECKING

from tpuctl.data.options import BadRecordsError
from tpuctl.data.output.manifest import SUFFIXES
from tpuctl.data.output.shards import Shard, ShardResult
from tpuctl.data.plan import DatasetPlan
from tpuctl.errors import ConfigError, TpuctlError, UsageError
from tpuctl.flows.datasets import upload as local_upload
from tpuctl.flows.datasets.beam.worker import Failures, Task
from tpuctl.flows.datasets.conversion import Conversion, ConversionProgress, Report
from tpuctl.flows.datasets.request import UploadRequest
from tpuctl.flows.datasets.upload import Commit, Staging, Uploaded
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud
    from tpuctl.cloud.storage import Bucket
    from tpuctl.flows.datasets.beam.pipeline import Options

_WIDTH = 8
_LOOK_EVERY = 2.0
"""Seconds between two looks at what the workers have staged."""


def check(beam_options: Sequence[str], target: str) -> None:
    """Raise before anything is listed: ConfigError without Beam, UsageError for what it cannot take."""
    options = _pipeline().Options(beam_options)
    if options.in_google_cloud and target == "sim":  # first: no other option would help
        raise UsageError(
            "Workers in Google Cloud do not reach the simulator.",
            hint="Rehearse with Beam's runner in this process: remove --runner from the options after --.",
        )
    options.check()


def are_checked(beam_options: Sequence[str]) -> bool:
    """Check options as their runner does; raises UsageError. Return False where Beam is not installed."""
    try:
        pipeline = _pipeline()
    except ConfigError:
        return False
    pipeline.Options(beam_options).check()
    return True


def upload(
    cloud: Cloud, plan: DatasetPlan, request: UploadRequest, beam_options: Sequence[str], report: Report
) -> Uploaded:
    """Upload as `flows/datasets/upload.py` does, with the shards converted by a Beam pipeline.

    `plan` was made of `request`. Raises the errors of the other, ConfigError without Beam, UsageError for
    wrong options, HostError when the pipeline fails.
    """
    options = _pipeline().Options(beam_options)
    plan.require_good(skip_bad=request.skip_bad)
    bucket = cloud.data_bucket
    bucket.check()
    staged_before, report_commit = 0, report
    if Commit(bucket, plan.ref).complete() is None:
        staged_before = _stage(bucket, plan, Task.of(plan, request, cloud), options, report)
        report_commit = _only_the_end(report)
    uploaded = local_upload.upload(bucket, plan, report_commit, skip_bad=request.skip_bad)
    return replace(uploaded, kept=staged_before)


def _stage(bucket: Bucket, plan: DatasetPlan, task: Task, options: Options, report: Report) -> int:
    """Have the missing shards staged; return how many were staged before."""
    shards = list(plan.shards())
    staging, skip_bad = Staging(bucket, plan.ref, plan.file_format), task.request.skip_bad
    results = values(fanout(lambda shard: staging.find(shard, skip_bad=skip_bad), shards, width=_WIDTH))
    missing = [(number, shards[number].identity) for number, result in enumerate(results) if result is None]
    if missing:
        failures = Failures(bucket, task)
        try:
            with _watching(_Staged(bucket, task.staging, shards, plan.records), report):
                _pipeline().run(options, task, missing)
        except TpuctlError:
            _raise_first(failures, plan, task)  # says more than the end of the pipeline
            raise
        _raise_first(failures, plan, task)
    return len(shards) - len(missing)


def _raise_first(failures: Failures, plan: DatasetPlan, task: Task) -> None:
    """Raise what went wrong on the workers: all bad records at once, or the first of the other errors."""
    errors = failures.take_all()
    bad = [record for error in errors if isinstance(error, BadRecordsError) for record in error.bad]
    if bad:

        def fail(shard: Shard) -> ShardResult:
            raise BadRecordsError(bad)

        skip_bad = task.request.skip_bad
        Conversion(plan, lambda progress: None, skip_bad=skip_bad).run(fail, [next(plan.shards())])
    if errors:
        raise errors[0]


@dataclass(frozen=True)
class _Staged:
    """The shards staged so far, as the bucket lists them."""

    bucket: Bucket
    folder: str
    shards: Sequence[Shard]
    total: int

    def progress(self) -> ConversionProgress:
        sizes = {
            listed.name.removeprefix(self.folder): listed.size for listed in self.bucket.objects(self.folder)
        }
        complete = [shard for shard in self.shards if f"{shard.identity}.json" in sizes]
        size = sum(sizes.get(f"{shard.identity}.{SUFFIXES[shard.file_format]}", 0) for shard in complete)
        return ConversionProgress(sum(shard.records for shard in complete), self.total, size)


@contextmanager
def _watching(staged: _Staged, report: Report) -> Iterator[None]:
    """Report progress while the block runs; no runner does."""
    end = Event()

    def watch() -> None:
        while not end.wait(_LOOK_EVERY):
            try:
                report(staged.progress())
            except TpuctlError:
                pass  # the next look may work: the upload does not depend on it

    thread = Thread(target=watch, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _only_the_end(report: Report) -> Report:
    """Report nothing but the end: the records were counted while they were staged."""
    return lambda progress: report(progress) if progress.records == progress.total else None


def _pipeline() -> ModuleType:
    try:
        from tpuctl.flows.datasets.beam import pipeline  # noqa: PLC0415  imports Beam
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "apache_beam":
            raise
        raise ConfigError(
            "--runner beam needs Apache Beam, which is not installed.",
            hint="Install it: pip install 'apache-beam[gcp]'",
        ) from error
    return pipeline
