"""Laws about who may do what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.terraform.laws.planned import Planned, Resource, is_later
from tpuctl.bucket_layout import RunPaths
from tpuctl.sim.iam.conditions import Condition

PUBLIC = re.compile(r"all_?users|all_?authenticated_?users|//goog/public", re.I)

TPU_ROLES = {
    "google_artifact_registry_repository_iam_member": {"roles/artifactregistry.reader"},
    "google_project_iam_member": {"roles/logging.logWriter", "roles/monitoring.metricWriter"},
    "google_storage_bucket_iam_member": {
        "roles/storage.legacyBucketReader", "roles/storage.objectCreator", "roles/storage.objectUser",
        "roles/storage.objectViewer",
    },
}  # fmt: skip
"""Type of a grant -> the roles that the account of TPU VMs may have, beside custom ones."""
ON_DATASETS = {"roles/storage.legacyBucketReader", "roles/storage.objectViewer"}
TPU_PERMISSIONS = {"tpu.nodes.get", "tpu.nodes.delete", "tpu.operations.get", "storage.objects.delete"}
"""What custom roles of that account may hold."""
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
"""A text in a condition: parentheses in it are not the condition's own."""
CONDITIONED = "storage.objects.delete"
CREATOR = "roles/storage.objectCreator"

POWERFUL = re.compile(
    r"roles/(owner|editor|viewer|admin|writer|reader)$|[aA]dmin$|Owner$|\.owner$"
    r"|iam\.(serviceAccountTokenCreator|serviceAccountOpenIdTokenCreator|workloadIdentityUser)$"
)
ADMINISTERED = {"roles/tpu.admin"}
"""The only administration that people and the watcher get."""
NOT_IN_PROJECT = re.compile(
    r"roles/(iam\.serviceAccountUser|storage\.\w+|compute\.(instance|network|security)[\w.]+)$"
)
PERMISSIONS_TO_RULE = re.compile(
    r"setIamPolicy$|^iam\.(serviceAccount|role|workload)|^resourcemanager\.(?!projects\.get$)"
)
LATER_MEMBERS = re.compile(
    r"data\.google_storage_project_service_account\.\w+(\[0\])?\.(member|email_address)$"
)
"""The only members that a plan may not know yet: Cloud Storage's own account."""


def nothing_public(plan: Planned) -> Iterator[str]:
    """Nothing is granted to everybody, in whichever argument it stands."""
    for resource in plan.resources:
        for text in _texts(resource.values):
            if PUBLIC.search(text):
                yield f"{resource.address} has {text!r}: that is everybody"


def only_its_own_roles(plan: Planned) -> Iterator[str]:
    """The account of TPU VMs has the roles of its list, where the list has them."""
    custom, accounts = dict(_custom_roles(plan)), _tpu_members(plan)
    for grant in _grants(plan):
        if any(member in accounts for member in grant.members if isinstance(member, str)):
            yield from _beyond_the_list(plan, grant, custom)


def nobody_rules(plan: Planned) -> Iterator[str]:
    """Nobody has a primitive role, rules more than TPUs, or acts as every account; all grants are known."""
    for grant in _grants(plan):
        role = grant.role
        if not isinstance(role, str):
            yield f"{grant.address} grants a role that is not known before apply"
        elif (POWERFUL.search(role) and role not in ADMINISTERED) or (
            grant.kind == "google_project_iam_member" and NOT_IN_PROJECT.search(role)
        ):
            yield f"{grant.address} grants {role}, which is more than any part of the base needs"
        for member in grant.members:
            if not isinstance(member, str) and not _is_storage_itself(member):
                yield f"{grant.address} grants a role to a member that is not known before apply"
    for role in plan.of("google_project_iam_custom_role"):
        for permission in role.values.get("permissions", ()):
            if not isinstance(permission, str) or PERMISSIONS_TO_RULE.search(permission):
                yield f"{role.address} has the permission {permission}, by which one gets all others"


