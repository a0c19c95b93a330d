"""What `sim start --iam` enforces: the policies that Terraform applied, and the user of the shell.

- IAM policies: who has which role where, and whether that allows a permission.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.sim.iam.conditions import Condition
from tpuctl.sim.iam.roles import EDITOR, OWNER, VIEWER, includes, permissions_of
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, objects_at, parse_object, text_at
from tpuctl.sim.token_server import service_account

PUBLIC = ("allUsers", "allAuthenticatedUsers")
BASIC = {"projectOwner": OWNER, "projectEditor": EDITOR, "projectViewer": VIEWER}
"""Kind of a convenience member of a bucket's policy -> the role in the project that makes one a member."""
OBJECT_ROLES = {
    "roles/storage.legacyBucketOwner": "roles/storage.legacyObjectOwner",
    "roles/storage.legacyBucketReader": "roles/storage.legacyObjectReader",
}
"""Role in a new bucket's policy -> the role that its members have on objects, by the policy or by ACLs."""


@dataclass(frozen=True)
class Resource:
    """What a permission is about: a project, and in it a bucket, an object, a service account or a node."""

    project: str
    name: str = ""
    """Full name, such as `projects/_/buckets/B/objects/NAME`."""
    type: str = ""
    """As conditions know it, such as `storage.googleapis.com/Object`."""
    bucket: str = ""
    account: str = ""
    """The address of a service account."""
    port: int = 0
    """Of a tunnel's destination."""

    @property
    def attributes(self) -> Mapping[str, str | int]:
        """The attributes that conditions can read."""
        facts: dict[str, str | int] = {
            "resource.name": self.name,
            "resource.type": self.type,
            "destination.port": self.port,
        }
        if self.type:
            facts["resource.service"] = self.type.partition("/")[0]
        return {name: value for name, value in facts.items() if value}


@dataclass(frozen=True)
class Binding:
    """A role of some members, perhaps under a condition."""

    role: str
    members: tuple[str, ...]
    condition: Condition | None = None


@dataclass
class Policies:
    """The policies of projects and of service accounts; buckets keep their own."""

    projects: dict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))
    accounts: dict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Custom role, by its full name -> its permissions."""
    default_account: str = EDITOR
    """The role of each project's default Compute Engine account; '' for none, as in organizations with the
    policy iam.automaticIamGrantsForDefaultServiceAccounts."""

    def of_project(self, project: str) -> list[Binding]:
        """Return a project's policy, with the role that Google gives its default Compute Engine account."""
        default = Binding(self.default_account, (f"serviceAccount:{service_account(project)}",))
        return [*([default] if default.role else ()), *self.projects.get(project, ())]

    def allows(self, member: str, permission: str, resource: Resource, bindings: Iterable[Binding]) -> bool:
        """Return whether the project's policy or these bindings of the resource give a permission."""
        return any(
            includes(self._permissions(binding.role), permission)
            and self._is_member(member, binding.members)
            and (binding.condition is None or binding.condition.holds(resource.attributes))
            for binding in (*self.of_project(resource.project), *bindings)
        )

    def _permissions(self, role: str) -> tuple[str, ...]:
        return self.roles[role] if role in self.roles else permissions_of(role)

    def _is_member(self, member: str, members: Sequence[str]) -> bool:
        if not member:
            return "allUsers" in members
        if member in members or any(public in members for public in PUBLIC):
            return True
        return any(self._belongs(member, *other.partition(":")[::2]) for other in members)

    def _belongs(self, member: str, kind: str, name: str) -> bool:
        if kind == "domain":
            return member.startswith("user:") and member.endswith(f"@{name}")
        role = BASIC.get(kind)
        return role is not None and any(
            binding.role == role and member in binding.members for binding in self.of_project(name)
        )


@lru_cache(maxsize=64)
def bucket_bindings(policy: str) -> tuple[Binding, ...]:
    """Return the bindings in the JSON text of a bucket's policy; raises UsageError for a bad condition."""
    document: Mapping[str, JsonValue] = json.loads(policy)
    bindings = [binding_of(binding) for binding in objects_at(document, "bindings")]
    on_objects = [
        Binding(OBJECT_ROLES[binding.role], members)
        for binding in bindings
        if binding.role in OBJECT_ROLES and (members := _project_members(binding))
    ]
    return (*bindings, *on_objects)


