"""Who calls, and who has a permission on a bucket, an object, an account or a node, by all policies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.sim.access.grpc_call import Call
from tpuctl.errors import UsageError
from tpuctl.sim.iam.callers import Access, Address, Caller, Callers, current_caller
from tpuctl.sim.iam.conditions import Condition
from tpuctl.sim.iam.enforcement import Binding, Policies, Resource, binding_of, bucket_bindings
from tpuctl.sim.token_server import service_account

ADA, EVE = "user:ada@example.com", "user:eve@example.com"
VIEWER = "roles/storage.objectViewer"
LEGACY = {
    "bindings": [
        {"role": "roles/storage.legacyBucketOwner", "members": ["projectEditor:p", "projectOwner:p"]},
        {"role": "roles/storage.legacyBucketReader", "members": ["projectViewer:p"]},
    ]
}
"""The policy of a new bucket."""


def access(policy: dict[str, Any], *bindings: Binding) -> Access:
    """Return the policies of a project `p` with these bindings and a bucket `b`."""
    policies = Policies()
    policies.projects["p"] += bindings
    return Access(policies, lambda bucket: ("p", policy) if bucket == "b" else None)


def test_what_a_resource_is_for_conditions() -> None:
    found = access({})
    bucket, stored = found.bucket("b"), found.object("b", "dir/o")
    assert bucket == Resource("p", "projects/_/buckets/b", "storage.googleapis.com/Bucket", "b")
    assert stored == Resource("p", "projects/_/buckets/b/objects/dir/o", "storage.googleapis.com/Object", "b")
    assert stored is not None
    assert stored.attributes == {
        "resource.name": "projects/_/buckets/b/objects/dir/o",
        "resource.type": "storage.googleapis.com/Object",
        "resource.service": "storage.googleapis.com",
    }
    assert (found.bucket("none"), found.object("none", "o")) == (None, None)
    tunnel = Resource("p", "n", "iap.googleapis.com/TunnelInstance", port=22)
    assert tunnel.attributes == {
        "resource.name": "n",
        "resource.type": "iap.googleapis.com/TunnelInstance",
        "resource.service": "iap.googleapis.com",
        "destination.port": 22,
    }
    assert Resource("p").attributes == {}


def allowed(found: Access, member: str, permission: str) -> tuple[bool, bool]:
    """Return whether a member has a permission on the bucket, and on an object of it."""
    bucket, stored = found.bucket("b"), found.object("b", "o")
    assert bucket is not None
    assert stored is not None
    return found.allows(member, permission, bucket), found.allows(member, permission, stored)


def test_a_role_in_the_policy_of_a_bucket_or_of_its_project() -> None:
    own = {"bindings": [{"role": VIEWER, "members": [ADA]}]}
    for found in (access(own), access({}, Binding(VIEWER, (ADA,)))):
        assert allowed(found, ADA, "storage.objects.get") == (True, True)
        assert allowed(found, ADA, "storage.objects.create") == (False, False)
        assert allowed(found, EVE, "storage.objects.get") == (False, False)


@pytest.mark.parametrize(
    ("role", "reads_objects", "deletes_objects", "reads_bucket"),
    [
        ("roles/owner", True, True, True),
        ("roles/editor", True, True, True),
        ("roles/viewer", True, False, True),
        ("roles/tpu.admin", False, False, False),
    ],
)
def test_basic_roles_have_a_new_bucket_by_its_legacy_bindings(
    role: str, reads_objects: bool, deletes_objects: bool, reads_bucket: bool
) -> None:
    """https://cloud.google.com/storage/docs/access-control/iam-roles#basic-roles-modifiable"""
    found = access(LEGACY, Binding(role, (ADA,)))
    assert allowed(found, ADA, "storage.objects.get")[1] is reads_objects
    assert allowed(found, ADA, "storage.objects.delete")[1] is deletes_objects
    assert allowed(found, ADA, "storage.buckets.get")[0] is reads_bucket


def test_a_named_member_of_a_legacy_role_reads_no_object() -> None:
    policy = {"bindings": [{"role": "roles/storage.legacyBucketReader", "members": [ADA]}]}
    assert allowed(access(policy), ADA, "storage.objects.get") == (False, False)
    assert allowed(access(policy), ADA, "storage.objects.list") == (True, True)


def test_a_condition_decides() -> None:
    prefix = 'resource.name.startsWith("projects/_/buckets/b/objects/o")'
    policy = {"bindings": [{"role": VIEWER, "members": [ADA], "condition": {"expression": prefix}}]}
    assert allowed(access(policy), ADA, "storage.objects.get") == (False, True)
    assert allowed(
        access({}, Binding(VIEWER, (ADA,), Condition.parse(prefix))), ADA, "storage.objects.get"
    ) == (
        False,
        True,
    )


def test_an_account_has_a_policy_of_its_own() -> None:
    found = access({})
    found.policies.accounts["job@p"].append(Binding("roles/iam.serviceAccountUser", (ADA,)))
    permission = "iam.serviceAccounts.actAs"
    assert found.allows(ADA, permission, Resource("p", "n", account="job@p"))
    assert not found.allows(ADA, permission, Resource("p", "n", account="other@p"))
    assert not found.allows(ADA, permission, Resource("p", "n"))


