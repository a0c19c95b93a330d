"""Injects the faults of one request: an error in place of the operation or response, a reset, a bad body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from aiohttp import web

from tpuctl.faults.kinds import CODES
from tpuctl.sim.faults import Fault, FaultRegistry
from tpuctl.sim.faults.bandwidth import BandwidthLimits
from tpuctl.sim.faults.resets import reset
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.http.authorization import authorize
from tpuctl.sim.gcs.http.body_faults import BODY_FAULTS, BodyFaults
from tpuctl.sim.json_values import JsonObject, JsonValue

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
OPERATION_FAULTS = ("gcs-error", "api-off", "permission", "unavailable", "deadline-exceeded", "error")
RESPONSE_FAULTS = ("gcs-error", "unavailable", "deadline-exceeded", "error")
FAULTS = (*OPERATION_FAULTS, *BODY_FAULTS, "gcs-reset")

_SERVICE = "storage."
_current: ContextVar[RequestFaults | None] = ContextVar("request_faults", default=None)


class RequestFaults:
    """The faults that fire on the operations of one request."""

    def __init__(self, registry: FaultRegistry, limits: BandwidthLimits, request: web.Request) -> None:
        self.body = BodyFaults(registry, limits, request)
        self._registry = registry
        self._request = request
        self._response_error: GcsError | None = None
        self._resets_response = False

    def fire(self, method: str, resource: str) -> None:
        """Fire the faults that match one operation; raises GcsError for a fault in its place."""
        bucket, _, name = resource.partition("/")
        facts = {"method": method, "resource": resource, "bucket": bucket, "object": name, "api": "storage"}
        fault = self._registry.fire(*OPERATION_FAULTS, **facts)
        if fault:
            raise fault_error(fault, method, resource)
        if self._registry.fire("gcs-reset", **facts):
            raise self._reset()
        for kind in BODY_FAULTS:
            fault = self._registry.fire(kind, **facts)
            if fault:
                self.body.add(fault)
        fault = self._registry.fire(*RESPONSE_FAULTS, **facts, when="after")
        if fault:
            self._response_error = fault_error(fault, method, resource)
        self._resets_response |= self._registry.fire("gcs-reset", **facts, when="after") is not None

    def response_error(self) -> GcsError | None:
        """Return the error in place of the response, if a fault has one; a reset ends the connection."""
        return self._reset() if self._resets_response else self._response_error

    def _reset(self) -> GcsError:
        reset(self._request.transport)
        return GcsError(499, "The connection was reset.")


def current_faults() -> RequestFaults | None:
    """Return the faults of the current request; None while no fault of Cloud Storage is in force."""
    return _current.get()


@contextmanager
def faults_of(
    registry: FaultRegistry, limits: BandwidthLimits, request: web.Request
) -> Iterator[RequestFaults | None]:
    """Make the faults of a request the current ones; None while no fault of Cloud Storage is in force."""
    in_force = registry.in_force(*FAULTS)
    token = _current.set(RequestFaults(registry, limits, request) if in_force else None)
    try:
        yield _current.get()
    finally:
        _current.reset(token)


def begin_operation(
    registry: FaultRegistry, method: str, resource: str, body: Mapping[str, JsonValue] | None = None
) -> None:
    """Record an operation as an event; raises GcsError if the caller may not, or if a fault fires instead.

    `method` is a name of the audit log (`storage.objects.get`), `resource` is `BUCKET` or `BUCKET/OBJECT`,
    `body` what was sent of a bucket or an object, without its content.
    """
    if registry.events is not None:
        sent = {name: value for name, value in body.items() if value is not None} if body else None
        registry.events.note(
            "request", method.removeprefix(_SERVICE), resource, service="storage", body=sent or None
        )
    bucket, _, name = resource.partition("/")
    authorize(method, bucket, name)
    faults = _current.get()
    if faults is not None:
        faults.fire(method, resource)


def with_upload_faults(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the bytes of an upload with the faults of the current request in effect."""
    faults = _current.get()
    return faults.body.apply(chunks, up=True) if faults is not None and faults.body else chunks


# Builds the error that a fault raises in place of an operation.


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
