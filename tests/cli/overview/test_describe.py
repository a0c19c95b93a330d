"""Tests `tpuctl describe`: every fact has its source, and the next command follows from the state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.overview.test_ls import ZONE, change_node, give_run, only_node, queue
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.host.keeper.records import Note, encode

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
