"""Who is a member of a binding: by name, by domain, by a role in a project, or as anybody.

Conditions, with the examples of Google's documentation.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.sim.iam.rehearsal import RECORDED
from tpuctl.errors import UsageError
from tpuctl.sim.iam.conditions import Condition
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


NAME = "projects/_/buckets/acme-orders-aaa/objects/data_lake/orders/order_date=2019-11-03/aef87g87ae0876"
OBJECT = {
    "resource.name": NAME,
    "resource.type": "storage.googleapis.com/Object",
    "resource.service": "storage.googleapis.com",
}


@pytest.mark.parametrize(
    ("template", "extract"),
    [
        ("/order_date={date}/", "2019-11-03"),
        ("buckets/{name}/", "acme-orders-aaa"),
        ("/orders/{empty}order_date", ""),
        ("{start}/objects/data_lake", "projects/_/buckets/acme-orders-aaa"),
        ("orders/{end}", "order_date=2019-11-03/aef87g87ae0876"),
        ("{all}", NAME),
        ("/orders/{none}/order_date=", ""),
        ("/orders/order_date={missing}/nothing", ""),
    ],
)
def test_extract_is_that_of_the_documentation(template: str, extract: str) -> None:
    """https://cloud.google.com/iam/docs/conditions-attribute-reference#extract"""
    assert Condition.parse(f'resource.name.extract("{template}") == "{extract}"').holds(OBJECT)


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ('resource.type == "storage.googleapis.com/Object"', True),
        ("resource.type != 'storage.googleapis.com/Object'", False),
        ('resource.name.startsWith("projects/_/buckets/acme") && resource.name.endsWith("0876")', True),
        ('resource.name.startsWith("x") || !(resource.name.endsWith("x") || false)', True),
        ('resource.name.startsWith("x") || resource.name.endsWith("0876") && false', False),
        ('resource.service == "storage.googleapis.com"', True),
        ('request.time < timestamp("2000-01-01T00:00:00Z")', False),
        ('request.time > timestamp("2000-01-01T00:00:00Z")', True),
        ('resource.name < timestamp("2000-01-01T00:00:00Z")', False),
        ("resource.name", False),
        ("true", True),
        ('resource.name == "a\\"b"', False),
        ("destination.port == 22", False),
        ("22 < 443", True),
    ],
)
def test_expressions(expression: str, holds: bool) -> None:
    assert Condition.parse(expression).holds(OBJECT) is holds


@pytest.mark.parametrize(
    "expression",
    ["", "resource.name ==", 'resource.name.matches("x")', "resource.owner == 'x'", "1.5 == 1.5", "(true",
     "true)",
     'resource.name.startsWith(resource.type)', "true && ", 'timestamp("yesterday") < request.time', "a" * 9],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="cannot evaluate"):
        Condition.parse(expression)


def test_an_attribute_that_a_request_lacks_grants_nothing() -> None:
    lacking = {"resource.name": NAME}
    assert not Condition.parse('resource.type != "storage.googleapis.com/Bucket"').holds(lacking)
    assert not Condition.parse('!(resource.type == "storage.googleapis.com/Bucket")').holds(lacking)
    assert Condition.parse('resource.type == "x" || resource.name.endsWith("0876")').holds(lacking)
    assert not Condition.parse('resource.type == "x" && resource.name.endsWith("0876")').holds(lacking)


@pytest.mark.parametrize("bucket", ["demo-project-1-models", "models_temp", "outputs"])
def test_the_name_of_a_bucket_opens_no_checkpoint(bucket: str) -> None:
    """The rights of `protection = "checkpoints"`; the bucket is a part of resource.name."""
    text = (RECORDED / "complete-rights.json").read_text()
    expressions = re.findall(r'"expression": ("resource.*")', text)
    name = f"projects/_/buckets/{bucket}/objects/runs/r1/checkpoints/"
    conditions = [
        Condition.parse(json.loads(text).replace("demo-project-1-models", bucket)) for text in expressions
    ]
    assert len(conditions) == 9

    def opened(file: str) -> int:
        return sum(condition.holds({"resource.name": name + file}) for condition in conditions)

    files = ("ckpt-1.index", "ckpt-1_temp/part-00000-of-00001.index", "checkpoint", "checkpoint.tmp1")
    assert list(map(opened, files)) == [0, 1, 1, 1]


@pytest.mark.parametrize(("port", "holds"), [(22, True), (23, False)])
def test_the_port_of_a_tunnel_decides(port: int, holds: bool) -> None:
    assert Condition.parse("destination.port == 22").holds({"destination.port": port}) is holds
