"""States of terraform that are read, and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sim.iam.rehearsal import MINIMAL, RECORDED
from tests.terraform.plans import record
from tests.terraform.plans.stanzas import nested
from tpuctl.errors import UsageError
from tpuctl.sim.iam.callers import Access
from tpuctl.sim.iam.enforcement import Resource, TerraformState, read_state

TPU = f"serviceAccount:{MINIMAL.account}"


def test_the_minimal_example_is_read_whole() -> None:
    state = read_state(RECORDED / "minimal-rights.json")
    assert set(state.buckets) == {MINIMAL.data, MINIMAL.runs}
    assert {rule["name"]: rule["network"] for _, rule in state.firewalls} == {
        "tpuctl-between-hosts": "tpuctl",
        "tpuctl-ssh-through-iap": "tpuctl",
    }
    assert state.policies.roles == {
        "projects/demo-project-1/roles/tpuctl_member": (
            "compute.firewalls.list",
            "compute.networks.get",
            "compute.projects.get",
        ),
        "projects/demo-project-1/roles/tpuctl_tpu": (
            "tpu.nodes.delete",
            "tpu.nodes.get",
            "tpu.operations.get",
        ),
        "projects/demo-project-1/roles/tpuctl_tpu_overwrite": ("storage.objects.delete",),
    }
    assert [binding.role for binding in state.policies.accounts[MINIMAL.account]] == [
        "roles/iam.serviceAccountUser"
    ]


@pytest.mark.parametrize(
    ("name", "creatable", "deletable"),
    [
        ("runs/a/checkpoints/ckpt-1.index", True, True),
        ("runs/a/attempts/1/workers/0/status.json", True, True),
        ("runs/a/attempts/1/barrier/decision.json", True, True),
        ("runs/a/attempts/1/barrier/ready/0-abc", True, False),
        ("runs/a/tensorboard/events", True, True),
        ("runs/a/run.json", False, False),
        ("runs/a/verdict.json", False, False),
        ("runs/attempts/run.json", False, False),
        ("runs/outputs/verdict.json", False, False),
        ("runs//outputs/run.json", False, False),
        ("runs/a/mine/run.json", False, False),
        ("runs/a/stop.json", True, False),
        ("runs/a/notes.json", True, False),
        ("runs/a/results.json", True, False),
        ("runs/a/attempts/2/lease.json", True, False),
        ("runs/a/attempts/1/attempt.json", True, False),
        ("runs/a/attempts/1/verdict.json", True, False),
        ("runs/a/attempts/1/workers/0/log/000001.log", True, False),
        ("runs/a/outputs/run.json", True, True),
        ("runs/a/checkpoints/1/verdict.json", True, True),
        ("runs/a/tensorboard/run.json", True, True),
        ("runs/a/run.json.bak", True, False),
        ("nodes/p.z.n.u/runs/a/1.json", True, False),
        ("bundles/abc.tar.gz", True, False),
        ("bundles/objects/runs/a/checkpoints/x", True, False),
        ("elsewhere", True, False),
        ("elsewhere/run.json", True, False),
    ],
)
def test_conditions_of_the_minimal_example(name: str, creatable: bool, deletable: bool) -> None:
    state = read_state(RECORDED / "minimal-rights.json")

    def policy(bucket: str):  # type: ignore[no-untyped-def]
        return state.buckets[bucket][0], {"bindings": state.bucket_policies[bucket]}

    access = Access(state.policies, policy)
    resource = access.object(MINIMAL.runs, name)
    assert resource is not None
    assert access.allows(TPU, "storage.objects.delete", resource) is deletable
    assert access.allows(TPU, "storage.objects.create", resource) is creatable
    assert access.allows(TPU, "storage.objects.get", resource)
    assert not access.allows(TPU, "storage.objects.update", resource)
    assert not access.allows("", "storage.objects.get", resource)
    assert not access.allows("user:eve@example.com", "storage.objects.get", resource)


def test_without_protection_a_job_can_forge_what_a_watcher_reads(tmp_path: Path) -> None:
    grant = record.of_plan("no-protection")[
        'google_storage_bucket_iam_member.tpu["runs roles/storage.objectUser"]'
    ]
    state = state_of(tmp_path, ("google_storage_bucket_iam_member", nested(grant)))
    access = Access(state.policies, lambda bucket: ("p", {"bindings": state.bucket_policies[bucket]}))
    for name in ("runs/a/run.json", "runs/a/verdict.json"):
        resource = access.object(MINIMAL.runs, name)
        assert resource is not None
        assert access.allows(TPU, "storage.objects.create", resource)


def test_the_default_account_is_an_editor_as_at_google() -> None:
    state = read_state(RECORDED / "minimal-rights.json")
    access = Access(state.policies, lambda bucket: ("demo-project-1", {}))
    node = Resource("demo-project-1", "projects/demo-project-1/locations/z/nodes/n")
    from tpuctl.sim.token_server import service_account

    member = f"serviceAccount:{service_account('demo-project-1')}"
    assert access.allows(member, "tpu.nodes.delete", node)


def test_a_job_may_delete_every_tpu_and_create_none() -> None:
    state = read_state(RECORDED / "minimal-rights.json")
    access = Access(state.policies, lambda bucket: ("demo-project-1", {}))
    node = Resource("demo-project-1", "projects/demo-project-1/locations/z/nodes/n")
    assert access.allows(TPU, "tpu.nodes.delete", node)
    assert not access.allows(TPU, "tpu.nodes.create", node)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "is not the output"),
        ("[]", "is not the output"),
        ("[" * 200_000, "is not the output"),
        ("{}", "holds no resources"),
        ('{"values": {"outputs": {}}}', "holds no resources"),
        ("role", "does not know the permissions of roles/storage.wizard"),
        ("condition", "cannot evaluate the condition"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    values = {
        "role": {"role": "roles/storage.wizard", "member": "user:a@b.c", "bucket": "b"},
        "condition": {
            "role": "roles/storage.objectViewer",
            "member": "user:a@b.c",
            "bucket": "b",
            "condition": [{"expression": "resource.matchTag('a', 'b')"}],
        },
    }
    if content in values:
        resource = {"mode": "managed", "type": "google_storage_bucket_iam_member", "values": values[content]}
        content = json.dumps({"values": {"root_module": {"resources": [resource]}}})
    path = tmp_path / "iam.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_state(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json cannot be read: No such file"):
        read_state(tmp_path / "gone.json")


def state_of(folder: Path, *resources: tuple[str, dict[str, Any]], mode: str = "managed") -> TerraformState:
    """Return the state that has these resources: type and values."""
    listed = [{"mode": mode, "type": kind, "values": values} for kind, values in resources]
    module = {"resources": listed[:1], "child_modules": [{"child_modules": [{"resources": listed[1:]}]}]}
    path = folder / "iam.json"
    path.write_text(json.dumps({"values": {"root_module": module}}))
    return read_state(path)


def test_a_bucket_has_its_fields_in_the_api(tmp_path: Path) -> None:
    full = {
        "name": "full",
        "project": "p",
        "location": "EU",
        "uniform_bucket_level_access": True,
        "public_access_prevention": "enforced",
        "versioning": [{"enabled": True}],
        "soft_delete_policy": [{"retention_duration_seconds": 604800, "effective_time": "x"}],
        "retention_policy": [{"retention_period": 60, "is_locked": None}],
    }
    empty = {
        "name": "empty",
        "project": "q",
        "versioning": [],
        "retention_policy": [{"retention_period": None}],
    }
    state = state_of(tmp_path, ("google_storage_bucket", full), ("google_storage_bucket", empty))
    assert state.buckets == {
        "full": (
            "p",
            {
                "location": "EU",
                "iamConfiguration": {
                    "uniformBucketLevelAccess": {"enabled": True},
                    "publicAccessPrevention": "enforced",
                },
                "versioning": {"enabled": True},
                "softDeletePolicy": {"retentionDurationSeconds": "604800"},
                "retentionPolicy": {"retentionPeriod": "60"},
            },
        ),
        "empty": (
            "q",
            {
                "location": "US",
                "iamConfiguration": {
                    "uniformBucketLevelAccess": {"enabled": False},
                    "publicAccessPrevention": "inherited",
                },
                "retentionPolicy": {},
            },
        ),
    }


def test_a_rule_of_the_firewall_has_its_fields_in_the_api(tmp_path: Path) -> None:
    full = {
        "name": "ssh",
        "project": "p",
        "network": "https://www.googleapis.com/compute/v1/projects/p/global/networks/net",
        "direction": "EGRESS",
        "disabled": True,
        "source_ranges": ["35.235.240.0/20"],
        "allow": [{"protocol": "tcp", "ports": ["22"]}, {"protocol": "icmp", "ports": None}],
    }
    state = state_of(
        tmp_path, ("google_compute_firewall", full), ("google_compute_firewall", {"name": "bare"})
    )
    assert state.firewalls == [
        (
            "p",
            {
                "name": "ssh",
                "network": "net",
                "direction": "EGRESS",
                "disabled": True,
                "sourceRanges": ["35.235.240.0/20"],
                "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}, {"IPProtocol": "icmp", "ports": []}],
            },
        ),
        (
            "",
            {
                "name": "bare",
                "network": "",
                "direction": "INGRESS",
                "disabled": False,
                "sourceRanges": [],
                "allowed": [],
            },
        ),
    ]


ADA, BOB = "user:ada@example.com", "user:bob@example.com"


@pytest.mark.parametrize("suffix", ["_member", "_binding", ""])
def test_bindings_are_where_they_were_made(tmp_path: Path, suffix: str) -> None:
    who = {"members": [BOB, 5, ""]} if suffix == "_binding" else {"member": ADA}
    members = (BOB,) if suffix == "_binding" else (ADA,)
    condition = {"title": "t", "description": "", "expression": "true"}
    state = state_of(
        tmp_path,
        (f"google_project_iam{suffix}", {"project": "p", "role": "roles/tpu.admin", **who}),
        (
            f"google_iap_tunnel_iam{suffix}",
            {
                "project": "projects/p",
                "role": "roles/iap.tunnelResourceAccessor",
                "condition": [condition],
                **who,
            },
        ),
        (
            f"google_service_account_iam{suffix}",
            {
                "service_account_id": "projects/p/serviceAccounts/a@p",
                "role": "roles/iam.serviceAccountUser",
                **who,
            },
        ),
        (f"google_storage_bucket_iam{suffix}", {"bucket": "b/data", "role": "roles/storage.admin", **who}),
        (
            f"google_storage_bucket_iam{suffix}",
            {"bucket": "data", "role": "roles/storage.objectUser", "condition": [condition], **who},
        ),
        ("google_project_service", {"project": "p"}),
    )
    owner, tunnel = state.policies.projects["p"]
    assert (owner.role, owner.members, owner.condition) == ("roles/tpu.admin", members, None)
    assert (tunnel.role, tunnel.members) == ("roles/iap.tunnelResourceAccessor", members)
    assert tunnel.condition is not None
    assert tunnel.condition.expression == "true"
    (account,) = state.policies.accounts["a@p"]
    assert (account.role, account.members) == ("roles/iam.serviceAccountUser", members)
    assert state.bucket_policies == {
        "data": [
            {"role": "roles/storage.admin", "members": list(members)},
            {
                "role": "roles/storage.objectUser",
                "members": list(members),
                "condition": {"title": "t", "expression": "true"},
            },
        ]
    }


def test_a_custom_role_has_its_permissions(tmp_path: Path) -> None:
    values = {"project": "p", "role_id": "mine", "permissions": ["tpu.nodes.get", "tpu.nodes.list"]}
    role = "projects/p/roles/mine"
    binding = {"project": "p", "role": role, "member": ADA}
    state = state_of(
        tmp_path, ("google_project_iam_custom_role", values), ("google_project_iam_member", binding)
    )
    assert state.policies.roles == {role: ("tpu.nodes.get", "tpu.nodes.list")}
    nothing = state_of(tmp_path, ("google_project_iam_custom_role", {"project": "p", "role_id": "x"}))
    assert nothing.policies.roles == {"projects/p/roles/x": ()}


def test_what_terraform_only_reads_was_not_applied(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no resources") as raised:
        state_of(tmp_path, ("google_storage_bucket", {"name": "b"}), mode="data")
    assert raised.value.hint == "Write the file where terraform was applied: terraform show -json > iam.json"


@pytest.mark.parametrize("kind", ["google_project_iam_member", "google_service_account_iam_member"])
def test_a_role_that_cannot_be_enforced_is_refused(tmp_path: Path, kind: str) -> None:
    values = {"project": "p", "service_account_id": "a@p", "role": "roles/tpu.wizard", "member": ADA}
    with pytest.raises(UsageError, match=r"does not know the permissions of roles/tpu\.wizard"):
        state_of(tmp_path, (kind, values))


def test_a_state_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "iam.json"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(UsageError, match="is larger than 64 MiB"):
        read_state(path)
