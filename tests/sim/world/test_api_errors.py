"""The errors of the Cloud TPU API: their codes and details, as Google's clients read them.

Which error a fault makes of a call or an operation of the Cloud TPU API, and which it leaves alone.
"""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.token_server import project_number
from tpuctl.sim.world.api_errors import ApiError, Code, Status, api_error, error_details, quota_exceeded
from tpuctl.sim.world.injected_faults import (
    NO_FAULT,
    OperationFault,
    is_unreachable,
    operation_fault,
    permission_of,
    raise_after_call,
    raise_before_call,
)

CONSUMER = {"consumer": "projects/p", "service": "tpu.googleapis.com"}
PERMISSION = {"permission": "tpu.nodes.get", "resource": "projects/p/locations/z/nodes/n"}
NAME = "projects/p/locations/z/nodes/n"


def test_the_codes_are_those_of_grpc() -> None:
    assert {code.name: int(code) for code in Code} == {
        status.name: status.value[0] for status in grpc.StatusCode if status is not grpc.StatusCode.OK
    }


@pytest.mark.parametrize(
    ("kind", "fields", "code", "text"),
    [
        ("api_disabled", {"project": "p"}, 7, "overview?project=p then retry"),
        ("location", {"project": "p", "zone": "z"}, 7, "Permission denied on 'locations/z'"),
        ("unknown_location", {"project": "p", "zone": "z"}, 7, "Location z is not found"),
        ("type_not_in_zone", {"type": "v3-9", "zone": "z"}, 3, 'accelerator type, "v3-9", could not'),
        ("bad_runtime", {"runtime": "x"}, 3, '"RuntimeVersion" cannot be "x". [EID: 0x'),
        ("exists", {"name": NAME}, 6, f"Resource '{NAME}' already exists"),
        ("not_found", {"name": NAME}, 5, f"Resource '{NAME}' was not found"),
        ("wrong_state", {"call": "stop", "state": "CREATING"}, 3,
         "stop is not supported while in state CREATING"),
        ("several_hosts", {"call": "stop", "name": NAME, "hosts": 4}, 3, "has 4 hosts [EID: 0x"),
        ("queued_power", {"call": "stop", "name": NAME}, 3, "a node of a queued resource"),
        ("spot_start", {"name": NAME}, 3, "not supported for the preemptible node"),
        ("concurrent_update", {"name": NAME}, 10, "is being updated by another operation"),
        ("cancelled", {}, 1, "The operation was cancelled."),
        ("stockout", {"zone": "z"}, 8, 'There is no more capacity in the zone "z"; you can try'),
        ("reserved_stockout", {}, 9, "Insufficient reserved capacity."),
        ("no_reservation", {}, 5, "Reservation not found"),
        ("expired", {}, 4, "within the time it was valid"),
        ("unreachable", {}, 14, "The location could not be reached."),
        ("queue_state", {"call": "delete", "name": "q", "state": "ACTIVE", "hint": ": use force"}, 9,
         "delete is not supported for the queued resource q while in state ACTIVE: use force [EID: 0x"),
        ("bad_filter", {"reason": "r"}, 3, "Invalid filter: r"),
        ("permission", PERMISSION, 7, f"Permission 'tpu.nodes.get' denied on '{NAME}'"),
        ("act_as", {"account": "a", "user": "u", **PERMISSION}, 7, "service account 'a'. User: 'u'."),
        ("unauthenticated", {}, 16, "missing required authentication credential"),
        ("deadline", {}, 4, "Deadline exceeded."),
        ("unavailable", {}, 14, "The service is currently unavailable."),
        ("bad_name", {"name": "x"}, 3, "Invalid resource field value in the request: 'x'."),
        ("bad_id", {"what": "node", "id": "X"}, 3, "Invalid node ID 'X'"),
        ("bad_page", {"parameter": "page_size"}, 3, "Invalid page_size."),
        ("bad_field", {"reason": "r"}, 3, "Cloud TPU received a bad request. r [EID: 0x"),
        ("label_key", {"key": "k", "problem": "is long"}, 3, "key k is long"),
        ("label_value", {"key": "k", "value": "v", "problem": "is long"}, 3, "value v is long for key k"),
        ("many_labels", {"count": 65, "most": 64}, 3, "labels, 65, exceeds the limit of 64"),
        ("flex_start", {"reason": "r"}, 3, "bad request. r [EID: 0x"),
        ("bad_mask", {"paths": "state", "updatable": "labels"}, 3, "update_mask: state. Fields that can"),
        ("bad_json", {"reason": "r"}, 3, "Invalid JSON payload received. r"),
        ("operation_runs", {"name": "o"}, 9, "The operation 'o' is still running."),
        ("no_route", {"verb": "GET", "path": "/x"}, 5, "There is no method GET /x"),
        ("unimplemented", {"feature": "f"}, 12, "does not know f yet"),
        ("old_version", {"call": "CreateNode"}, 12, "call CreateNode of v2"),
        ("internal", {"reason": "r"}, 13, "Internal error in the simulator: r"),
    ],
)  # fmt: skip
def test_an_error_has_its_code_and_is_filled_in(
    kind: str, fields: dict[str, Any], code: int, text: str
) -> None:
    status = api_error(kind, **fields).status
    assert int(status.code) == code
    assert text in status.message
    assert str(api_error(kind, **fields)).partition("[EID")[0] == status.message.partition("[EID")[0]


