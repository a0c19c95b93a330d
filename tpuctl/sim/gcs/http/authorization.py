"""Refuses operations that the caller's roles do not allow, in the words of Cloud Storage.

Which permission a method needs: https://cloud.google.com/storage/docs/access-control/iam-json and iam-xml.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from tpuctl.errors import UsageError
from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.iam.access import Caller, current_caller
from tpuctl.sim.iam.policies import Resource, binding_of
from tpuctl.sim.iam.roles import permissions_of
from tpuctl.sim.json_values import JsonObject, objects_at

PERMISSIONS: dict[str, tuple[str, ...]] = {
    # method of the audit log: the permissions that it needs, where they are not just its own name
    "storage.getIamPermissions": ("storage.buckets.getIamPolicy",),
    "storage.setIamPermissions": ("storage.buckets.setIamPolicy",),
    "storage.buckets.testIamPermissions": (),
    "storage.buckets.create": (),
    "storage.buckets.list": (),
    "storage.buckets.getStorageLayout": ("storage.objects.list",),
    "storage.objects.restore": ("storage.objects.restore", "storage.objects.create"),
    "storage.multipartUploads.create": ("storage.multipartUploads.create", "storage.objects.create"),
}
OF_PROJECTS = ("storage.buckets.create", "storage.buckets.list")
"""Methods whose permission is one of the project: `authorize_in_project`."""
ASSIGN_BILLING = "resourcemanager.projects.createBillingAssignment"
"""Who has it in the project of a bucket with requester pays need not name a project that pays:
https://cloud.google.com/storage/docs/requester-pays#requirements."""
NO_PAYER = "Bucket is a requester pays bucket but no user project provided."

UnpaidProject = Callable[[str], str]
_unpaid_project: ContextVar[UnpaidProject | None] = ContextVar("unpaid_project", default=None)


def set_unpaid_project(find: UnpaidProject | None) -> None:
    """Set what finds the project that would pay for the current request instead of the caller.

    It is given a bucket, and returns an empty text for one whose requesters do not pay. None for a request
    that names a project that pays.
    """
    _unpaid_project.set(find)


def authorize(method: str, bucket: str, name: str) -> None:
    """Raise 403 unless the caller may call a method on a bucket, or on an object of it.

    Raises 400 where requesters pay, and the caller is one who names no project.
    """
    if method not in OF_PROJECTS:
        _require_payer(bucket)
    caller = current_caller()
    if caller is None:
        return
    for permission in PERMISSIONS.get(method, (method,)):
        require(permission, bucket, name)


def require(permission: str, bucket: str, name: str = "") -> None:
    """Raise 403 unless the caller has a permission on a bucket or an object; one without a bucket is 404."""
    caller = current_caller()
    if caller is None:
        return
    access = caller.access
    of_bucket = ".buckets." in permission or not name
    resource = access.bucket(bucket) if of_bucket else access.object(bucket, name)
    if resource is not None:
        _require(caller, permission, resource, "bucket" if of_bucket else "object")


def authorize_in_project(permission: str, project: str) -> None:
    """Raise 403 unless the caller has a permission in a project, such as to create buckets."""
    caller = current_caller()
    if caller is not None:
        _require(caller, permission, Resource(project, f"projects/{project}"), "project")


def granted(permissions: list[str], bucket: str) -> list[str]:
    """Return which of these permissions the caller has on a bucket."""
    caller = current_caller()
    resource = caller.access.bucket(bucket) if caller else None
    if caller is None or resource is None:
        return permissions
    return [permission for permission in permissions if caller.may(permission, resource)]


def check_bindings(policy: JsonObject) -> None:
    """Raise 400 for a policy that could not be enforced: an unknown role, a condition of an unknown form."""
    caller = current_caller()
    if caller is None:
        return
    try:
        for document in objects_at(policy, "bindings"):
            binding = binding_of(document)
            if binding.role not in caller.access.policies.roles:
                permissions_of(binding.role)
    except UsageError as error:
        raise invalid(f"{error.message} {error.hint}") from error


def _require_payer(bucket: str) -> None:
    find, caller = _unpaid_project.get(), current_caller()
    project = find(bucket) if find else ""
    if project and not (caller and caller.may(ASSIGN_BILLING, Resource(project, f"projects/{project}"))):
        raise GcsError(400, NO_PAYER, reason="required", xml_code="UserProjectMissing")


def _require(caller: Caller, permission: str, resource: Resource, kind: str) -> None:
    if caller.may(permission, resource):
        return
    message = (
        f"{caller.label} does not have {permission} access to the Google Cloud {_noun(kind)}. "
        f"Permission '{permission}' denied on resource (or it may not exist)."
    )
    raise GcsError(403 if caller.member else 401, message)


def _noun(kind: str) -> str:
    return "project" if kind == "project" else f"Storage {kind}"
