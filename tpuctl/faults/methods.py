"""Names the methods that faults can match: the service, then the name as in audit logs."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tpuctl.errors import UsageError, nearest
from tpuctl.faults.kinds import FAILING, KINDS, OPERATIONS, STORAGE

TPU = (
    "ListNodes", "GetNode", "CreateNode", "DeleteNode", "StopNode", "StartNode", "UpdateNode",
    "ListQueuedResources", "GetQueuedResource", "CreateQueuedResource", "DeleteQueuedResource",
    "ResetQueuedResource", "GenerateServiceIdentity", "ListAcceleratorTypes", "GetAcceleratorType",
    "ListRuntimeVersions", "GetRuntimeVersion", "GetGuestAttributes", "ListReservations",
    "SimulateMaintenanceEvent", "PerformMaintenance", "PerformMaintenanceQueuedResource", "GetOperation",
    "ListOperations", "WaitOperation", "CancelOperation", "DeleteOperation", "GetLocation", "ListLocations",
)  # fmt: skip

GCS = (
    "objects.get", "objects.list", "objects.create", "objects.delete", "objects.update", "objects.restore",
    "buckets.get", "buckets.list", "buckets.create", "buckets.delete", "buckets.update",
    "buckets.getStorageLayout", "buckets.testIamPermissions", "getIamPermissions", "setIamPermissions",
    "managedFolders.list", "multipartUploads.create", "multipartUploads.abort", "multipartUploads.list",
    "multipartUploads.listParts",
)  # fmt: skip

METHODS = (*(f"tpu.{name}" for name in TPU), *(f"storage.{name}" for name in GCS))


def full(pattern: str) -> str:
    """Return a pattern with its service: `CreateNode` is `tpu.CreateNode`."""
    return pattern if pattern == "*" or "." in pattern else f"tpu.{pattern}"


def check_methods(kind: str, pattern: str, name: str) -> None:
    """Raise UsageError for a pattern that matches no method of this kind."""
    methods = _possible(kind)
    if any(fnmatchcase(method, full(pattern)) for method in methods):
        return
    close = nearest(full(pattern), methods)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(methods)}."
    raise UsageError(f"{name}: the fault '{kind}' has no method '{pattern}'.", hint=hint)


def _possible(kind: str) -> tuple[str, ...]:
    if kind.endswith("-operation"):
        return tuple(f"tpu.{name}" for name in (FAILING if kind == "failed-operation" else OPERATIONS))
    if KINDS[kind].section == STORAGE:
        return tuple(name for name in METHODS if name.startswith("storage."))
    return METHODS