@pytest.mark.parametrize(
    ("kind", "fields", "reason", "metadata"),
    [
        ("api_disabled", {"project": "p"}, "SERVICE_DISABLED", CONSUMER),
        ("location", {"project": "p", "zone": "z"}, "LOCATION_POLICY_VIOLATED", CONSUMER | {"location": "z"}),
        ("unknown_location", {"project": "p", "zone": "z"}, "LOCATION_POLICY_VIOLATED",
         CONSUMER | {"location": "z"}),
        ("permission", PERMISSION, "IAM_PERMISSION_DENIED", PERMISSION),
        ("act_as", {"account": "a", "user": "u", **PERMISSION}, "IAM_PERMISSION_DENIED", PERMISSION),
    ],
)  # fmt: skip
def test_an_error_names_its_reason(kind: str, fields: dict[str, Any], reason: str, metadata: object) -> None:
    """https://google.aip.dev/193"""
    assert api_error(kind, **fields).status.details == (
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "googleapis.com",
            "metadata": metadata,
        },
    )


def test_a_name_that_is_taken_is_in_the_details() -> None:
    assert api_error("exists", name=NAME).status.details == (
        {"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": NAME},
    )


def test_an_error_without_a_reason_has_no_details() -> None:
    for kind, fields in (("not_found", {"name": NAME}), ("stockout", {"zone": "z"}), ("unavailable", {})):
        assert api_error(kind, **fields).status.details == ()


def test_an_error_has_a_number_of_its_own() -> None:
    first, second = (api_error("stockout", zone="z").status.message for _ in range(2))
    assert first != second
    assert int(first.rpartition("[EID: ")[2].removesuffix("]"), 16) < 1 << 64


def test_all_quotas_that_are_exceeded_are_in_one_error() -> None:
    zone, region = "TPUV3sPerProjectPerZoneForTPUAPI", "TPUV3sPerProjectPerRegionForTPUAPI"
    error = quota_exceeded("p", [(zone, 8, "us-central1-a"), (region, 16, "us-central1")])
    assert int(error.status.code) == 8
    assert error.status.message == (
        f"Quota limit '{zone},{region}' has been exceeded. "
        "Limit: 8,16 in zone us-central1-a,region us-central1."
    )
    subject = f"project:{project_number('p')}"
    assert error.status.details == (
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [
                {
                    "subject": subject,
                    "description": f"Quota '{zone}' exhausted. Limit 8 in zone us-central1-a",
                },
                {
                    "subject": subject,
                    "description": f"Quota '{region}' exhausted. Limit 16 in region us-central1",
                },
            ],
        },
    )


def test_a_quota_of_which_little_is_known_has_a_violation_too() -> None:
    """As for a fault whose metadata names nothing but the limit."""
    (info, failure) = error_details("RATE_LIMIT_EXCEEDED", {"quota_limit": "Reads"})
    assert (info["reason"], info["metadata"]) == ("RATE_LIMIT_EXCEEDED", {"quota_limit": "Reads"})
    assert failure["violations"] == [{"subject": "", "description": "Quota 'Reads' exhausted. Limit 0"}]
    assert error_details("", {}) == ()


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
