"""A short form for code: fail a method with a gRPC status by number."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.faults import Request
from tpuctl.faults.kinds import CODES


def Rule(
    method: str,
    status: int,
    message: str,
    resource: str = "*",
    reason: str = "",
    metadata: Mapping[str, str] | None = None,
    count: int | None = None,
    late: bool = False,
) -> Request:
    """Return an `error`, or with `late` a `failed-operation`, as `Faults.add` takes it."""
    options = {
        "method": method,
        "code": CODES[status - 1],
        "message": message,
        "resource": resource,
        "reason": reason,
        "metadata": dict(metadata or {}),
    }
    limits = {"count": count} if count is not None else {}
    return Request("failed-operation" if late else "error", {**options, **limits})