def binding_of(document: Mapping[str, JsonValue]) -> Binding:
    """Return the binding of its JSON form; raises UsageError for a condition that cannot be evaluated."""
    members = document.get("members")
    listed = members if isinstance(members, list) else []
    expression = text_at(object_at(document, "condition"), "expression")
    return Binding(
        text_at(document, "role"),
        tuple(member for member in listed if isinstance(member, str)),
        Condition.parse(expression) if expression else None,
    )


def _project_members(binding: Binding) -> tuple[str, ...]:
    return tuple(member for member in binding.members if member.partition(":")[0] in BASIC)


# Reads policies, custom roles and buckets from the output of `terraform show -json` after an apply.
LARGEST = 64 << 20
"""Bytes of a state."""
BUCKET_BLOCKS = {
    "versioning": ("versioning", {"enabled": "enabled"}),
    "soft_delete_policy": ("softDeletePolicy", {"retention_duration_seconds": "retentionDurationSeconds"}),
    "retention_policy": ("retentionPolicy", {"retention_period": "retentionPeriod"}),
}
"""Block of google_storage_bucket -> field of the API, with the names of its attributes."""
AS_TEXT = ("retentionDurationSeconds", "retentionPeriod")
"""64-bit integers, which are text in the API's JSON."""


@dataclass(frozen=True)
class TerraformState:
    """What was applied, as far as it decides who may do what."""

    policies: Policies = field(default_factory=Policies)
    buckets: dict[str, tuple[str, JsonObject]] = field(default_factory=dict)
    """Bucket -> its project and its fields in the API."""
    bucket_policies: dict[str, list[JsonObject]] = field(default_factory=dict)
    """Bucket -> the bindings that were added to its policy."""
    firewalls: list[tuple[str, JsonObject]] = field(default_factory=list)
    """Project and fields in the API of each firewall rule; `network` is its name alone."""


def read_state(path: Path) -> TerraformState:
    """Return what a file describes; raises UsageError."""
    hint = "Write the file where terraform was applied: terraform show -json > iam.json"
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST >> 20} MiB.", hint=hint)
        document = parse_object(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint=hint) from error
    except ValueError as error:
        raise UsageError(f"{path} is not the output of 'terraform show -json'.", hint=hint) from error
    root = object_at(object_at(document, "values"), "root_module")
    resources = list(_resources(root))
    if not resources:
        raise UsageError(f"{path} holds no resources that terraform has applied.", hint=hint)
    return _state_of(resources)


def _resources(module: Mapping[str, JsonValue]) -> Iterator[JsonObject]:
    yield from (resource for resource in objects_at(module, "resources") if resource.get("mode") == "managed")
    for child in objects_at(module, "child_modules"):
        yield from _resources(child)


def _state_of(resources: Sequence[JsonObject]) -> TerraformState:
    state = TerraformState()
    for resource in resources:
        values = object_at(resource, "values")
        kind = text_at(resource, "type").removesuffix("_member").removesuffix("_binding")
        add = KINDS.get(kind)
        if add is not None:
            add(state, values)
    _check_roles(state)
    return state


def _add_custom_role(state: TerraformState, values: JsonObject) -> None:
    permissions = values.get("permissions")
    name = f"projects/{text_at(values, 'project')}/roles/{text_at(values, 'role_id')}"
    listed = permissions if isinstance(permissions, list) else []
    state.policies.roles[name] = tuple(str(permission) for permission in listed)


def _add_bucket(state: TerraformState, values: JsonObject) -> None:
    fields: JsonObject = {
        "location": text_at(values, "location", "US"),
        "iamConfiguration": {
            "uniformBucketLevelAccess": {"enabled": bool(values.get("uniform_bucket_level_access"))},
            "publicAccessPrevention": text_at(values, "public_access_prevention", "inherited"),
        },
    }
    for block, (name, attributes) in BUCKET_BLOCKS.items():
        for content in objects_at(values, block)[:1]:
            fields[name] = {
                attribute: str(content[source]) if attribute in AS_TEXT else content[source]
                for source, attribute in attributes.items()
                if content.get(source) is not None
            }
    state.buckets[text_at(values, "name")] = (text_at(values, "project"), fields)


