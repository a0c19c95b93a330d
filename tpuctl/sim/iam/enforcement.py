"""What `sim start --iam` enforces: the policies that Terraform applied, and the user of the shell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.sim.iam.conditions import Condition
from tpuctl.sim.iam.policies import Binding, Policies
from tpuctl.sim.iam.roles import EDITOR, OWNER, permissions_of
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, objects_at, parse_object, text_at

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