def _beyond_the_list(plan: Planned, grant: Resource, custom: dict[Any, Resource]) -> Iterator[str]:
    role = grant.role if isinstance(grant.role, str) else ""
    if role.startswith("roles/"):
        if role not in TPU_ROLES.get(grant.kind, ()):
            yield f"{grant.address} gives TPU VMs {role}, which is not in their list"
        elif _is_for_datasets(plan, grant) and role not in ON_DATASETS:
            yield f"{grant.address} gives TPU VMs {role} on the bucket of datasets, which they only read"
        elif role == CREATOR and (records := _records_created_by(grant)):
            yield f"{grant.address} lets TPU VMs create {', '.join(records)}, which watchers obey"
    elif role not in custom:
        yield f"{grant.address} gives TPU VMs the role {role!r}, which this plan does not define"
    else:
        permissions = set(custom[role].values.get("permissions", ()))
        for permission in sorted(permissions - TPU_PERMISSIONS):
            yield f"{grant.address} gives TPU VMs the permission {permission}, which is not in their list"
        if CONDITIONED in permissions and not _is_limited_to_runs(grant):
            yield f"{grant.address} lets TPU VMs delete objects without a condition for those below runs/"


def _is_limited_to_runs(grant: Resource) -> bool:
    conditions = grant.values.get("condition", [])
    within = f'resource.name.startsWith("projects/_/buckets/{grant.values.get("bucket")}/objects/runs/") && '
    expression = str(conditions[0].get("expression")) if len(conditions) == 1 else ""
    return expression.startswith(within) and "||" not in _outside_parentheses(expression)


def _records_created_by(grant: Resource) -> list[str]:
    """Return the records of a run that the conditions of a grant do not keep anybody from creating."""
    conditions = [Condition.parse(str(each.get("expression"))) for each in grant.values.get("condition", ())]
    folder = f"projects/_/buckets/{grant.values.get('bucket')}/objects/"
    return [
        name
        for name in (RunPaths("r1").record, RunPaths("r1").verdict)
        if all(condition.holds({"resource.name": folder + name}) for condition in conditions)
    ]


def _outside_parentheses(expression: str) -> str:
    result, depth = "", 0
    for character in TEXT.sub("", expression):
        depth += (character == "(") - (character == ")")
        result += character if depth == 0 else ""
    return result


def _is_for_datasets(plan: Planned, grant: Resource) -> bool:
    urls = [value for path, value in plan.output_lines.items() if path.endswith("buckets.data")]
    return f"gs://{grant.values.get('bucket')}" in urls


def _tpu_members(plan: Planned) -> set[str]:
    """Return the accounts that TPU VMs run as: of the outputs, of the TPUs, of the resource of that name."""
    emails = {value for path, value in plan.output_lines.items() if path.split(".")[-1] == "service_account"}
    for vm in plan.of("google_tpu_v2_vm"):
        emails |= {str(account.get("email")) for account in vm.values.get("service_account", ())}
    for account in plan.of("google_service_account"):
        if account.address.endswith("google_service_account.tpu"):
            emails.add(f"{account.values['account_id']}@{account.values['project']}.iam.gserviceaccount.com")
    return {f"serviceAccount:{email}" for email in emails}


def _custom_roles(plan: Planned) -> Iterator[tuple[str, Resource]]:
    for role in plan.of("google_project_iam_custom_role"):
        yield f"projects/{role.values.get('project')}/roles/{role.values.get('role_id')}", role


def _grants(plan: Planned) -> Iterator[Resource]:
    return (
        resource
        for resource in plan.resources
        if "_iam_" in resource.kind and "custom_role" not in resource.kind
    )


def _is_storage_itself(member: Any) -> bool:
    sources = next(iter(member.values()), []) if is_later(member) else []
    return bool(sources) and all(LATER_MEMBERS.match(source) for source in sources)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
