"""The entries of access control lists: https://cloud.google.com/storage/docs/access-control/lists."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import checked_acl, checked_entry

ROLES = {"acl": ("OWNER", "WRITER", "READER"), "defaultObjectAcl": ("OWNER", "READER")}


@pytest.mark.parametrize("field", ROLES)
@pytest.mark.parametrize("role", ["OWNER", "WRITER", "READER", "owner", "", None])
def test_an_entry_has_a_role_of_its_list(field: str, role: Any) -> None:
    entry = {"entity": "allUsers", "role": role}
    if role in ROLES[field]:
        assert checked_entry({**entry, "etag": "x"}, field) == entry
        return
    with pytest.raises(GcsError) as raised:
        checked_entry(entry, field)
    assert (raised.value.status, raised.value.message) == (400, f"Invalid value for field: role: {role}")


@pytest.mark.parametrize("entity", ["", None, 5])
def test_an_entry_is_for_an_entity(entity: Any) -> None:
    with pytest.raises(GcsError) as raised:
        checked_entry({"entity": entity, "role": "OWNER"}, "acl")
    assert (raised.value.reason, raised.value.message) == ("required", "Required parameter: entity")


@pytest.mark.parametrize(
    "acl", [{}, "x", None, [5], [{"entity": "a"}], [{"role": "b"}], [{"entity": "a", "role": 5}],
            [{"entity": "a", "role": "b"}, {"entity": "", "role": "b"}]],
)  # fmt: skip
def test_a_list_of_another_form_is_refused(acl: Any) -> None:
    with pytest.raises(GcsError, match=r"^Invalid value for field: acl$"):
        checked_acl(acl)


def test_a_list_keeps_entities_and_roles() -> None:
    assert checked_acl([{"entity": "a", "role": "b", "kind": "c"}]) == [{"entity": "a", "role": "b"}]
    assert checked_acl([]) == []
