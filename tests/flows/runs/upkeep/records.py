"""Runs that have ended, written into a bucket; no host ran them."""

from __future__ import annotations

import msgspec

from tests.flows.runs.records import CREATED, TPU, write_run, write_status
from tpuctl import runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED
from tpuctl.runs import Verdict

WORKERS = (0, 1, 2, 3)


def write_ended_run(
    bucket: Bucket, name: str, *, finished: tuple[int, ...] = WORKERS, results: bool = False
) -> StoredRun:
    """Write a run that succeeded, with a checkpoint and an output; some workers said their last word.

    With `results`, its record of results has these two.
    """
    run = write_run(bucket, name)
    for worker in WORKERS:
        write_status(run.attempt(1), worker, FINISHED if worker in finished else "running")
    files = ("checkpoints/model.pt", "outputs/deep/er/x") if results else ()
    for file in files:
        bucket.upload(f"runs/{name}/{file}", [b"x" * 10], "text/plain")
    run.end(ended(name))
    for file in () if results else ("checkpoints/ckpt-1.index", "outputs/deep/er/x"):
        bucket.upload(f"runs/{name}/{file}", [b"x" * 10], "text/plain")
    return StoredRun(bucket, name)


def ended(name: str, outcome: str = runs.SUCCEEDED, basis: str = runs.BY_WORKERS, **more: object) -> Verdict:
    """The verdict of an attempt."""
    verdict = Verdict(name, outcome, 1, CREATED, "it ended", 0, basis, ended=CREATED, tpu=TPU)
    return msgspec.structs.replace(verdict, **more)


def rest_of(bucket: Bucket, name: str) -> list[str]:
    """What the bucket has of a run, in its folder and in those of nodes."""
    notes = [item.name for item in bucket.objects(NodePaths.of(TPU.id).runs) if f"/{name}/" in item.name]
    return [*notes, *(item.name for item in bucket.objects(f"runs/{name}/"))]
