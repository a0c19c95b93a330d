"""Checks the entries of access control lists that callers send."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.sim.gcs.errors import invalid, invalid_field, required
from tpuctl.sim.json_values import JsonValue

AclEntry = dict[str, str]
"""`entity` and `role`."""

ROLES = {"acl": ("OWNER", "WRITER", "READER"), "defaultObjectAcl": ("OWNER", "READER")}
"""Field of a bucket -> the roles of its entries; the lists of objects have those of `defaultObjectAcl`."""


def checked_acl(entries: JsonValue) -> list[AclEntry]:
    """Return a list with entity and role of each entry; raises 400 for an invalid one."""
    if not isinstance(entries, list):
        raise invalid_field("acl")
    return [_entity_and_role(entry) for entry in entries]


def checked_entry(body: Mapping[str, JsonValue], field: str) -> AclEntry:
    """Return the entry in the body of an ACL call; raises 400 for an invalid one."""
    entity, role = body.get("entity"), body.get("role")
    if not isinstance(entity, str) or not entity:
        raise required("entity")
    if role not in ROLES[field]:
        raise invalid(f"Invalid value for field: role: {role}")
    return {"entity": entity, "role": str(role)}


def _entity_and_role(entry: JsonValue) -> AclEntry:
    if isinstance(entry, dict):
        entity, role = entry.get("entity"), entry.get("role")
        if isinstance(entity, str) and entity and isinstance(role, str) and role:
            return {"entity": entity, "role": role}
    raise invalid_field("acl")
