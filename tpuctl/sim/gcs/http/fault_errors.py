"""Builds the error that a fault raises in place of an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tpuctl.faults.kinds import CODES
from tpuctl.sim.faults import Fault
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.json_values import JsonObject

HTTP_OF_GRPC = {
    1: 499,
    2: 500,
    3: 400,
    4: 504,
    5: 404,
    6: 409,
    7: 403,
    8: 429,
    9: 412,
    10: 409,
    11: 416,
    12: 501,
    13: 500,
    14: 503,
    15: 500,
    16: 401,
}
"""gRPC code of a fault -> the HTTP status of Cloud Storage for it."""

MESSAGES = {
    408: "Request Timeout",
    429: "The object exceeded the rate limit for object mutation operations (create, update, and delete).",
    500: "We encountered an internal error. Please try again.",
    502: "Bad Gateway",
    503: "Service Unavailable. Please try again.",
    504: "Deadline Exceeded",
}
"""HTTP status -> the message of Cloud Storage with it."""


def fault_error(fault: Fault, method: str, resource: str) -> GcsError:
    """Return the error of a fault in place of a method on `BUCKET` or `BUCKET/OBJECT`."""
    return FAULT_ERRORS[fault.kind](fault, method, resource)


def _of_status(fault: Fault, *_: str) -> GcsError:
    status = int(fault["status"])
    return GcsError(status, MESSAGES.get(status, "The simulator was asked to fail."))


def _of_code(fault: Fault, *_: str) -> GcsError:
    status = HTTP_OF_GRPC.get(CODES.index(fault["code"]) + 1, 500)
    error = GcsError(status, fault["message"], reason=fault["reason"])
    if fault["metadata"]:
        error.details.append(_error_info(fault["reason"], fault["metadata"]))
    return error


def _no_permission(_: Fault, method: str, resource: str) -> GcsError:
    return GcsError(
        403,
        f"The caller does not have {method} access to the Google Cloud Storage "
        f"{'object' if '/' in resource else 'bucket'}. Permission '{method}' denied on resource "
        "(or it may not exist).",
    )


def _api_off(*_: object) -> GcsError:
    error = GcsError(
        403,
        "Cloud Storage API has not been used in this project before or it is disabled. Enable it by visiting "
        "https://console.developers.google.com/apis/api/storage.googleapis.com/overview then retry.",
        reason="accessNotConfigured",
    )
    error.details.append(_error_info("SERVICE_DISABLED", {"service": "storage.googleapis.com"}))
    return error


def _error_info(reason: str, metadata: Mapping[str, str]) -> JsonObject:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "googleapis.com"}
    return {**info, "reason": reason, "metadata": dict(metadata)}


FAULT_ERRORS: dict[str, Callable[[Fault, str, str], GcsError]] = {
    "gcs-error": _of_status,
    "api-off": _api_off,
    "permission": _no_permission,
    "unavailable": lambda *_: GcsError(503, MESSAGES[503]),
    "deadline-exceeded": lambda *_: GcsError(504, MESSAGES[504]),
    "error": _of_code,
}
"""Kind of fault -> its error."""
