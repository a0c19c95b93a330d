"""Records of a run that tests write into the bucket; no host runs it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_attempt import StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import RUNNING, WorkerStatus, encode
from tpuctl.runs import Attempt, Run, Tpu

CREATED = "2026-01-01T12:00:00Z"
TPU = Tpu("n1", "7", "sim-project", "europe-west4-a", "v3-32", "base", 4, spot=False)
ATTEMPT = Attempt(1, CREATED, TPU, (0, 1, 2, 3))
STATUS = WorkerStatus(0, 1, "7", RUNNING, CREATED)


def pass_time(bucket: Bucket, seconds: float) -> None:
    """Let the bucket's clock show a later time than that of its last writes."""
    read = bucket.now
    bucket.now = lambda: read() + timedelta(seconds=seconds)  # type: ignore[method-assign]


def write_run(bucket: Bucket, name: str = "r1") -> StoredRun:
    """Write a run of four workers with one attempt, and return it as another machine finds it."""
    run = StoredRun(bucket, name)
    run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
    run.create_attempt(ATTEMPT)
    return StoredRun(bucket, name)


def write_status(attempt: StoredAttempt, worker: int, state: str) -> None:
    """Write a worker's status, as the program on its host does."""
    status = replace(STATUS, worker=worker, state=state)
    name = attempt.run.paths.status(attempt.number, worker)
    attempt.run.bucket.upload(name, [encode(status)], "application/json")


def write_chunk(attempt: StoredAttempt, worker: int, chunk: int, text: str) -> None:
    """Write a chunk of a worker's log."""
    name = attempt.run.paths.log(attempt.number, worker, chunk)
    attempt.run.bucket.upload(name, [text.encode()], "text/plain")
