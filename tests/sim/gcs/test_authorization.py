"""Which permissions a method needs: https://cloud.google.com/storage/docs/access-control/iam-json."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context

import pytest

from tpuctl.sim.gcs.authorization import (
    authorize,
    authorize_in_project,
    check_bindings,
    granted,
    require,
    set_unpaid_project,
)
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.enforcement import Binding, Policies

ADA = "user:ada@example.com"
ROLE = "projects/p/roles/custom"


def called(permissions: tuple[str, ...], call: Callable[[], object], member: str = ADA) -> GcsError | None:
    """Return the error of a call by somebody with these permissions in the project."""
    policies = Policies(roles={ROLE: permissions})
    policies.projects["p"].append(Binding(ROLE, (ADA,)))
    access = Access(policies, lambda bucket: ("p", {}) if bucket == "b" else None)

    def attempt() -> GcsError | None:
        set_caller(Caller(member, access))
        try:
            call()
        except GcsError as error:
            return error
        return None

    return copy_context().run(attempt)


@pytest.mark.parametrize(
    ("method", "permissions"),
    [
        ("storage.objects.get", ("storage.objects.get",)),
        ("storage.buckets.update", ("storage.buckets.update",)),
        ("storage.getIamPermissions", ("storage.buckets.getIamPolicy",)),
        ("storage.setIamPermissions", ("storage.buckets.setIamPolicy",)),
        ("storage.buckets.testIamPermissions", ()),
        ("storage.buckets.create", ()),
        ("storage.buckets.list", ()),
        ("storage.buckets.getStorageLayout", ("storage.objects.list",)),
        ("storage.objects.restore", ("storage.objects.restore", "storage.objects.create")),
        (
            "storage.multipartUploads.create",
            ("storage.multipartUploads.create", "storage.objects.create"),
        ),
    ],
)
def test_a_method_needs_its_permissions(method: str, permissions: tuple[str, ...]) -> None:
    assert called(permissions, lambda: authorize(method, "b", "o")) is None
    for lacking in permissions:
        others = tuple(permission for permission in permissions if permission != lacking)
        error = called(others, lambda: authorize(method, "b", "o"))
        assert error is not None
        assert f"Permission '{lacking}' denied" in error.message


@pytest.mark.parametrize(
    ("permission", "name", "noun"),
    [
        ("storage.objects.get", "o", "Storage object"),
        ("storage.objects.list", "", "Storage bucket"),
        ("storage.buckets.get", "o", "Storage bucket"),
    ],
)
def test_a_refusal_is_googles(permission: str, name: str, noun: str) -> None:
    def message(label: str) -> str:
        return (
            f"{label} does not have {permission} access to the Google Cloud {noun}. "
            f"Permission '{permission}' denied on resource (or it may not exist)."
        )

    error = called((), lambda: require(permission, "b", name))
    assert error is not None
    assert (error.status, error.message) == (403, message("ada@example.com"))
    anonymous = called((), lambda: require(permission, "b", name), member="")
    assert anonymous is not None
    assert (anonymous.status, anonymous.message) == (401, message("Anonymous caller"))


def test_a_bucket_that_does_not_exist_is_left_to_the_operation() -> None:
    assert called((), lambda: require("storage.objects.get", "none", "o")) is None


def test_a_permission_in_a_project() -> None:
    create = "storage.buckets.create"
    assert called((create,), lambda: authorize_in_project(create, "p")) is None
    for permissions, project in (((), "p"), ((create,), "q")):
        error = called(permissions, lambda place=project: authorize_in_project(create, place))
        assert error is not None
        assert "access to the Google Cloud project. Permission" in error.message


def test_granted_permissions_are_those_of_the_caller() -> None:
    asked = ["storage.objects.get", "storage.objects.list"]
    results: list[list[str]] = []
    called(("storage.objects.get",), lambda: results.append(granted(asked, "b")))
    called((), lambda: results.append(granted(asked, "none")))
    results.append(granted(asked, "b"))
    assert results == [["storage.objects.get"], asked, asked]


@pytest.mark.parametrize(
    ("binding", "text"),
    [
        ({"role": "roles/storage.admin"}, ""),
        ({"role": ROLE}, ""),
        ({"role": "roles/storage.wizard"}, "does not know the permissions of roles/storage.wizard. It knows"),
        (
            {"role": "roles/storage.admin", "condition": {"expression": "x y"}},
            "cannot evaluate the condition",
        ),
    ],
)
def test_bindings_that_could_not_be_enforced_are_refused(binding: dict[str, object], text: str) -> None:
    policy = {"bindings": [{"role": "roles/storage.objectViewer"}, binding]}
    error = called((), lambda: check_bindings(policy))
    assert (error.status if error else 200, text in (error.message if error else "")) == (
        400 if text else 200,
        True,
    )
    check_bindings({"bindings": [{"role": "roles/storage.wizard"}]})


def test_without_roles_everything_is_allowed() -> None:
    authorize("storage.objects.get", "b", "o")
    require("storage.objects.get", "b")
    authorize_in_project("storage.buckets.create", "p")


def test_who_may_assign_billing_accounts_uses_a_bucket_whose_requesters_pay() -> None:
    def read() -> None:
        set_unpaid_project(lambda bucket: "p" if bucket == "b" else "")
        authorize("storage.objects.get", "b", "x")

    editor = ("storage.objects.get",)
    error = called(editor, read)
    assert error
    assert (error.status, error.reason, error.xml_code) == (400, "required", "UserProjectMissing")
    assert called((*editor, "resourcemanager.projects.createBillingAssignment"), read) is None
