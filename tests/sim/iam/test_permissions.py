"""Which permission each method of the Cloud TPU API needs, and which ones Google's roles hold."""

from __future__ import annotations

import re
from contextvars import copy_context

import pytest
from google.protobuf import empty_pb2

from tpuctl.errors import UsageError
from tpuctl.sim.iam.access import Access, Caller, set_caller
from tpuctl.sim.iam.policies import Binding, Policies
from tpuctl.sim.iam.roles import ROLES, includes, permissions_of
from tpuctl.sim.tpu.permissions import authorize
from tpuctl.sim.tpu.rpcs import MIXINS, rpcs
from tpuctl.sim.world import ApiError

METHODS = sorted({rpc.name for rpc in [*rpcs("v2"), *rpcs("v2alpha1"), *MIXINS]})
BOB = "user:bob@example.com"
ROLE = "projects/p/roles/custom"
ZONE = "projects/p/locations/europe-west4-a"
OTHERS = {
    # method whose name is no verb and collection -> the rest of its permission
    "GetGuestAttributes": "nodes.getGuestAttributes",
    "SimulateMaintenanceEvent": "nodes.simulateMaintenanceEvent",
    "PerformMaintenance": "nodes.performMaintenance",
    "PerformMaintenanceQueuedResource": "queuedResources.performMaintenance",
    "GenerateServiceIdentity": "locations.generateServiceIdentity",
    "WaitOperation": "operations.get",
}


def expected(method: str) -> str:
    """Return the permission by Google's pattern: `CreateNode` needs `tpu.nodes.create`."""
    if method in OTHERS:
        return f"tpu.{OTHERS[method]}"
    verb, noun = re.fullmatch(r"([A-Z][a-z]+)(\w+?)s?", method).groups()  # type: ignore[union-attr]
    collection = noun[0].lower() + noun[1:] + "s"
    if noun in ("AcceleratorType", "RuntimeVersion"):
        collection = collection.lower()
    return f"tpu.{collection}.{verb.lower()}"


def refusal(method: str, *permissions: str) -> str:
    """Return what the API says to a caller who has these permissions; empty if it does not refuse."""
    policies = Policies(roles={ROLE: permissions})
    policies.projects["p"].append(Binding(ROLE, (BOB,)))

    def call() -> str:
        set_caller(Caller(BOB, Access(policies, lambda _: None)))
        try:
            authorize(method, f"{ZONE}/nodes/one", empty_pb2.Empty())
        except ApiError as error:
            return str(error)
        return ""

    return copy_context().run(call)


@pytest.mark.parametrize(
    "method", [name for name in METHODS if name not in ("CreateNode", "CreateQueuedResource")]
)
def test_a_method_needs_its_own_permission_and_no_other(method: str) -> None:
    permission = expected(method)
    assert refusal(method, permission) == ""
    others = {expected(other) for other in METHODS} - {permission}
    assert f"'{permission}' denied" in refusal(method, *others)


@pytest.mark.parametrize("method", ["CreateNode", "CreateQueuedResource"])
def test_a_creation_needs_its_permission(method: str) -> None:
    """And that to act as the service account of the hosts, which other tests cover."""
    others = {expected(other) for other in METHODS} - {expected(method)}
    assert f"'{expected(method)}' denied" in refusal(method, *others)


READS = {expected(name) for name in METHODS if re.match("Get(?!Guest)|List|Wait", name)}


@pytest.mark.parametrize("role", ["roles/tpu.viewer", "roles/viewer"])
def test_a_viewer_of_tpus_only_reads(role: str) -> None:
    allowed = {expected(name) for name in METHODS if includes(permissions_of(role), expected(name))}
    assert allowed == READS


@pytest.mark.parametrize("role", ["roles/tpu.admin", "roles/editor", "roles/owner"])
def test_an_administrator_of_tpus_may_do_everything(role: str) -> None:
    assert all(includes(permissions_of(role), expected(name)) for name in METHODS)


