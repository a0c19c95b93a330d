"""Which error a fault makes of a call or an operation of the Cloud TPU API, and which it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.world.api_errors import ApiError, Status
from tpuctl.sim.world.injected_faults import (
    NO_FAULT,
    OperationFault,
    is_unreachable,
    operation_fault,
    permission_of,
    raise_after_call,
    raise_before_call,
)

ZONE = "projects/p/locations/us-central1-a"
NODE = f"{ZONE}/nodes/n1"


@pytest.fixture
def faults() -> FaultRegistry:
    return FaultRegistry(clock=lambda: 0.0)


def refusal(
    faults: FaultRegistry, method: str = "GetNode", resource: str = NODE, *, after: bool = False
) -> str:
    """Return the code and text of the error that a call meets; empty if it meets none."""
    try:
        (raise_after_call if after else raise_before_call)(faults, method, resource)
    except ApiError as error:
        return f"{int(error.status.code)} {error.status.message}"
    return ""


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        ("api-off", {}, "7 Cloud TPU API has not been used in project p before"),
        ("api-off", {"project": "p"}, "7 Cloud TPU API has not been used in project p before"),
        ("permission", {}, f"7 Permission 'tpu.nodes.get' denied on '{NODE}'"),
        ("zone-denied", {"zone": "us-*"}, "7 Permission denied on 'locations/us-central1-a'"),
        ("unavailable", {}, "14 The service is currently unavailable."),
        ("deadline-exceeded", {"method": "GetNode", "zone": "us-central1-a"}, "4 Deadline exceeded."),
        ("error", {"method": "GetNode", "code": "CANCELLED", "message": "no"}, "1 no"),
        ("error", {"method": "tpu.*", "resource": "n1"}, "13 The simulator was asked to fail."),
    ],
)
def test_a_call_is_rejected(faults: FaultRegistry, kind: str, options: dict[str, Any], text: str) -> None:
    faults.add(kind, **options)
    assert refusal(faults).startswith(text)
    assert refusal(faults, after=True) == "", "the call would have been rejected before"


def test_a_policy_against_guest_attributes_refuses_no_other_call(faults: FaultRegistry) -> None:
    faults.add("guest-attributes-off")
    assert refusal(faults) == ""
    assert refusal(faults, "GetGuestAttributes").startswith(
        "9 Constraint constraints/compute.disableGuestAttributesAccess violated for project p."
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("api-off", {"project": "q"}),
        ("api-off", {"api": "storage"}),
        ("permission", {"method": "CreateNode"}),
        ("zone-denied", {"zone": "us-central1-b"}),
        ("unavailable", {"resource": "n2"}),
        ("error", {"method": "GetNode", "zone": "europe-*"}),
        ("stockout", {}),
        ("failed-operation", {}),
        ("unreachable", {"zone": "*"}),
    ],
)
def test_a_fault_of_something_else_rejects_no_call(
    faults: FaultRegistry, kind: str, options: dict[str, Any]
) -> None:
    faults.add(kind, **options)
    assert (refusal(faults), refusal(faults, after=True)) == ("", "")


@pytest.mark.parametrize("kind", ["unavailable", "deadline-exceeded", "error"])
def test_a_response_is_lost_after_the_call_has_taken_effect(faults: FaultRegistry, kind: str) -> None:
    faults.add(kind, method="GetNode", when="after")
    assert refusal(faults) == ""
    assert refusal(faults, after=True) != ""


def test_a_name_of_the_wrong_shape_is_in_no_project(faults: FaultRegistry) -> None:
    faults.add("unavailable", project="p")
    assert refusal(faults, resource="nonsense") == ""
    faults.add("unavailable")
    assert refusal(faults, resource="nonsense").startswith("14 ")


def test_an_error_has_its_reason_and_metadata(faults: FaultRegistry) -> None:
    faults.add("error", method="GetNode", code="UNAUTHENTICATED", reason="EXPIRED", metadata={"a": "b"})
    with pytest.raises(ApiError) as raised:
        raise_before_call(faults, "GetNode", NODE)
    (info,) = raised.value.status.details
    assert (int(raised.value.status.code), info["reason"], info["metadata"]) == (16, "EXPIRED", {"a": "b"})


def test_a_zone_is_unreachable(faults: FaultRegistry) -> None:
    faults.add("unreachable", zone="us-central1-a", project="p")
    assert is_unreachable(faults, "p", "us-central1-a")
    assert not is_unreachable(faults, "q", "us-central1-a")
    assert not is_unreachable(faults, "p", "us-central1-b")


def operation(
    faults: FaultRegistry, method: str = "CreateNode", usual_failure: float = 0.0
) -> OperationFault:
    return operation_fault(faults, method, NODE, "v3-8", usual_failure)


def test_an_operation_is_left_alone_by_default(faults: FaultRegistry) -> None:
    assert operation(faults) == NO_FAULT == OperationFault(error=None, delay=0.0, held_by="")
    for kind in ("stockout", "slow-operation", "stuck-operation", "failed-operation"):
        faults.add(kind, type="v2-8")
    assert operation(faults) == NO_FAULT


@pytest.mark.parametrize(
    ("method", "fails"),
    [("CreateNode", True), ("StartNode", True), ("UpdateNode", False), ("DeleteNode", False)],
)
def test_a_stockout_fails_what_needs_capacity(faults: FaultRegistry, method: str, fails: bool) -> None:
    faults.add("stockout", type="v3-8")
    fault = operation(faults, method, usual_failure=9.0)
    assert (fault.error is not None) is fails
    assert (fault.delay, fault.held_by) == (0.0, "")
    if fault.error:
        assert int(fault.error.code) == 8
        assert '"us-central1-a"' in fault.error.message


def test_a_stockout_may_be_that_of_a_reservation(faults: FaultRegistry) -> None:
    faults.add("stockout", reserved=True)
    error = operation(faults).error
    assert error is not None
    assert (int(error.code), error.message.partition(".")[0]) == (9, "Insufficient reserved capacity")


def test_a_failure_comes_at_its_usual_time_or_at_another(faults: FaultRegistry) -> None:
    failed = Status(10, "late")
    faults.add("failed-operation", method="DeleteNode", code="ABORTED", message="late", count=1)
    assert operation(faults, "DeleteNode", usual_failure=9.0) == OperationFault(failed)
    faults.add("failed-operation", method="DeleteNode", code="ABORTED", message="late", seconds=25, count=1)
    assert operation(faults, "DeleteNode", usual_failure=9.0) == OperationFault(failed, delay=16.0)
    faults.add("failed-operation", method="DeleteNode", code="ABORTED", message="late", seconds=25)
    faults.add("slow-operation", method="DeleteNode", seconds=100)
    assert operation(faults, "DeleteNode") == OperationFault(failed, delay=125.0)


def test_an_operation_is_slowed_down_and_held_up(faults: FaultRegistry) -> None:
    faults.add("slow-operation")
    assert operation(faults) == OperationFault(delay=60.0)
    stuck = faults.add("stuck-operation", resource="n1")
    assert operation(faults) == OperationFault(delay=60.0, held_by=stuck.id)
    assert operation(faults, "StopNode") == NO_FAULT


@pytest.mark.parametrize(
    ("method", "permission"),
    [
        ("tpu.CreateNode", "tpu.nodes.create"),
        ("tpu.ListNodes", "tpu.nodes.list"),
        ("tpu.ListAcceleratorTypes", "tpu.acceleratortypes.list"),
        ("tpu.GetQueuedResource", "tpu.queuedresources.get"),
        ("storage.objects.get", "storage.objects.get"),
        ("tpu.x", "tpu.x"),
    ],
)
def test_a_method_has_the_permission_of_its_name(method: str, permission: str) -> None:
    assert permission_of(method) == permission
