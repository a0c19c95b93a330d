"""Makes a fault for tests: a method fails with a gRPC status, given by number."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.faults import Request, Value
from tpuctl.faults.kinds import CODES


def grpc_fault(
    method: str,
    status: int,
    message: str,
    resource: str = "*",
    reason: str = "",
    metadata: Mapping[str, str] | None = None,
    count: int | None = None,
    late: bool = False,
) -> Request:
    """Return an `error`, or with `late` a `failed-operation`, as `FaultRegistry.add` takes it."""
    options: dict[str, Value] = {
        "method": method,
        "code": CODES[status - 1],
        "message": message,
        "resource": resource,
        "reason": reason,
        "metadata": dict(metadata or {}),
    }
    if count is not None:
        options["count"] = count
    return Request("failed-operation" if late else "error", options)
