"""`tpuctl describe` of a run: everything that was asked and is known, or of a TPU and a run of one name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU, write_run
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import DeadlineError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, RUNNING, StopRequest, WorkerStatus
from tpuctl.host.worker.records import encode as encode_run
from tpuctl.runs import Run

Tpuctl = Callable[..., CommandResult]


def tell(bucket: Bucket, name: str, *statuses: WorkerStatus) -> None:
    for status in statuses:
        path = StoredRun(bucket, name).paths.status(1, status.worker)
        bucket.upload(path, [encode_run(status)], "application/json")


@pytest.fixture
def failed(bucket: Bucket) -> str:
    """The name of a run of four workers of which worker 2 failed for want of memory."""
    record = Run(
        "r1", CREATED, "ada@laptop", "job.py", ("--rate", "0.1"), "a" * 64, "jax", "v3-32", ("optax",),
        {"TOKEN": "(not stored)", "SEED": "5"}, PinnedDataset("pets", "1.0.0", "0" * 64),
    )  # fmt: skip
    run = StoredRun(bucket, "r1")
    run.create(record)
    run.create_attempt(ATTEMPT)
    running = replace(STATUS, state=FINISHED, exit_code=0, log_chunks=3)
    killed = replace(
        running, worker=2, exit_code=137, signal="SIGKILL", cause="out of memory", tail="step 7", log_chunks=4
    )
    tell(bucket, "r1", running, replace(running, worker=1), killed, replace(running, worker=3))
    return "r1"


def run_facts(result: CommandResult) -> dict[str, tuple[str, str]]:
    assert result.code == 0, result.err
    return {fact["name"]: (fact["value"], fact["from"]) for fact in result.json["run"]["facts"]}


def test_what_was_asked_and_what_is_known_is_shown_with_its_source(tpuctl: Tpuctl, failed: str) -> None:
    known = run_facts(tpuctl("describe", failed, "--json"))
    assert known["command"] == ("job.py --rate 0.1", "run.json")
    assert known["bundle"] == (f"gs://sim-project-tpuctl/bundles/{'a' * 64}.tar.gz", "run.json")
    assert known["dataset"][0] == "pets/1.0.0"
    assert known["environment"] == ("SEED, TOKEN", "run.json, names only; values are not shown")
    assert known["state"] == ("failed", "verdict.json, said by workers")
    assert known["exit code"][0] == "137"
    assert known["cause"][0] == "out of memory"
    assert known["last line"][0] == "step 7"
    assert known["attempt 1"][0] == (f"on n1 in {TPU.zone} (v3-32, base), workers 0-3, started {CREATED}")
    assert known["workers 0-1, 3"] == ("finished, exit code 0", "their status.json")
    assert known["worker 2"][0] == ("finished, ended by SIGKILL, cause: out of memory, last line: step 7")
    assert known["log"][0].startswith("13 pieces in gs://")
    assert known["checkpoints"][0] == "none yet"
    assert known["cost"][0].endswith("USD")
    assert all(source for _, source in known.values())


def test_the_table_ends_with_the_next_command(tpuctl: Tpuctl, failed: str) -> None:
    shown = tpuctl("describe", failed)
    assert shown.out.split()[:3] == ["FACT", "VALUE", "FROM"]
    assert shown.err.splitlines()[-1] == "Next: tpuctl logs r1 --tail 20"


def test_a_run_that_goes_on_is_followed(tpuctl: Tpuctl, bucket: Bucket) -> None:
    write_run(bucket)
    tell(bucket, "r1", *(replace(STATUS, worker=worker, state=RUNNING, pid=7) for worker in range(3)))
    result = tpuctl("describe", "r1", "--json")
    known = run_facts(result)
    assert known["state"] == ("starting", "workers")
    assert known["workers 0-2"][0] == "running, the script runs"
    assert known["worker 3"][0] == "has not written yet"
    assert result.json["run"]["next"] == "tpuctl logs r1 -f"


def test_a_request_to_stop_says_who_asked(tpuctl: Tpuctl, bucket: Bucket) -> None:
    run = write_run(bucket)
    bucket.create(run.paths.stop, encode_run(StopRequest("r1", "ada@example.com", CREATED, 30)))
    known = run_facts(tpuctl("describe", "r1", "--json"))
    assert known["asked to stop"] == (f"by ada@example.com at {CREATED}, with 30 s to save", "stop.json")


def test_a_record_that_cannot_be_read_is_a_fact(tpuctl: Tpuctl, bucket: Bucket) -> None:
    run = write_run(bucket)
    bucket.upload(run.paths.record, [b"{}"], "application/json")
    bucket.upload(run.paths.stop, [b"[["], "application/json")
    known = run_facts(tpuctl("describe", "r1", "--json"))
    assert known["request"][0].startswith("unknown: runs/r1/run.json is not a Run record")
    assert known["asked to stop"][0].startswith("unknown: ")
    assert "attempt 1" in known


def test_a_tpu_and_a_run_of_one_name_are_both_shown(tpuctl: Tpuctl, bucket: Bucket, node: str) -> None:
    run = StoredRun(bucket, node)
    run.create(msgspec.structs.replace(write_run(bucket, "other").record, run=node))
    shown = tpuctl("describe", node, "--json").json
    assert shown["nodes"][0]["name"] == node
    assert {fact["name"] for fact in shown["facts"]} >= {"state", "health"}
    assert {fact["name"] for fact in shown["run"]["facts"]} >= {"command", "submitted by"}
    table = tpuctl("describe", node)
    assert table.out.count("FACT ") == 2
    assert table.err.count("Next: ") == 2


def test_neither_a_tpu_nor_a_run_is_said(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    refused = tpuctl("describe", "nothing")
    assert refused.code == 4
    assert "There is no TPU 'nothing', and no run of that name." in refused.err


def test_a_bucket_that_does_not_answer_hides_no_tpu(
    tpuctl: Tpuctl, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DeadlineError("gs://b does not answer.")

    monkeypatch.setattr(Bucket, "stat", fail)
    shown = tpuctl("describe", node)
    assert shown.code == 0
    assert f"whether there is a run '{node}' is unknown: gs://b does not answer." in shown.err
