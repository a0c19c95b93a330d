"""Injects the faults of one request: an error in place of the operation or response, a reset, a bad body.

- Handles exceptions that no operation handles: a full disk becomes 507, a bug is logged and becomes 500.
- Applies faults to the bytes of one request or response: cut, corrupted, stalled or slow.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from aiohttp import web

from tpuctl.faults.kinds import CODES
from tpuctl.sim.faults import BandwidthLimits, Fault, FaultRegistry, reset, while_in_force
from tpuctl.sim.gcs.authorization import authorize
from tpuctl.sim.gcs.errors import GcsError, disk_full
from tpuctl.sim.json_values import JsonObject, JsonValue

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

FULL_DATABASE = ("full", "disk I/O error")
"""SQLite's messages when its file cannot grow: the second one for a quota or a limit on file sizes."""

_log = logging.getLogger(__name__)


def as_gcs_error(error: Exception) -> GcsError:
    """Return the error for the client."""
    if isinstance(error, GcsError):
        return error
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return disk_full()
    if isinstance(error, sqlite3.OperationalError) and any(text in str(error) for text in FULL_DATABASE):
        return disk_full()
    _log.error("an operation failed with an exception", exc_info=error)
    return GcsError(500, "We encountered an internal error. Please try again.")


BODY_FAULTS = ("gcs-cut", "gcs-corrupt", "gcs-stall", "gcs-slow")

OFFSETS = {"gcs-cut": "bytes", "gcs-corrupt": "at", "gcs-stall": "at"}
"""Kind -> the option with the offset in the body at which it takes effect."""


class BodyFaults:
    """The faults that take effect on the bodies of one request and its response."""

    def __init__(self, registry: FaultRegistry, limits: BandwidthLimits, request: web.Request) -> None:
        self._registry = registry
        self._limits = limits
        self._request = request
        self._faults: list[Fault] = []
        self._has_stalled = False

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, fault: Fault) -> None:
        """Add a fault, once."""
        if fault.id not in (added.id for added in self._faults):
            self._faults.append(fault)

    async def apply(self, chunks: AsyncIterator[bytes], *, up: bool) -> AsyncIterator[bytes]:
        """Yield a body with the faults in effect; raises ConnectionResetError at a cut."""
        offset = 0
        async for chunk in chunks:
            for piece in self._pieces(chunk, offset):
                await self._delay(offset, len(piece), up=up)
                yield self._corrupted(piece, offset)
                offset += len(piece)
                if any(fault.kind == "gcs-cut" and offset >= fault["bytes"] for fault in self._faults):
                    self._cut(up=up)

    async def delay_response(self) -> None:
        """Wait for the latency of a slow connection and a stall at byte 0, before the response begins."""
        for fault in self._faults:
            if fault.kind == "gcs-slow" and fault["latency"]:
                await asyncio.sleep(fault["latency"])
        await self._delay(0, 0, up=False)

    def _pieces(self, chunk: bytes, offset: int) -> Iterator[bytes]:
        """Split a chunk at the offsets of faults, and into pieces small enough for a steady slow flow."""
        offsets = [fault[OFFSETS[fault.kind]] for fault in self._faults if fault.kind in OFFSETS]
        largest = min((self._limits.piece_size(fault) for fault in self._faults), default=len(chunk))
        while chunk:
            ahead = [at - offset for at in offsets if at > offset]
            size = min([len(chunk), largest, *ahead])
            yield chunk[:size]
            chunk, offset = chunk[size:], offset + size

    async def _delay(self, offset: int, size: int, *, up: bool) -> None:
        for fault in self._faults:
            if fault.kind == "gcs-stall" and not self._has_stalled and offset >= fault["at"]:
                self._has_stalled = True
                await while_in_force(self._registry, fault.id, fault["seconds"] or None)
            elif fault.kind == "gcs-slow" and size:
                await self._limits.send(fault, size, up=up)

    def _corrupted(self, piece: bytes, offset: int) -> bytes:
        for fault in self._faults:
            if fault.kind == "gcs-corrupt" and offset <= fault["at"] < offset + len(piece):
                at = fault["at"] - offset
                piece = piece[:at] + bytes([piece[at] ^ 0xFF]) + piece[at + 1 :]
        return piece

    def _cut(self, *, up: bool) -> None:
        """End the connection: an upload is reset, the bytes of a download so far still arrive."""
        transport = self._request.transport
        if up:
            reset(transport)
        elif transport is not None:
            transport.close()
        raise ConnectionResetError("the connection was cut")


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
