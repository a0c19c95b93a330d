"""Defines the errors of Cloud Storage: status, reason, and their JSON and XML documents.

- The timestamps of the API: RFC 3339, the dates of HTTP headers, and generations in microseconds.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from email.utils import formatdate
from xml.sax.saxutils import escape

from tpuctl.sim.json_values import JsonObject


def timestamp(moment: datetime | None = None) -> str:
    """Return a time, by default now, in RFC 3339: UTC, milliseconds."""
    moment = moment or datetime.now(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_timestamp(text: str) -> datetime:
    """Return an RFC 3339 timestamp as a time; raises ValueError, also for one without a zone."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return moment.astimezone(UTC)


def http_date(stamp: str) -> str:
    """Return a timestamp in the format of HTTP headers."""
    return formatdate(parse_timestamp(stamp).timestamp(), usegmt=True)


def microseconds() -> int:
    """Return the current time in microseconds, the unit of generations."""
    return time.time_ns() // 1000


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
"""HTTP status -> `Code` in the XML error, unless the error has its own."""

LOCATIONS = {401: "Authorization", 412: "If-Match"}
"""HTTP status -> the header that the JSON error names."""


class GcsError(Exception):
    """A response other than success; the server renders it in the format of the API that was called."""

    def __init__(self, status: int, message: str, *, reason: str = "", xml_code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason or REASONS.get(status, "backendError")
        self.xml_code = xml_code or XML_CODES.get(status, "InternalError")
        self.details: list[JsonObject] = []

    def to_json(self) -> str:
        """Return the JSON API's error document."""
        first = {"message": self.message, "domain": "global", "reason": self.reason}
        if self.status in LOCATIONS:
            first |= {"locationType": "header", "location": LOCATIONS[self.status]}
        error: JsonObject = {"code": self.status, "message": self.message, "errors": [first]}
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
    """The request is invalid: 400."""
    return GcsError(400, message)


def invalid_field(field: str) -> GcsError:
    """A field of a resource has an invalid value: 400."""
    return invalid(f"Invalid value for field: {field}")


def required(parameter: str) -> GcsError:
    """A parameter is missing: 400."""
    return GcsError(400, f"Required parameter: {parameter}", reason="required")


def no_such_path() -> GcsError:
    """The API has no such path: 404."""
    return GcsError(404, "Not Found")


def method_not_allowed(method: str) -> GcsError:
    """The path has no such HTTP method: 405."""
    return GcsError(405, f"Method {method} is not allowed here.")


def no_such_bucket() -> GcsError:
    """The bucket does not exist: 404."""
    return GcsError(404, "The specified bucket does not exist.", xml_code="NoSuchBucket")


def no_such_object(bucket: str, name: str) -> GcsError:
    """The object, or that generation of the object, does not exist: 404."""
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
