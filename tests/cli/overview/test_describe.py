"""Tests `tpuctl describe`, of a TPU and of a run: every fact has its source, and the next command follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from tests.cli.overview.test_ls import ZONE, change_node, give_run, only_node, queue
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU, write_run
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import DeadlineError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.keeper.records import Note, encode
from tpuctl.host.worker.records import FINISHED, RUNNING, StopRequest, WorkerStatus
from tpuctl.host.worker.records import encode as encode_run
from tpuctl.runs import Run

Tpuctl = Callable[..., CommandResult]


def facts(tpuctl: Tpuctl, name: str) -> dict[str, tuple[str, str]]:
    """Name of a fact -> its value and where it is from."""
    result = tpuctl("describe", name, "--json")
    assert result.code == 0, result.err
    return {fact["name"]: (fact["value"], fact["from"]) for fact in result.json["facts"]}


def test_a_node_is_described_with_the_source_of_each_fact(tpuctl: Tpuctl, node: str) -> None:
    known = facts(tpuctl, node)
    assert known["state"] == ("READY", "provider")
    assert known["health"] == ("HEALTHY", "provider")
    assert known["size"] == ("1 host, 4 chips, 8 cores", "catalogue")
    assert known["newest run"] == ("none yet", "bucket")
    assert known["ends by itself"] == ("never: until 'tpuctl down'", "no metadata")
    assert "keeper" not in known
    assert all(source for _, source in known.values())
    shown = tpuctl("describe", node)
    assert "FACT" in shown.out
    assert "FROM" in shown.out
    assert shown.err.splitlines()[-1] == f"Next: tpuctl submit SCRIPT --tpu {node}"


def test_the_metadata_is_named_and_its_values_are_not_shown(tpuctl: Tpuctl, node: str) -> None:
    value, _ = facts(tpuctl, node)["metadata"]
    assert "ssh-keys" in value
    assert "ssh-ed25519" not in tpuctl("describe", node).out


def test_a_run_that_works_there_is_followed(tpuctl: Tpuctl, cloud: Cloud, node: str) -> None:
    give_run(cloud, only_node(cloud))
    value, source = facts(tpuctl, node)["newest run"]
    assert value.startswith("digits-1, attempt 1: running, started 20")
    assert source == "bucket"
    assert tpuctl("describe", node).err.splitlines()[-1] == "Next: tpuctl logs digits-1 -f"


def test_symptoms_are_named_by_worker(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    change_node(simulator, symptoms=[{"symptomType": "LOW_MEMORY", "workerId": "3", "details": "98 %"}])
    assert facts(tpuctl, node)["symptom of worker 3"] == ("LOW_MEMORY 98 %", "provider")


def test_a_keeper_says_what_it_does_and_why_it_cannot(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--idle", "30m", "--yes").code == 0
    assert facts(tpuctl, "n1")["ends by itself"] == ("after 30m without use", "metadata")
    note = Note(0, "2026-01-31T12:00:00Z", active="2026-01-31T11:00:00Z", error="no permission to delete")
    written = encode(note).decode()
    monkeypatch.setattr("tpuctl.cloud.tpu.client.read_guest_attribute", lambda *_: {0: written})
    known = facts(tpuctl, "n1")
    assert known["keeper"] == (
        "idle since 2026-01-31T11:00:00Z; wrote 2026-01-31T12:00:00Z", "keeper on worker 0"
    )  # fmt: skip
    assert known["keeper cannot work"][0] == "no permission to delete"


@pytest.mark.parametrize("text", ["{", "[]", '{"worker": []}', "[" * 5000, "x" * 100_000])
def test_a_note_that_is_none_is_said(
    tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes").code == 0
    # Any program on the host may write it, and the simulator's own hosts bound what they take.
    monkeypatch.setattr("tpuctl.cloud.tpu.client.read_guest_attribute", lambda *_: {0: text})
    assert facts(tpuctl, "n1")["keeper"][0].startswith("unknown: the note on worker 0 cannot be read")


def test_a_queued_resource_that_failed_says_why_and_what_to_do(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator
) -> None:
    words = "Quota limit 'TPUV3' has been exceeded. Limit: 0 in zone Z."
    simulator.faults.add(
        "failed-operation", method="CreateQueuedResource", code="RESOURCE_EXHAUSTED", message=words
    )
    queue(cloud)
    while facts(tpuctl, "q1")["state of the request"][0].split(",")[0] != "FAILED":
        pass
    known = facts(tpuctl, "q1")
    assert known["why"][0] == f"failed: quota: {words}"
    assert "console.cloud.google.com/iam-admin/quotas" in known["what to do"][0]
    assert tpuctl("describe", "q1").err.splitlines()[-1] == f"Next: tpuctl down q1 --zone {ZONE}"


def test_one_that_is_gone_leads_to_its_story(tpuctl: Tpuctl, node: str) -> None:
    assert tpuctl("down", node, "--yes").code == 0
    result = tpuctl("describe", node)
    assert result.code == 4
    assert "There is no TPU 'n1'" in result.err
    assert f"tpuctl why {node}" in result.err


def test_a_silent_zone_may_hold_it(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    simulator.faults.add("unreachable", zone="us-east1-d")
    assert tpuctl("describe", "other").code == 9
    known = tpuctl("describe", node)
    assert known.code == 0
    assert "Warning: no answer from us-east1-d: more of that name may be there, and bill." in known.err


def test_a_bucket_that_does_not_answer_is_a_fact(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    simulator.faults.add("gcs-error", status="403")
    assert facts(tpuctl, node)["run"][0].startswith("unknown: No permission")


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


@pytest.mark.daily
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


@pytest.mark.daily
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
