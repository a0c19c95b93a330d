"""Each fault of the Cloud TPU API as Google's own client meets it, and its end."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, POLLING

ELSEWHERE = "projects/sim-project/locations/us-central1-b"
NODE = f"{PARENT}/nodes/one"
SPEC = {"accelerator_type": "v3-8", "runtime_version": "tpu-ubuntu2204-base"}


def begin(tpu: tpu_v2.TpuClient, name: str = "one", parent: str = PARENT, **fields: Any) -> Any:
    return tpu.create_node(parent=parent, node_id=name, node=tpu_v2.Node(**{**SPEC, **fields}))


def create(tpu: tpu_v2.TpuClient, name: str = "one", parent: str = PARENT, **fields: Any) -> tpu_v2.Node:
    return begin(tpu, name, parent, **fields).result(polling=POLLING)


def names(tpu: tpu_v2.TpuClient) -> list[str]:
    return [node.name for node in tpu.list_nodes(parent=PARENT)]


def asked(simulator: RunningSimulator) -> list[str]:
    return [fault.kind for fault in simulator.faults.all()]


def test_a_stockout_is_for_its_zone_and_type_and_for_so_many_tries(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator
) -> None:
    simulator.faults.add("stockout", zone="europe-west4-a", type="v3-8", count=2)
    create(tpu, "elsewhere", "projects/sim-project/locations/us-central1-b", accelerator_type="v2-8")
    create(tpu, "larger", accelerator_type="v3-32")
    for _ in range(2):
        with pytest.raises(exceptions.ResourceExhausted, match="no more capacity in the zone"):
            create(tpu)
    create(tpu)
    assert asked(simulator) == []
    told = simulator.simulator.events.find(kind="fault", what="stockout")
    assert [event.resource.split("/")[-3:] for event in told] == [["europe-west4-a", "nodes", "one"]] * 2


def test_a_stockout_can_be_for_a_time_and_be_one_of_a_reservation(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator
) -> None:
    fault = simulator.faults.add("stockout", duration="1h", reserved=True)
    with pytest.raises(exceptions.FailedPrecondition, match="Insufficient reserved capacity"):
        create(tpu)
    simulator.faults.clock = lambda: time.time() + 3601
    create(tpu)
    assert simulator.faults.find(fault.id) is None


def test_a_fault_can_begin_later_and_let_some_off_first(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator
) -> None:
    simulator.faults.add("unavailable", method="ListNodes", after=3600)
    simulator.faults.add("unavailable", method="GetNode", skip=1, count=1)
    names(tpu)
    create(tpu)
    tpu.get_node(name=NODE)
    with pytest.raises(exceptions.ServiceUnavailable):
        tpu.get_node(name=NODE)
    tpu.get_node(name=NODE)
    simulator.faults.clock = lambda: time.time() + 3601
    with pytest.raises(exceptions.ServiceUnavailable):
        names(tpu)


def test_a_quota_counts_what_is_there(tpu: tpu_v2.TpuClient, simulator: RunningSimulator) -> None:
    fault = simulator.faults.add("quota", zone="europe-west4-a", limit=8)
    create(tpu)
    with pytest.raises(exceptions.TooManyRequests, match="Limit: 8 in zone europe-west4-a") as raised:
        begin(tpu, "two")
    (failure,) = raised.value.details
    assert failure.violations[0].description.startswith("Quota 'TPUV3sPerProjectPerZoneForTPUAPI' exhausted")
    tpu.delete_node(name=NODE).result(polling=POLLING)
    create(tpu, "two")
    simulator.faults.remove(fault.id)
    create(tpu, "three")


def test_a_quota_of_zero_was_never_granted(tpu: tpu_v2.TpuClient, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", quota="TPUV3s*", count=1)
    with pytest.raises(
        exceptions.TooManyRequests, match="Limit: 0,0 in zone europe-west4-a,region europe-west4"
    ):
        begin(tpu)
    assert names(tpu) == []
    create(tpu)


def test_an_api_can_be_off_in_a_project(tpu: tpu_v2.TpuClient, simulator: RunningSimulator) -> None:
    simulator.faults.add("api-off", project="sim-*", count=1)
    with pytest.raises(exceptions.Forbidden, match="has not been used in project sim-project") as raised:
        names(tpu)
    assert raised.value.reason == "SERVICE_DISABLED"
    names(tpu)


def test_a_missing_permission_is_named(tpu: tpu_v2.TpuClient, simulator: RunningSimulator) -> None:
    fault = simulator.faults.add("permission", method="CreateNode")
    with pytest.raises(
        exceptions.Forbidden, match=rf"Permission 'tpu\.nodes\.create' denied on '{NODE}'"
    ) as raised:
        begin(tpu)
    assert raised.value.reason == "IAM_PERMISSION_DENIED"
    names(tpu)
    simulator.faults.remove(fault.id)
    create(tpu)


def test_a_zone_can_be_denied(tpu: tpu_v2.TpuClient, simulator: RunningSimulator) -> None:
    fault = simulator.faults.add("zone-denied", zone="us-central1-*")
    with pytest.raises(
        exceptions.Forbidden, match="Permission denied on 'locations/us-central1-b'"
    ) as raised:
        tpu.list_nodes(parent=ELSEWHERE)
    assert raised.value.reason == "LOCATION_POLICY_VIOLATED"
    names(tpu)
    simulator.faults.remove(fault.id)
    tpu.list_nodes(parent=ELSEWHERE)


def test_a_zone_that_does_not_answer_is_named_in_lists(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator
) -> None:
    create(tpu)
    everywhere = "projects/sim-project/locations/-"
    fault = simulator.faults.add("unreachable", zone="europe-west4-a")
    (page,) = tpu.list_nodes(parent=everywhere).pages
    assert (list(page.nodes), list(page.unreachable)) == ([], [PARENT])
    with pytest.raises(exceptions.ServiceUnavailable):
        tpu.get_node(name=NODE)
    simulator.faults.remove(fault.id)
    assert [node.name for node in tpu.list_nodes(parent=everywhere)] == [NODE]


@pytest.mark.parametrize(
    ("kind", "error"),
    [("unavailable", exceptions.ServiceUnavailable), ("deadline-exceeded", exceptions.DeadlineExceeded)],
)
def test_calls_fail_before_they_take_effect(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, kind: str, error: type[Exception]
) -> None:
    simulator.faults.add(kind, method="CreateNode", count=2)
    for _ in range(2):
        with pytest.raises(error):
            begin(tpu)
        assert names(tpu) == []
    create(tpu)


@pytest.mark.parametrize(
    ("kind", "error"),
    [("unavailable", exceptions.ServiceUnavailable), ("deadline-exceeded", exceptions.DeadlineExceeded)],
)
def test_an_answer_is_lost_although_the_call_took_effect(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator, kind: str, error: type[Exception]
) -> None:
    simulator.faults.add(kind, method="CreateNode", when="after", count=1)
    with pytest.raises(error):
        begin(tpu)
    assert names(tpu) == [NODE]
    with pytest.raises(exceptions.AlreadyExists):
        begin(tpu)
    assert asked(simulator) == []


def test_any_code_text_and_reason_can_be_asked_for(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator
) -> None:
    simulator.faults.add(
        "error", method="List*", code="ABORTED", message="not now", reason="WHY", metadata="a=b", count=1
    )
    with pytest.raises(exceptions.Aborted, match="not now") as raised:
        names(tpu)
    assert (raised.value.reason, raised.value.metadata) == ("WHY", {"a": "b"})
    names(tpu)


def test_a_create_can_be_slow(tpu: tpu_v2.TpuClient, simulator: RunningSimulator) -> None:
    simulator.faults.add("slow-operation", seconds="1h", count=1)
    slow = begin(tpu)

    async def an_hour_passes() -> None:
        simulator.simulator.clock.advance(3600)

    simulator.call(an_hour_passes())  # where the operation reckons how long it has to wait
    slow.result(polling=POLLING)
    create(tpu, "two")
    came = {
        (event.resource.rpartition("/")[2], event.what): event.time
        for event in simulator.events.find(kind="transition")
    }
    first, second = (came[name, "READY"] - came[name, "CREATING"] for name in ("one", "two"))
    assert first >= 3600 > second


def test_a_create_is_stuck_until_the_fault_is_removed(
    tpu: tpu_v2.TpuClient, simulator: RunningSimulator
) -> None:
    fault = simulator.faults.add("stuck-operation", zone="europe-west4-a", count=1)
    stuck = begin(tpu)
    create(tpu, "two")
    assert tpu.get_node(name=NODE).state == tpu_v2.Node.State.CREATING
    assert not stuck.done()
    simulator.faults.remove(fault.id)
    assert stuck.result(polling=POLLING).state == tpu_v2.Node.State.READY


def test_a_stuck_create_can_be_given_up(tpu: tpu_v2.TpuClient, simulator: RunningSimulator) -> None:
    simulator.faults.add("stuck-operation")
    begin(tpu)
    tpu.delete_node(name=NODE).result(polling=POLLING)
    assert names(tpu) == []


@pytest.mark.parametrize(
    ("method", "call", "remaining"),
    [
        ("CreateNode", lambda tpu: begin(tpu, "two"), [NODE]),
        ("DeleteNode", lambda tpu: tpu.delete_node(name=NODE), [NODE]),
        ("StopNode", lambda tpu: tpu.stop_node({"name": NODE}), [NODE]),
    ],
)
def test_an_operation_fails_late_and_leaves_all_as_it_was(
    tpu: tpu_v2.TpuClient,
    simulator: RunningSimulator,
    method: str,
    call: Callable[[Any], Any],
    remaining: list[str],
) -> None:
    create(tpu)
    simulator.faults.add("failed-operation", method=method, message="it broke", seconds="100ms", count=1)
    with pytest.raises(exceptions.InternalServerError, match="it broke"):
        call(tpu).result(polling=POLLING)
    assert names(tpu) == remaining
    call(tpu).result(polling=POLLING)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH")
def test_gcloud_sees_a_stockout(simulator: RunningSimulator, tmp_path: Path) -> None:
    def gcloud(*words: str) -> subprocess.CompletedProcess[str]:
        endpoints = simulator.simulator.endpoints
        environment = {
            **os.environ,
            "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{endpoints['tpu_rest']}/",
            "CLOUDSDK_CORE_PROJECT": "sim-project",
            "CLOUDSDK_COMPUTE_ZONE": "europe-west4-a",
        }
        command = ["gcloud", "compute", "tpus", "tpu-vm", *words, "--quiet"]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)

    create = ("create", "one", "--accelerator-type=v3-8", "--version=tpu-ubuntu2204-base")
    simulator.faults.add("stockout", count=1)
    refused = gcloud(*create)
    assert refused.returncode
    assert "no more capacity" in refused.stderr
