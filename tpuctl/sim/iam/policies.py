"""IAM policies: who has which role where, and whether that allows a permission."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tpuctl.sim.accounts import service_account
from tpuctl.sim.iam.conditions import Condition
from tpuctl.sim.iam.roles import EDITOR, OWNER, VIEWER, includes, permissions_of
from tpuctl.sim.json_values import JsonValue, object_at, objects_at, text_at

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
            "resource.name": self.name, "resource.type": self.type, "destination.port": self.port,
        }  # fmt: skip
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
