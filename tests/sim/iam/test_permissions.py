"""Which permission each method of the Cloud TPU API needs, and which ones Google's roles hold."""

from __future__ import annotations

import re
from contextvars import copy_context

import pytest
from google.cloud import tpu_v2
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from tpuctl.errors import UsageError
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.conditions import Condition
from tpuctl.sim.iam.enforcement import Binding, Policies
from tpuctl.sim.iam.roles import ROLES, includes, permissions_of
from tpuctl.sim.token_server import service_account
from tpuctl.sim.tpu.grpc_api import MIXINS, rpcs
from tpuctl.sim.tpu.service import authorize
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


JOB, DEFAULT = "job@p.iam.gserviceaccount.com", service_account("p")
ACT_AS = "iam.serviceAccounts.actAs"


def creation(method: str, *emails: str) -> Message:
    """Return a request for nodes whose hosts run as these accounts."""
    nodes = [tpu_v2.Node(service_account={"email": email}) for email in emails]
    if method == "CreateNode":
        return tpu_v2.CreateNodeRequest.pb(tpu_v2.CreateNodeRequest(node=nodes[0]))
    specs = [{"node": node} for node in nodes]
    queued = tpu_v2.QueuedResource(tpu={"node_spec": specs})
    return tpu_v2.CreateQueuedResourceRequest.pb(tpu_v2.CreateQueuedResourceRequest(queued_resource=queued))


@pytest.mark.parametrize("method", ["CreateNode", "CreateQueuedResource"])
@pytest.mark.parametrize(
    ("email", "account"), [(JOB, JOB), ("", DEFAULT), ("default", DEFAULT), (DEFAULT, DEFAULT)]
)
def test_a_creation_needs_to_act_as_the_account_of_the_hosts(method: str, email: str, account: str) -> None:
    """https://cloud.google.com/iam/docs/service-accounts-actas"""
    request = creation(method, email)

    def refused(*accounts: str, condition: str = "true") -> str:
        policies = Policies(roles={ROLE: (expected(method),)})
        policies.projects["p"].append(Binding(ROLE, (BOB,)))
        for name in accounts:
            policies.accounts[name].append(
                Binding("roles/iam.serviceAccountUser", (BOB,), Condition.parse(condition))
            )

        def call() -> str:
            set_caller(Caller(BOB, Access(policies, lambda _: None)))
            try:
                authorize(method, f"{ZONE}/nodes/one", request)
            except ApiError as error:
                (info,) = error.status.details
                place = f"projects/p/serviceAccounts/{account}"
                assert info["metadata"] == {"permission": ACT_AS, "resource": place}
                return str(error)
            return ""

        return copy_context().run(call)

    assert refused(account) == ""
    assert refused(account, condition='resource.type == "iam.googleapis.com/ServiceAccount"') == ""
    message = refused("other@p.iam.gserviceaccount.com")
    assert f"service account '{account}'. User: 'bob@example.com'." in message


def test_every_account_of_a_queued_resource_counts() -> None:
    request = creation("CreateQueuedResource", JOB, "other@p")
    policies = Policies(roles={ROLE: (expected("CreateQueuedResource"),)})
    policies.projects["p"].append(Binding(ROLE, (BOB,)))
    policies.accounts[JOB].append(Binding("roles/iam.serviceAccountUser", (BOB,)))

    def call() -> None:
        set_caller(Caller(BOB, Access(policies, lambda _: None)))
        authorize("CreateQueuedResource", f"{ZONE}/queuedResources/q", request)

    with pytest.raises(ApiError, match="'other@p'"):
        copy_context().run(call)


@pytest.mark.parametrize(
    ("collection", "method", "kind"),
    [("nodes", "GetNode", "Node"), ("queuedResources", "GetQueuedResource", "QueuedResource")],
)
def test_a_role_may_hold_for_some_resources(collection: str, method: str, kind: str) -> None:
    def refused(condition: str, member: str = BOB) -> str:
        policies = Policies(roles={ROLE: (expected(method),)})
        policies.projects["p"].append(Binding(ROLE, (BOB,), Condition.parse(condition)))

        def call() -> str:
            set_caller(Caller(member, Access(policies, lambda _: None)))
            try:
                authorize(method, f"{ZONE}/{collection}/one", empty_pb2.Empty())
            except ApiError as error:
                return str(error)
            return ""

        return copy_context().run(call)

    assert refused(f'resource.type == "tpu.googleapis.com/{kind}"') == ""
    assert refused(f'resource.name == "{ZONE}/{collection}/one"') == ""
    assert "denied" in refused('resource.type == "tpu.googleapis.com/Other"')
    assert "missing required authentication credential" in refused("true", member="")


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


