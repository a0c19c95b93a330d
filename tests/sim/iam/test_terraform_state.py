"""States of terraform that are read, and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sim.iam.rehearsal import MINIMAL, RECORDED
from tpuctl.errors import UsageError
from tpuctl.sim.iam.access import Access
from tpuctl.sim.iam.policies import Resource
from tpuctl.sim.iam.terraform_state import read_state

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
    ("name", "deletable"),
    [
        ("runs/a/checkpoints/ckpt-1.index", True),
        ("runs/a/attempts/1/workers/0/status.json", True),
        ("runs/a/attempts/1/barrier/decision.json", True),
        ("runs/a/attempts/1/barrier/ready/0-abc", False),
        ("runs/a/tensorboard/events", True),
        ("runs/a/run.json", False),
        ("runs/a/verdict.json", False),
        ("runs/a/attempts/1/attempt.json", False),
        ("runs/a/attempts/1/workers/0/log/000001.log", False),
        ("bundles/abc.tar.gz", False),
        ("bundles/objects/runs/a/checkpoints/x", False),
        ("elsewhere", False),
    ],
)
def test_conditions_of_the_minimal_example(name: str, deletable: bool) -> None:
    state = read_state(RECORDED / "minimal-rights.json")

    def policy(bucket: str):  # type: ignore[no-untyped-def]
        return state.buckets[bucket][0], {"bindings": state.bucket_policies[bucket]}

    access = Access(state.policies, policy)
    resource = access.object(MINIMAL.runs, name)
    assert resource is not None
    assert access.allows(TPU, "storage.objects.delete", resource) is deletable
    assert access.allows(TPU, "storage.objects.create", resource)
    assert access.allows(TPU, "storage.objects.get", resource)
    assert not access.allows(TPU, "storage.objects.update", resource)
    assert not access.allows("", "storage.objects.get", resource)
    assert not access.allows("user:eve@example.com", "storage.objects.get", resource)


def test_the_default_account_is_an_editor_as_at_google() -> None:
    state = read_state(RECORDED / "minimal-rights.json")
    access = Access(state.policies, lambda bucket: ("demo-project-1", {}))
    node = Resource("demo-project-1", "projects/demo-project-1/locations/z/nodes/n")
    from tpuctl.sim.accounts import service_account

    member = f"serviceAccount:{service_account('demo-project-1')}"
    assert access.allows(member, "tpu.nodes.delete", node)
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
