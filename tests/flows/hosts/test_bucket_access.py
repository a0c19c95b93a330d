"""What `up` says before it asks about a service account that may not use the bucket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket, Grant
from tpuctl.errors import ConfigError
from tpuctl.flows.hosts.bucket_access import grant_command, warning

Tpuctl = Callable[..., CommandResult]
ACCOUNT = "tpu@sim-project.iam.gserviceaccount.com"
COMMAND = (
    "gcloud storage buckets add-iam-policy-binding gs://sim-project-tpuctl/ "
    f"--member serviceAccount:{ACCOUNT} --role roles/storage.objectUser"
)


def grant_access(cloud: Cloud, account: str) -> None:
    """Give an account a role on the bucket of runs, as the command does."""
    bucket = cloud.bucket._bucket
    policy = bucket.get_iam_policy(requested_policy_version=3)
    member = f"serviceAccount:{account}"
    policy.bindings.append({"role": "roles/storage.objectUser", "members": {member}})
    bucket.set_iam_policy(policy)


def test_an_account_without_a_role_on_the_bucket_is_named_with_the_command(
    simulator: RunningSimulator, tpuctl: Tpuctl, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_SERVICE_ACCOUNT", ACCOUNT)
    asked = tpuctl("up", "v3-8")
    assert asked.code == 10, asked.err
    assert "gs://sim-project-tpuctl/ gives the service account of the TPU no role" in asked.err
    assert COMMAND in asked.err
    grant_access(cloud, ACCOUNT)
    asked = tpuctl("up", "v3-8")
    assert (asked.code, "add-iam-policy-binding" in asked.err) == (10, False)


def test_googles_default_account_is_known_to_be_an_editor_on_the_simulator_alone(
    cloud: Cloud, tpuctl: Tpuctl
) -> None:
    assert "add-iam-policy-binding" not in tpuctl("up", "v3-8", "--ttl", "1h").err
    assert warning(cloud, "", deletes=True) == ""
    cloud.endpoints = replace(cloud.endpoints, is_default_account_editor=False)
    default = cloud.default_account()
    told = warning(cloud, "")
    assert told.startswith("If it has no role in the project, as in new organizations, ")
    assert told.endswith(grant_command(cloud.bucket.name, default))
    grant_access(cloud, default)
    assert warning(cloud, "") == ""
    assert warning(cloud, "", deletes=True).endswith(
        f"add-iam-policy-binding sim-project --member serviceAccount:{default} --role roles/tpu.admin"
    )


def test_who_may_not_read_the_policy_is_told_nothing(
    simulator: RunningSimulator, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Bucket) -> list[Grant]:
        raise ConfigError("No permission.")  # no fault has this method

    monkeypatch.setattr(Bucket, "grants", refuse)
    assert warning(cloud, ACCOUNT) == ""
