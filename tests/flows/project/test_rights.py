"""Grants of a bucket that give more than tpuctl needs."""

from __future__ import annotations

import pytest

from tpuctl.cloud.storage import Grant
from tpuctl.flows.hosts.bucket_access import ROLE
from tpuctl.flows.project.rights import Concern, concerns

GRANTED_ACCOUNT = "tpu@p.iam.gserviceaccount.com"


def said(
    *grants: tuple[str, str], account: str | None = GRANTED_ACCOUNT, holds_runs: bool = True
) -> list[Concern]:
    listed = [Grant(role, member, False) for role, member in grants]
    return list(concerns("b", listed, account, holds_runs=holds_runs))


@pytest.mark.parametrize(
    ("role", "verb"),
    [
        ("roles/storage.objectViewer", "read"), ("roles/storage.legacyObjectReader", "read"),
        ("roles/storage.legacyBucketReader", "read"), ("roles/storage.objectAdmin", "use"),
        ("roles/storage.objectCreator", "use"),
    ],
)  # fmt: skip
def test_a_public_bucket_is_said_loudly(role: str, verb: str) -> None:
    assert said((role, "allUsers")) == [
        Concern(f"gs://b/ IS PUBLIC: everyone on the internet may {verb} it ({role})", is_public=True)
    ]
    assert said((role, "allAuthenticatedUsers")) == [
        Concern(f"gs://b/ IS PUBLIC: everyone with a Google account may {verb} it ({role})", is_public=True)
    ]


@pytest.mark.parametrize(
    "role",
    [
        "roles/editor", "roles/owner", "roles/storage.admin", "roles/storage.legacyBucketOwner",
        "roles/storage.legacyBucketWriter", "roles/storage.objectAdmin",
    ],
)  # fmt: skip
def test_a_job_that_may_delete_everything_is_said(role: str) -> None:
    """Roles with storage.objects.delete: https://cloud.google.com/storage/docs/access-control/iam-roles"""
    member = f"serviceAccount:{GRANTED_ACCOUNT}"
    text = f"in gs://b/ ({role} of the TPU account)"
    assert said((role, member)) == [
        Concern(f"a job may delete the records and checkpoints of all runs {text}")
    ]
    assert said((role, member), holds_runs=False) == [Concern(f"a job may delete all datasets {text}")]
    assert said((role, member), account=None) == said((role, "user:ada@p")) == []
    assert list(concerns("b", [Grant(role, member, True)], GRANTED_ACCOUNT, holds_runs=True)) == []


def test_the_role_that_overwrites_statuses_is_too_wide_for_datasets_alone() -> None:
    granted = (ROLE, f"serviceAccount:{GRANTED_ACCOUNT}")
    assert said(granted) == []
    text = f"a job may delete all datasets in gs://b/ ({ROLE} of the TPU account)"
    assert said(granted, holds_runs=False) == [Concern(text)]


def test_a_role_that_deletes_nothing_is_no_concern_and_the_public_comes_first() -> None:
    member = f"serviceAccount:{GRANTED_ACCOUNT}"
    assert said(("roles/storage.objectCreator", member), ("roles/storage.objectViewer", member)) == []
    both = said(("roles/owner", member), ("roles/storage.objectViewer", "allUsers"))
    assert [concern.is_public for concern in both] == [True, False]