def test_the_default_account_edits_its_own_project() -> None:
    member = f"serviceAccount:{service_account('p')}"
    found = access({})
    assert found.allows(member, "tpu.nodes.create", Resource("p", "n"))
    assert not found.allows(member, "tpu.nodes.create", Resource("q", "n"))


def test_a_custom_role_has_its_permissions() -> None:
    found = access({}, Binding("projects/p/roles/mine", (ADA,)))
    assert not found.allows(ADA, "tpu.nodes.get", Resource("p", "n"))
    found.policies.roles["projects/p/roles/mine"] = ("tpu.nodes.get",)
    assert found.allows(ADA, "tpu.nodes.get", Resource("p", "n"))
    assert not found.allows(ADA, "tpu.nodes.list", Resource("p", "n"))


@pytest.mark.parametrize(
    ("member", "label"),
    [(ADA, "ada@example.com"), ("serviceAccount:job@p", "job@p"), ("", "Anonymous caller")],
)
def test_a_caller_is_named_as_google_does(member: str, label: str) -> None:
    caller = Caller(member, access({}, Binding("roles/tpu.viewer", (ADA,))))
    assert caller.label == label
    assert caller.may("tpu.nodes.get", Resource("p", "n")) is (member == ADA)


def test_bindings_are_read_from_their_json() -> None:
    document = {"role": "r", "members": [ADA, 5, None], "condition": {"title": "t", "expression": "true"}}
    binding = binding_of(document)
    assert (binding.role, binding.members, binding.condition) == ("r", (ADA,), Condition.parse("true"))
    assert binding_of({"members": ADA, "condition": {"title": "t"}}) == Binding("", ())
    assert bucket_bindings(json.dumps({"bindings": [{"role": "r"}, 5]})) == (Binding("r", ()),)
    with pytest.raises(UsageError, match="cannot evaluate"):
        bucket_bindings(json.dumps({"bindings": [{"role": "r", "condition": {"expression": "x"}}]}))


HOST, SHELL = "host-mark", ""


class Line:
    """Connections by their client's port, and who asks by them."""

    def __init__(self, by_process: bool = True) -> None:
        self.asked: list[Address] = []
        self.marks = {1: HOST, 2: SHELL}
        self._callers = Callers(
            Access(Policies(), lambda _: None),
            ADA,
            self._host_of if by_process else None,
            {HOST: "job@p"}.__getitem__,
            lambda token: {"good": "job@p"}.get(token, ""),
        )

    async def _host_of(self, address: Address) -> str | None:
        self.asked.append(address)
        return self.marks.get(address[1])

    def member(self, sent: Call | web.Request) -> str:
        """Return who has sent a call or a request."""

        async def enter() -> str:
            if isinstance(sent, Call):
                await self._callers.enter_call(sent)
            else:
                await self._callers.enter_request(sent)
            caller = current_caller()
            assert caller is not None
            return caller.member

        return asyncio.run(enter())


class Connection(asyncio.Transport):
    """The connection of a request, by the port of its client; None: it has been closed."""

    def __init__(self, port: int | None) -> None:
        super().__init__({"peername": ("127.0.0.1", port) if port else None})


def request(connection: Connection, **headers: str) -> web.Request:
    return make_mocked_request("GET", "/", headers=headers, transport=connection)


@pytest.mark.parametrize(
    ("peer", "member"),
    [
        ("ipv4:127.0.0.1:1", "serviceAccount:job@p"),
        ("ipv6:%5B::1%5D:1", "serviceAccount:job@p"),
        ("ipv4:127.0.0.1:2", ADA),
        ("ipv4:127.0.0.1:3", ""),
        ("ipv4:127.0.0.1:", ""),
        ("unix:/1:1", ""),
        ("", ""),
    ],
)
def test_the_process_at_the_other_end_of_a_grpc_call_tells(peer: str, member: str) -> None:
    line = Line()
    assert line.member(Call(peer, authorization="Bearer good")) == member
    if member:
        assert line.asked == [("::1" if "::" in peer else "127.0.0.1", int(peer[-1]))]


@pytest.mark.parametrize(
    ("authorization", "member"),
    [
        ("Bearer good", "serviceAccount:job@p"),
        ("bearer   good ", "serviceAccount:job@p"),
        ("Bearer bad", ADA),
        ("Basic good", ADA),
        ("", ADA),
    ],
)
def test_tokens_tell_where_the_system_does_not(authorization: str, member: str) -> None:
    line = Line(by_process=False)
    assert line.member(Call("ipv4:127.0.0.1:1", authorization=authorization)) == member
    assert line.member(request(Connection(1), Authorization=authorization)) == member
    assert line.asked == []
    assert line.member(Call("ipv4:127.0.0.1:1")) == ADA


def test_a_connection_is_looked_up_until_its_process_is_known() -> None:
    line, connection = Line(), Connection(7)
    assert [line.member(request(connection)), line.member(request(connection))] == ["", ""]
    line.marks[7] = HOST
    assert line.member(request(connection)) == "serviceAccount:job@p"
    line.marks[7] = SHELL
    assert line.member(request(connection)) == "serviceAccount:job@p", "a connection changes no hands"
    assert line.asked == [("127.0.0.1", 7)] * 3
    assert line.member(request(Connection(7))) == ADA


def test_a_connection_that_has_gone_is_nobodys() -> None:
    assert Line().member(request(Connection(None))) == ""
