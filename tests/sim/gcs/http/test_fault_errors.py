"""The errors that faults make of operations of Cloud Storage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tpuctl.faults.kinds import CODES
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.request_faults import fault_error

LIMIT = "The object exceeded the rate limit for object mutation operations (create, update, and delete)."
FAULT_STATUS = {
    "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 412,
    "ABORTED": 409, "OUT_OF_RANGE": 416, "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503,
    "DATA_LOSS": 500, "UNAUTHENTICATED": 401,
}  # fmt: skip


def document(kind: str, *operation: str, **options: object) -> Any:
    """Return the JSON of the error of a fault; `operation` is a method and its resource."""
    error = fault_error(FaultRegistry().add(kind, **options), *(operation or ("storage.objects.get", "b/o")))
    return json.loads(error.to_json())["error"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("408", "Request Timeout"),
        ("429", LIMIT),
        ("500", "We encountered an internal error. Please try again."),
        ("502", "Bad Gateway"),
        ("503", "Service Unavailable. Please try again."),
        ("504", "Deadline Exceeded"),
        ("404", "The simulator was asked to fail."),
    ],
)
def test_a_status_has_the_text_of_cloud_storage(status: str, message: str) -> None:
    error = document("gcs-error", status=status)
    assert (error["code"], error["message"], "details" in error) == (int(status), message, False)


def test_every_code_of_grpc_has_a_status() -> None:
    assert {code: document("error", method="GetNode", code=code)["code"] for code in CODES} == FAULT_STATUS


def test_an_error_may_have_any_text_reason_and_details() -> None:
    error = document(
        "error", method="GetNode", code="ABORTED", message="no", reason="later", metadata={"a": "b"}
    )
    assert (error["code"], error["message"], error["errors"][0]["reason"]) == (409, "no", "later")
    assert error["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "domain": "googleapis.com",
            "reason": "later",
            "metadata": {"a": "b"},
        }
    ]
    plain = document("error", method="GetNode", code="ABORTED")
    assert (plain["errors"][0]["reason"], "details" in plain) == ("conflict", False)


@pytest.mark.parametrize(("resource", "noun"), [("b/o", "object"), ("b", "bucket")])
def test_a_missing_permission_is_that_of_the_method(resource: str, noun: str) -> None:
    error = document("permission", "storage.objects.list", resource)
    assert (error["code"], error["message"]) == (
        403,
        f"The caller does not have storage.objects.list access to the Google Cloud Storage {noun}. "
        "Permission 'storage.objects.list' denied on resource (or it may not exist).",
    )


def test_an_api_that_is_off_says_so_for_programs_too() -> None:
    error = document("api-off", api="storage")
    assert (error["code"], error["errors"][0]["reason"]) == (403, "accessNotConfigured")
    assert error["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "domain": "googleapis.com",
            "reason": "SERVICE_DISABLED",
            "metadata": {"service": "storage.googleapis.com"},
        }
    ]


@pytest.mark.parametrize(("kind", "code"), [("unavailable", 503), ("deadline-exceeded", 504)])
def test_an_outage_has_its_status_and_text(kind: str, code: int) -> None:
    error, same = document(kind), document("gcs-error", status=str(code))
    assert (error["code"], error["message"]) == (code, same["message"])