def _add_firewall(state: TerraformState, values: JsonObject) -> None:
    allowed: list[JsonValue] = [
        {"IPProtocol": text_at(rule, "protocol"), "ports": rule.get("ports") or []}
        for rule in objects_at(values, "allow")
    ]
    fields: JsonObject = {
        "name": text_at(values, "name"),
        "network": text_at(values, "network").rpartition("/")[2],
        "direction": text_at(values, "direction", "INGRESS"),
        "disabled": bool(values.get("disabled")),
        "sourceRanges": values.get("source_ranges") or [],
        "allowed": allowed,
    }
    state.firewalls.append((text_at(values, "project"), fields))


def _add_bucket_binding(state: TerraformState, values: JsonObject) -> None:
    bucket = text_at(values, "bucket").removeprefix("b/")
    conditions = objects_at(values, "condition")
    binding: JsonObject = {"role": text_at(values, "role"), "members": _members(values)}
    if conditions:
        names = ("title", "description", "expression")
        binding["condition"] = {name: conditions[0][name] for name in names if conditions[0].get(name)}
    state.bucket_policies.setdefault(bucket, []).append(binding)


def _add_project_binding(state: TerraformState, values: JsonObject) -> None:
    project = text_at(values, "project").removeprefix("projects/")
    state.policies.projects[project].append(_binding(values))


def _add_account_binding(state: TerraformState, values: JsonObject) -> None:
    account = text_at(values, "service_account_id").rpartition("/")[2]
    state.policies.accounts[account].append(_binding(values))


def _binding(values: JsonObject) -> Binding:
    conditions = objects_at(values, "condition")
    condition = Condition.parse(text_at(conditions[0], "expression")) if conditions else None
    return Binding(text_at(values, "role"), tuple(_members(values)), condition)


def _members(values: JsonObject) -> list[str]:
    listed = values.get("members")
    members = [text_at(values, "member"), *(listed if isinstance(listed, list) else [])]
    return [member for member in members if isinstance(member, str) and member]


def _check_roles(state: TerraformState) -> None:
    """Raise UsageError for a role or a condition that could not be enforced."""
    policies = state.policies
    in_policies = [
        binding.role
        for bindings in (*policies.projects.values(), *policies.accounts.values())
        for binding in bindings
    ]
    on_buckets = [binding for bindings in state.bucket_policies.values() for binding in bindings]
    for role in (*in_policies, *(text_at(binding, "role") for binding in on_buckets)):
        if role not in policies.roles:
            permissions_of(role)
    for binding in on_buckets:
        if "condition" in binding:
            Condition.parse(text_at(object_at(binding, "condition"), "expression"))


KINDS = {
    "google_compute_firewall": _add_firewall,
    "google_project_iam_custom_role": _add_custom_role,
    "google_project_iam": _add_project_binding,
    "google_iap_tunnel_iam": _add_project_binding,
    "google_service_account_iam": _add_account_binding,
    "google_storage_bucket": _add_bucket,
    "google_storage_bucket_iam": _add_bucket_binding,
}
"""Type of a resource, without `_member` and `_binding` -> what adds it to the state."""


DEFAULT_USER = "user:owner@example.com"
"""The user of a simulated shell if no option names one: an owner of every project."""
DEFAULT_ACCOUNTS = {"editor": EDITOR, "none": ""}
"""What `sim start --default-account` offers -> the role of a project's default service account."""
MEMBER = re.compile(r"(user|group|serviceAccount):[^@:\s]+@[^@:\s]+")


@dataclass(frozen=True)
class Enforcement:
    """The policies to enforce, and as whom programs outside the hosts call."""

    state: TerraformState = field(default_factory=TerraformState)
    user: str = DEFAULT_USER

    def policies(self, projects: Iterable[str]) -> Policies:
        """Return the policies; the default user owns these projects and those of the state."""
        policies = self.state.policies
        in_state = (project for project, _ in self.state.buckets.values())
        for project in {*projects, *in_state, *policies.projects}:
            policies.projects[project].append(Binding(OWNER, (DEFAULT_USER,)))
        return policies


def enforcement(file: Path | None, user: str | None, default_account: str = "editor") -> Enforcement:
    """Return what options ask for, the default account with one of `DEFAULT_ACCOUNTS`; raises UsageError."""
    if user is not None and not MEMBER.fullmatch(user):
        raise UsageError(
            f"'{user}' names no account.", hint="Write user:E-MAIL, group:E-MAIL or serviceAccount:E-MAIL."
        )
    state = read_state(file) if file else TerraformState()
    state.policies.default_account = DEFAULT_ACCOUNTS[default_account]
    return Enforcement(state, user or DEFAULT_USER)