STORAGE = {
    "buckets": "create delete enableObjectRetention get getIamPolicy list setIamPolicy update",
    "folders": "create delete get list rename",
    "managedFolders": "create delete get getIamPolicy list setIamPolicy",
    "multipartUploads": "abort create list listParts",
    "objects": "create delete get getIamPolicy list overrideUnlockedRetention restore setIamPolicy "
    "setRetention update",
}
"""Every permission of Cloud Storage that a role of ours holds or does not."""
UPLOADS = {"multipartUploads": STORAGE["multipartUploads"]}
GRANTS: dict[str, dict[str, str]] = {
    # https://cloud.google.com/storage/docs/access-control/iam-roles
    "roles/storage.admin": STORAGE,
    "roles/storage.bucketViewer": {"buckets": "get list"},
    "roles/storage.legacyBucketOwner": UPLOADS | {
        "buckets": "enableObjectRetention get getIamPolicy setIamPolicy update",
        "managedFolders": STORAGE["managedFolders"],
        "objects": "create delete list restore setRetention",
    },
    "roles/storage.legacyBucketReader": {
        "buckets": "get", "managedFolders": "get list", "multipartUploads": "list", "objects": "list",
    },
    "roles/storage.legacyBucketWriter": UPLOADS | {
        "buckets": "get", "managedFolders": "create delete get list",
        "objects": "create delete list restore setRetention",
    },
    "roles/storage.legacyObjectOwner": {
        "objects": "get getIamPolicy overrideUnlockedRetention setIamPolicy setRetention update",
    },
    "roles/storage.legacyObjectReader": {"objects": "get"},
    "roles/storage.objectAdmin": UPLOADS | {
        "folders": STORAGE["folders"], "managedFolders": "create delete get list",
        "objects": STORAGE["objects"],
    },
    "roles/storage.objectCreator": {
        "folders": "create", "managedFolders": "create", "multipartUploads": "abort create listParts",
        "objects": "create",
    },
    "roles/storage.objectUser": UPLOADS | {
        "folders": STORAGE["folders"], "managedFolders": "create delete get list",
        "objects": "create delete get list restore update",
    },
    "roles/storage.objectViewer": {
        "folders": "get list", "managedFolders": "get list", "objects": "get list",
    },
    "roles/owner": {"buckets": "create delete list"},
    "roles/editor": {"buckets": "create delete list"},
    "roles/viewer": {"buckets": "list"},
    "roles/tpu.admin": {},
}  # fmt: skip


@pytest.mark.parametrize("role", GRANTS)
def test_a_role_holds_what_google_documents(role: str) -> None:
    every = {f"storage.{kind}.{verb}" for kind, verbs in STORAGE.items() for verb in verbs.split()}
    documented = {f"storage.{kind}.{verb}" for kind, verbs in GRANTS[role].items() for verb in verbs.split()}
    assert {name for name in every if includes(permissions_of(role), name)} == documented


def test_every_role_of_cloud_storage_is_in_this_table() -> None:
    assert {role for role in ROLES if role.startswith("roles/storage.")} <= set(GRANTS)


@pytest.mark.parametrize(
    ("role", "permission", "other"),
    [
        ("roles/iap.tunnelResourceAccessor", "iap.tunnelInstances.accessViaIAP", "iap.tunnels.update"),
        ("roles/iam.serviceAccountUser", "iam.serviceAccounts.actAs", "iam.serviceAccounts.getAccessToken"),
        (
            "roles/iam.serviceAccountTokenCreator", "iam.serviceAccounts.getAccessToken",
            "iam.serviceAccounts.actAs",
        ),
        ("roles/iam.workloadIdentityUser", "iam.serviceAccounts.getAccessToken", "iam.serviceAccounts.actAs"),
        ("roles/compute.viewer", "compute.projects.get", "compute.projects.setCommonInstanceMetadata"),
        ("roles/compute.osLogin", "compute.projects.get", "compute.instances.setMetadata"),
        ("roles/compute.admin", "compute.projects.setCommonInstanceMetadata", "iam.serviceAccounts.actAs"),
        ("roles/compute.networkUser", "resourcemanager.projects.get", "compute.projects.get"),
        ("roles/cloudquotas.viewer", "cloudquotas.quotas.get", "cloudquotas.quotas.update"),
        ("roles/cloudquotas.admin", "cloudquotas.quotas.update", "compute.projects.get"),
        ("roles/viewer", "cloudquotas.quotas.get", "iam.serviceAccounts.actAs"),
        ("roles/editor", "iam.serviceAccounts.actAs", "iam.serviceAccounts.getAccessToken"),
        ("roles/owner", "iap.tunnelInstances.accessViaIAP", "storage.objects.get"),
        ("roles/tpu.viewer", "resourcemanager.projects.get", "compute.projects.get"),
    ],
)  # fmt: skip
def test_a_role_of_another_service_holds_its_own(role: str, permission: str, other: str) -> None:
    assert includes(permissions_of(role), permission)
    assert not includes(permissions_of(role), other)


def test_a_role_of_services_that_are_not_simulated_holds_nothing() -> None:
    assert permissions_of("roles/bigquery.admin") == ()
    with pytest.raises(UsageError, match="does not know the permissions of roles/storage"):
        permissions_of("roles/storage.wizard")
