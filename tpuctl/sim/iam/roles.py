"""The permissions of Google's predefined roles, as far as the simulated services check them.

Source: the reference of roles and permissions, https://cloud.google.com/iam/docs/roles-permissions, and for
buckets https://cloud.google.com/storage/docs/access-control/iam-roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tpuctl.errors import UsageError

OWNER, EDITOR, VIEWER = "roles/owner", "roles/editor", "roles/viewer"

_PROJECT = ("resourcemanager.projects.get", "resourcemanager.projects.list")
_MULTIPART = "storage.multipartUploads.*"
_READ_FOLDERS = (
    "storage.folders.get",
    "storage.folders.list",
    "storage.managedFolders.get",
    "storage.managedFolders.list",
)
_TPU_READ = ("tpu.*.get", "tpu.*.list")
_COMPUTE_READ = ("compute.*.get", "compute.*.list")

ROLES: dict[str, tuple[str, ...]] = {
    # role: its permissions; `*` stands for any text
    OWNER: (
        "cloudquotas.*", "compute.*", "iam.*", "iap.*", "resourcemanager.*", "storage.buckets.create",
        "storage.buckets.delete", "storage.buckets.list", "tpu.*",
    ),
    EDITOR: (
        *_PROJECT, "cloudquotas.*", "compute.*", "iam.serviceAccounts.actAs", "iam.serviceAccounts.get",
        "iam.serviceAccounts.list", "storage.buckets.create", "storage.buckets.delete",
        "storage.buckets.list", "tpu.*",
    ),
    VIEWER: (
        *_PROJECT, *_COMPUTE_READ, *_TPU_READ, "cloudquotas.quotas.get", "iam.serviceAccounts.get",
        "iam.serviceAccounts.list", "storage.buckets.list",
    ),
    "roles/cloudquotas.admin": (*_PROJECT, "cloudquotas.*"),
    "roles/cloudquotas.viewer": (*_PROJECT, "cloudquotas.quotas.get"),
    "roles/compute.admin": (*_PROJECT, "compute.*"),
    "roles/compute.networkUser": (*_PROJECT,),
    "roles/compute.osLogin": (*_PROJECT, "compute.projects.get"),
    "roles/compute.viewer": (*_PROJECT, *_COMPUTE_READ),
    "roles/iam.serviceAccountTokenCreator": ("iam.serviceAccounts.getAccessToken",),
    "roles/iam.serviceAccountUser": (
        *_PROJECT, "iam.serviceAccounts.actAs", "iam.serviceAccounts.get", "iam.serviceAccounts.list",
    ),
    "roles/iam.workloadIdentityUser": ("iam.serviceAccounts.getAccessToken",),
    "roles/iap.tunnelResourceAccessor": (
        "iap.tunnelDestGroups.accessViaIAP", "iap.tunnelInstances.accessViaIAP",
    ),
    "roles/storage.admin": (*_PROJECT, "storage.*"),
    "roles/storage.bucketViewer": ("storage.buckets.get", "storage.buckets.list"),
    "roles/storage.legacyBucketOwner": (
        _MULTIPART, "storage.buckets.enableObjectRetention", "storage.buckets.get",
        "storage.buckets.getIamPolicy", "storage.buckets.setIamPolicy", "storage.buckets.update",
        "storage.managedFolders.*", "storage.objects.create", "storage.objects.delete",
        "storage.objects.list", "storage.objects.restore", "storage.objects.setRetention",
    ),
    "roles/storage.legacyBucketReader": (
        "storage.buckets.get", "storage.managedFolders.get", "storage.managedFolders.list",
        "storage.multipartUploads.list", "storage.objects.list",
    ),
    "roles/storage.legacyBucketWriter": (
        _MULTIPART, "storage.buckets.get", "storage.managedFolders.create", "storage.managedFolders.delete",
        "storage.managedFolders.get", "storage.managedFolders.list", "storage.objects.create",
        "storage.objects.delete", "storage.objects.list", "storage.objects.restore",
        "storage.objects.setRetention",
    ),
    "roles/storage.legacyObjectOwner": (
        "storage.objects.get", "storage.objects.getIamPolicy", "storage.objects.overrideUnlockedRetention",
        "storage.objects.setIamPolicy", "storage.objects.setRetention", "storage.objects.update",
    ),
    "roles/storage.legacyObjectReader": ("storage.objects.get",),
    "roles/storage.objectAdmin": (
        *_PROJECT, _MULTIPART, "storage.folders.*", "storage.managedFolders.create",
        "storage.managedFolders.delete", "storage.managedFolders.get", "storage.managedFolders.list",
        "storage.objects.*",
    ),
    "roles/storage.objectCreator": (
        *_PROJECT, "storage.folders.create", "storage.managedFolders.create",
        "storage.multipartUploads.abort", "storage.multipartUploads.create",
        "storage.multipartUploads.listParts", "storage.objects.create",
    ),
    "roles/storage.objectUser": (
        *_PROJECT, _MULTIPART, "storage.folders.*", "storage.managedFolders.create",
        "storage.managedFolders.delete", "storage.managedFolders.get", "storage.managedFolders.list",
        "storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list",
        "storage.objects.restore", "storage.objects.update",
    ),
    "roles/storage.objectViewer": (
        *_PROJECT, *_READ_FOLDERS, "storage.objects.get", "storage.objects.list",
    ),
    "roles/tpu.admin": (*_PROJECT, "tpu.*"),
    "roles/tpu.viewer": (*_PROJECT, *_TPU_READ),
}  # fmt: skip

CHECKED = (
    *("roles/cloudquotas.", "roles/compute.", "roles/iam.serviceAccount", "roles/iap.tunnel"),
    *("roles/storage.", "roles/tpu."),
)
"""How roles begin that may hold permissions which the simulated services check."""


def permissions_of(role: str) -> tuple[str, ...]:
    """Return the permissions of a predefined role; none for a role of services that are not simulated.

    Raises UsageError for an unknown role of a simulated service: enforcing it wrongly would mislead.
    """
    if role not in ROLES and role.startswith(CHECKED):
        raise UsageError(
            f"The simulator does not know the permissions of {role}.",
            hint=f"It knows {', '.join(sorted(known for known in ROLES if known.startswith(CHECKED)))}.",
        )
    return ROLES.get(role, ())


def includes(permissions: Sequence[str], permission: str) -> bool:
    """Return whether permissions, with `*`, include one."""
    return any(fnmatchcase(permission, pattern) for pattern in permissions)
