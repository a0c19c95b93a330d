"""The record of what a run has left: who ends the run writes it, in one form, and nobody waits for it."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.records import CREATED, STATUS, write_run
from tests.running_simulator import RunningSimulator
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError
from tpuctl.flows.runs import results
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED
from tpuctl.host.worker.records import encode as encode_of_host
from tpuctl.object_content import Content
from tpuctl.provenance import Results, digest_of
from tpuctl.runs import BY_SILENCE, BY_WORKERS, Verdict, encode

FILES = {"checkpoints/ckpt-1.index": b"one", "outputs/weights.npy": b"two", "tensorboard/a/b": b""}


def write_files(bucket: Bucket, run: StoredRun, files: dict[str, bytes] = FILES) -> None:
    for name, data in files.items():
        bucket.create(run.paths.folder + name, data, "application/octet-stream")


def verdict(outcome: str = runs.SUCCEEDED, basis: str = BY_WORKERS, **more: bool) -> Verdict:
    return Verdict("r1", outcome, 1, CREATED, "because", basis=basis, **more)  # type: ignore[arg-type]


def read(run: StoredRun) -> Results | None:
    return results.read(run.bucket, run.paths)


def test_who_settles_a_run_that_has_ended_writes_its_results(bucket: Bucket) -> None:
    run = write_run(bucket)
    write_files(bucket, run)
    bucket.create(f"{run.paths.checkpoints}sub/", b"", "text/plain")  # a folder, as the console makes them
    bucket.create(f"{run.paths.folder}other/file", b"x", "text/plain")
    assert settle(run, Witnesses(MemoryProvider())).verdict is None
    assert read(run) is None
    for worker in range(4):
        status = replace(STATUS, worker=worker, state=FINISHED, exit_code=0)
        bucket.upload(run.paths.status(1, worker), [encode_of_host(status)], "application/json")
    assert settle(StoredRun(bucket, "r1"), Witnesses(MemoryProvider())).verdict
    record = read(run)
    assert record
    assert (record.run, record.attempt, record.outcome, record.left_out) == ("r1", 1, runs.SUCCEEDED, 0)
    assert {file.name: file.bytes for file in record.listed_files} == {
        name: len(data) for name, data in FILES.items()
    }
    assert (record.files, record.bytes) == (3, 6)
    for file in record.listed_files:
        data = FILES[file.name]
        assert file.crc32c == Content.of(data).crc32c
        assert file.md5 == base64.b64encode(hashlib.md5(data).digest()).decode()
        item = bucket.stat(run.paths.folder + file.name)
        assert item
        assert file.generation == item.generation
    assert record.digest == digest_of(record.listed_files)


def test_a_run_that_is_to_be_started_again_has_no_results_yet(bucket: Bucket) -> None:
    run = write_run(bucket)
    run.end(verdict(runs.PREEMPTED, restarts=True))
    assert read(run) is None
    assert results.ensured(bucket, run.paths, run.verdict()) is None
    run.end(Verdict("r1", runs.SUCCEEDED, 2, CREATED, "because", basis=BY_WORKERS))
    record = read(run)
    assert record
    assert (record.attempt, record.files) == (2, 0)


def test_a_better_verdict_brings_the_results_of_its_time(bucket: Bucket) -> None:
    run = write_run(bucket)
    run.end(verdict(runs.LOST, BY_SILENCE))
    write_files(bucket, run)
    run.end(verdict(runs.SUCCEEDED))
    record = read(run)
    assert record
    assert (record.outcome, record.files) == (runs.SUCCEEDED, 3)


def test_results_that_a_killed_reader_did_not_write_are_written_later(bucket: Bucket) -> None:
    run = write_run(bucket)
    bucket.create(run.paths.verdict, encode(verdict()))
    write_files(bucket, run)
    assert read(run) is None
    first = results.ensured(bucket, run.paths, run.verdict())
    assert first
    assert first.files == 3
    bucket.create(f"{run.paths.outputs}later", b"x", "text/plain")
    assert results.ensured(bucket, run.paths, run.verdict()) == first


def test_a_bucket_that_takes_no_record_of_results_keeps_the_verdict(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DeadlineError("The bucket does not answer.", hint="Try again.")

    run = write_run(bucket)
    monkeypatch.setattr(results, "listed", fail)
    assert run.end(verdict()).outcome == runs.SUCCEEDED
    assert run.verdict()
    assert read(run) is None


def test_many_files_are_counted_and_in_the_digest(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuctl.provenance.MOST_FILES", 2)
    run = write_run(bucket)
    write_files(bucket, run)
    record = results.write(bucket, run.paths, verdict())
    assert record
    assert (record.files, record.bytes, len(record.listed_files), record.left_out) == (3, 6, 2, 1)
    assert record.digest != digest_of(record.listed_files)
    assert not record.is_whole
    assert read(run) == record


def test_the_results_of_another_run_are_none(bucket: Bucket) -> None:
    run = write_run(bucket)
    record = results.write(bucket, run.paths, verdict())
    assert record
    other = StoredRun(bucket, "r2")
    bucket.create(other.paths.results, encode(record))
    with pytest.raises(BadObjectError, match="it is of run 'r1'"):
        results.read(bucket, other.paths)


def test_they_cost_a_listing_and_a_write_when_a_run_ends(bucket: Bucket, simulator: RunningSimulator) -> None:
    def sent() -> list[str]:
        requests = simulator.events.find(kind="request", service="storage")
        return [request.what.rpartition("storage.")[2] for request in requests]

    run = write_run(bucket)
    before = len(sent())
    run.end(verdict())
    assert sent()[before:] == ["objects.get", "objects.create", "objects.list", "objects.create"]
