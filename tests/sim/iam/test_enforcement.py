"""Whose roles `sim start --iam` enforces: those of Terraform's state, and the owner of its projects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.sim.iam.enforcement import Binding, enforcement

OWNER = "user:owner@example.com"
ADA = "user:ada@example.com"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A state with a bucket of one project and a role in another."""
    values = {
        "google_storage_bucket": {"name": "b", "project": "of-bucket"},
        "google_project_iam_member": {"project": "of-role", "role": "roles/tpu.viewer", "member": ADA},
    }
    resources = [{"mode": "managed", "type": kind, "values": value} for kind, value in values.items()]
    path = tmp_path / "iam.json"
    path.write_text(json.dumps({"values": {"root_module": {"resources": resources}}}))
    return path


def test_an_owner_has_every_project(file: Path) -> None:
    policies = enforcement(file, None).policies(["given"])
    own = Binding("roles/owner", (OWNER,))
    assert policies.projects == {
        "given": [own],
        "of-bucket": [own],
        "of-role": [Binding("roles/tpu.viewer", (ADA,)), own],
    }
    assert enforcement(None, None).policies(["given"]).projects == {"given": [own]}


@pytest.mark.parametrize(
    "user", [ADA, "group:team@example.com", "serviceAccount:job@p.iam.gserviceaccount.com"]
)
def test_a_shell_is_of_the_user_that_is_named(user: str) -> None:
    assert (enforcement(None, user).user, enforcement(None, None).user) == (user, OWNER)


@pytest.mark.parametrize(
    "user",
    ["", "ada@example.com", "user:ada", "user:", "domain:example.com", "user:a@b@c", "user:a b@c",
     "allUsers", "xuser:a@b", "user:a@b:c"],
)  # fmt: skip
def test_a_name_that_is_no_account_is_refused(user: str) -> None:
    with pytest.raises(UsageError) as raised:
        enforcement(None, user)
    assert raised.value.message == f"'{user}' names no account."
    assert raised.value.hint == "Write user:E-MAIL, group:E-MAIL or serviceAccount:E-MAIL."
