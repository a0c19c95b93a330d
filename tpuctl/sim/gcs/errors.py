"""The errors Cloud Storage answers with: status, reason, and their JSON, XML and plain forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from xml.sax.saxutils import escape

from tpuctl.faults.kinds import CODES
from tpuctl.sim.faults import Fault

REASONS = {
    304: "notModified",
    400: "invalid",
    401: "required",
    403: "forbidden",
    404: "notFound",
    405: "methodNotAllowed",
    408: "uploadBrokenConnection",
    409: "conflict",
    410: "gone",
    411: "required",
    412: "conditionNotMet",
    413: "uploadTooLarge",
    416: "requestedRangeNotSatisfiable",
    429: "rateLimitExceeded",
    499: "clientClosedRequest",
    500: "backendError",
    501: "notImplemented",
    502: "backendError",
    503: "backendError",
    504: "backendError",
    507: "insufficientStorage",
}
"""HTTP status -> `reason` in the JSON error."""

XML_CODES = {
    400: "InvalidArgument",
    401: "AuthenticationRequired",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "OperationAborted",
    411: "MissingContentLength",
    412: "PreconditionFailed",
    413: "EntityTooLarge",
    416: "InvalidRange",
    429: "SlowDown",
    500: "InternalError",
    501: "NotImplemented",
    503: "ServiceUnavailable",
    507: "InsufficientStorage",
}
"""HTTP status -> `Code` in the XML error, where the error names none of its own."""

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
"""gRPC code of a fault rule -> the HTTP status that Cloud Storage answers in its place."""

ASKED_TEXTS = {
    408: "Request Timeout",
    429: "The object exceeded the rate limit for object mutation operations (create, update, and delete).",
    500: "We encountered an internal error. Please try again.",
    502: "Bad Gateway",
    503: "Service Unavailable. Please try again.",
    504: "Deadline Exceeded",
}
"""HTTP status -> what Cloud Storage says with it."""

LOCATIONS = {401: "Authorization", 412: "If-Match"}
"""HTTP status -> the header that the JSON error points at."""


class GcsError(Exception):
    """An answer other than success; the server renders it in the manner of the API that was called."""

    def __init__(self, status: int, message: str, *, reason: str = "", xml_code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason or REASONS.get(status, "backendError")
        self.xml_code = xml_code or XML_CODES.get(status, "InternalError")
        self.details: list[dict[str, Any]] = []

    def to_json(self) -> str:
        """Return the JSON API's error document."""
        first = {"message": self.message, "domain": "global", "reason": self.reason}
        if self.status in LOCATIONS:
            first |= {"locationType": "header", "location": LOCATIONS[self.status]}
        error: dict[str, Any] = {"code": self.status, "message": self.message, "errors": [first]}
        if self.details:
            error["details"] = self.details
        return json.dumps({"error": error})

    def to_xml(self) -> str:
        """Return the XML API's error document."""
        return (
            "<?xml version='1.0' encoding='UTF-8'?>"
            f"<Error><Code>{self.xml_code}</Code><Message>{escape(self.message)}</Message></Error>"
        )


def invalid(message: str) -> GcsError:
    """The request cannot be meant: 400."""
    return GcsError(400, message)


def required(parameter: str) -> GcsError:
    """A parameter is missing: 400."""
    return GcsError(400, f"Required parameter: {parameter}", reason="required")


def no_such_bucket() -> GcsError:
    """The bucket is not there: 404."""
    return GcsError(404, "The specified bucket does not exist.", xml_code="NoSuchBucket")


def no_such_object(bucket: str, name: str) -> GcsError:
    """The object, or that generation of it, is not there: 404."""
    return GcsError(404, f"No such object: {bucket}/{name}")


def condition_not_met() -> GcsError:
    """A precondition does not hold: 412."""
    return GcsError(412, "At least one of the pre-conditions you specified did not hold.")


def not_modified() -> GcsError:
    """A reader's "not match" condition does not hold: 304."""
    return GcsError(304, "Not Modified")


def disk_full() -> GcsError:
    """The disk under the simulator is full: 507, which clients do not retry."""
    return GcsError(507, "The disk of the simulator is full; nothing was changed.")


def asked_error(fault: Fault, method: str, resource: str) -> GcsError:
    """Return the error that a fault asks for in place of this operation."""
    return ASKED[fault.kind](fault, method, resource)


def _of_status(fault: Fault, *_: str) -> GcsError:
    status = int(fault["status"])
    return GcsError(status, ASKED_TEXTS.get(status, "The simulator was asked to fail."))


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


def _error_info(reason: str, metadata: Mapping[str, str]) -> dict[str, Any]:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "googleapis.com"}
    return {**info, "reason": reason, "metadata": dict(metadata)}


ASKED: dict[str, Callable[..., GcsError]] = {
    "gcs-error": _of_status,
    "api-off": _api_off,
    "permission": _no_permission,
    "unavailable": lambda *_: GcsError(503, ASKED_TEXTS[503]),
    "deadline-exceeded": lambda *_: GcsError(504, ASKED_TEXTS[504]),
    "error": _of_code,
}
"""Kind of fault -> the error it makes."""
