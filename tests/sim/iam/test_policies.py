"""Who is a member of a binding: by name, by domain, by a role in a project, or as anybody."""

from __future__ import annotations

import pytest

from tpuctl.sim.iam.enforcement import Binding, Policies, Resource
from tpuctl.sim.iam.roles import EDITOR, OWNER, VIEWER

ADA = "user:ada@example.com"
JOB = "serviceAccount:job@p.iam.gserviceaccount.com"
ROLES = {ADA: OWNER, "user:ed@example.com": EDITOR, "user:vi@example.com": VIEWER}
"""Member -> role in the project `p`."""


@pytest.mark.parametrize(
    ("binding", "members"),
    [
        (ADA, {ADA}),
        ("user:ada@example.co", set()),
        ("domain:example.com", {*ROLES, "user:eve@example.com"}),
        ("domain:ample.com", set()),
        ("domain:p.iam.gserviceaccount.com", set()),
        ("group:example.com", set()),
        ("allUsers", {*ROLES, "user:eve@example.com", JOB, ""}),
        ("allAuthenticatedUsers", {*ROLES, "user:eve@example.com", JOB}),
        ("projectOwner:p", {ADA}),
        ("projectEditor:p", {"user:ed@example.com"}),
        ("projectViewer:p", {"user:vi@example.com"}),
        ("projectOwner:q", set()),
        ("projectOwner", set()),
    ],
)
def test_a_binding_is_for_its_members_alone(binding: str, members: set[str]) -> None:
    policies = Policies()
    policies.projects["p"] += [Binding(role, (member,)) for member, role in ROLES.items()]
    bindings = [Binding("roles/iam.serviceAccountUser", (binding,))]
    everybody = [*ROLES, "user:eve@example.com", JOB, ""]
    allowed = {
        member
        for member in everybody
        if policies.allows(member, "iam.serviceAccounts.actAs", Resource("q"), bindings)
    }
    assert allowed == members
