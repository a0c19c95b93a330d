"""Says which command lets the service account of TPUs use a bucket."""

from __future__ import annotations

from tpuctl.bucket_layout import gs

ROLE = "roles/storage.objectUser"
"""Lets a job read datasets, and write logs, checkpoints and statuses."""


def grant_command(bucket: str, account: str) -> str:
    """Return the command by which an account may use a bucket; `account` is empty where nobody knows it."""
    return (
        f"gcloud storage buckets add-iam-policy-binding {gs(bucket, '')} "
        f"--member serviceAccount:{account or 'ACCOUNT'} --role {ROLE}"
    )