PROJECT = {"resourcemanager.projects": "get list"}
COMPUTE = {
    "compute.firewalls": "create get list", "compute.instances": "get list setMetadata",
    "compute.projects": "get setCommonInstanceMetadata",
}  # fmt: skip
COMPUTE_READ = {"compute.firewalls": "get list", "compute.instances": "get list", "compute.projects": "get"}
ACCOUNTS = {"iam.serviceAccounts": "actAs get getAccessToken list"}
QUOTAS = {"cloudquotas.quotas": "get update"}
TUNNELS = {"iap.tunnelDestGroups": "accessViaIAP", "iap.tunnelInstances": "accessViaIAP"}
NODES = {"tpu.nodes": "create get list"}
NODES_READ = {"tpu.nodes": "get list"}
EVERYTHING = PROJECT | COMPUTE | ACCOUNTS | QUOTAS | TUNNELS | NODES
OTHER_GRANTS: dict[str, dict[str, str]] = {
    # https://cloud.google.com/iam/docs/roles-permissions, of the permissions in EVERYTHING
    "roles/owner": EVERYTHING,
    "roles/editor": PROJECT | COMPUTE | QUOTAS | NODES | {"iam.serviceAccounts": "actAs get list"},
    "roles/viewer": PROJECT | COMPUTE_READ | NODES_READ | {
        "iam.serviceAccounts": "get list", "cloudquotas.quotas": "get",
    },
    "roles/cloudquotas.admin": PROJECT | QUOTAS,
    "roles/cloudquotas.viewer": PROJECT | {"cloudquotas.quotas": "get"},
    "roles/compute.admin": PROJECT | COMPUTE,
    "roles/compute.networkUser": PROJECT,
    "roles/compute.osLogin": PROJECT | {"compute.projects": "get"},
    "roles/compute.viewer": PROJECT | COMPUTE_READ,
    "roles/iam.serviceAccountTokenCreator": {"iam.serviceAccounts": "getAccessToken"},
    "roles/iam.serviceAccountUser": PROJECT | {"iam.serviceAccounts": "actAs get list"},
    "roles/iam.workloadIdentityUser": {"iam.serviceAccounts": "getAccessToken"},
    "roles/iap.tunnelResourceAccessor": TUNNELS,
    "roles/storage.admin": PROJECT,
    "roles/storage.bucketViewer": {},
    "roles/storage.legacyBucketOwner": {},
    "roles/storage.objectAdmin": PROJECT,
    "roles/storage.objectCreator": PROJECT,
    "roles/storage.objectUser": PROJECT,
    "roles/storage.objectViewer": PROJECT,
    "roles/tpu.admin": PROJECT | NODES,
    "roles/tpu.viewer": PROJECT | NODES_READ,
}  # fmt: skip


def names_of(grants: dict[str, str]) -> set[str]:
    return {f"{kind}.{verb}" for kind, verbs in grants.items() for verb in verbs.split()}


@pytest.mark.parametrize("role", OTHER_GRANTS)
def test_a_role_holds_of_other_services_what_google_documents(role: str) -> None:
    held = {name for name in names_of(EVERYTHING) if includes(permissions_of(role), name)}
    assert held == names_of(OTHER_GRANTS[role])


@pytest.mark.parametrize(
    "role",
    ["roles/cloudquotas.x", "roles/compute.x", "roles/iam.serviceAccountX", "roles/iap.tunnelX",
     "roles/storage.x", "roles/tpu.x"],
)  # fmt: skip
def test_an_unknown_role_of_a_simulated_service_is_refused(role: str) -> None:
    with pytest.raises(UsageError) as raised:
        permissions_of(role)
    assert raised.value.message == f"The simulator does not know the permissions of {role}."
    known = raised.value.hint.removeprefix("It knows ").removesuffix(".").split(", ")
    others = {"roles/owner", "roles/editor", "roles/viewer", "roles/iam.workloadIdentityUser"}
    assert known == sorted(set(ROLES) - others)


def test_a_role_of_services_that_are_not_simulated_holds_nothing() -> None:
    assert permissions_of("roles/bigquery.admin") == ()
    with pytest.raises(UsageError, match="does not know the permissions of roles/storage"):
        permissions_of("roles/storage.wizard")
