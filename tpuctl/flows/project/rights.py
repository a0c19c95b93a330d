"""Judges who may do what with the buckets: the public, and the service account that every job runs as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import gs
from tpuctl.flows.hosts.bucket_access import ROLE, public_grants

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Grant

DEFAULT_ACCOUNT = (
    "No service account is configured: Google's default Compute Engine service account applies, an "
    "Editor of older projects. Name another one: tpuctl init --service-account EMAIL, or "
    "service_account in tpuctl.toml"
)
OVERWRITERS = (
    "roles/editor",
    "roles/owner",
    "roles/storage.admin",
    "roles/storage.legacyBucketOwner",
    "roles/storage.legacyBucketWriter",
    "roles/storage.objectAdmin",
)
"""Roles that may overwrite and delete objects, as `ROLE` may, which a bucket of runs needs."""


@dataclass(frozen=True)
class Concern:
    """A grant that gives more than tpuctl needs."""

    text: str
    is_public: bool = False


def concerns(
    bucket: str, grants: Sequence[Grant], account: str | None, *, holds_runs: bool
) -> Iterator[Concern]:
    """Yield what is wrong with the grants of a bucket, the worst first; `account` is that of TPU VMs."""
    for text in public_grants(bucket, grants):
        yield Concern(text, is_public=True)
    too_wide = OVERWRITERS if holds_runs else (*OVERWRITERS, ROLE)
    for grant in grants:
        may_overwrite = grant.role in too_wide and not grant.is_conditional
        if account and grant.member == f"serviceAccount:{account}" and may_overwrite:
            lost = "the records and checkpoints of all runs" if holds_runs else "all datasets"
            yield Concern(f"a job may delete {lost} in {gs(bucket, '')} ({grant.role} of the TPU account)")
