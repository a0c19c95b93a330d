"""Says whether the service account of TPUs may use a bucket, and which command lets it.

- Changes the metadata of a node, which other clients may change at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import gs
from tpuctl.cloud.provider import Provider
from tpuctl.errors import ConflictError
from tpuctl.nodes import Node, UpdateNode
from tpuctl.parallel import within
from tpuctl.polling import retry

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud
    from tpuctl.cloud.storage import Bucket, Grant


TIMEOUT = 120.0
"""Seconds for one change, and for all attempts: of two clients at once, one's change is refused or lost."""


def change_metadata(
    provider: Provider, node: Node, change_of: Callable[[Node], UpdateNode | None], purpose: str
) -> Node:
    """Change a node until it has what `change_of` wants of it, and return it so.

    `change_of` returns None for a node that needs no change. The metadata is replaced as a whole: it is read
    right before, and what other clients change stays. `purpose` completes "Waited 120 s for Node 'n1' ...".
    Raises ConflictError where others change it all the time.
    """
    if change_of(node) is None:
        return node

    def merge() -> Node:
        change = change_of(current := provider.get_node(node.id))
        if change is None:
            return current
        provider.begin(change).wait(purpose, TIMEOUT)
        changed = provider.get_node(node.id)
        if change_of(changed):
            raise ConflictError(
                f"The metadata of '{node.name}' is being changed by another client.", hint="Try again."
            )
        return changed

    return retry(merge, on=ConflictError, timeout=TIMEOUT)


ROLE = "roles/storage.objectUser"
"""Lets a job read datasets, and write logs, checkpoints and statuses.

A status is overwritten, which takes the right to delete: of Google's own roles that read, list and create,
this is the least with it. terraform/ makes one that deletes no records.
"""
DELETER = "roles/tpu.admin"
"""The least of Google's own roles with tpu.nodes.delete; terraform/ makes one that may do no more."""
PUBLIC = ("allUsers", "allAuthenticatedUsers")
READERS = (
    "roles/storage.objectViewer",
    "roles/storage.legacyObjectReader",
    "roles/storage.legacyBucketReader",
)


def grant_command(bucket: str, account: str) -> str:
    """Return the command by which an account may use a bucket; `account` is empty where nobody knows it."""
    return (
        f"gcloud storage buckets add-iam-policy-binding {gs(bucket, '')} "
        f"--member serviceAccount:{account or 'ACCOUNT'} --role {ROLE}"
    )


def public(bucket: Bucket) -> list[str]:
    """Return a warning for each role that the public has on a bucket; none where that cannot be read."""
    grants = within(bucket.grants).value or []
    return [f"Warning: {text}" for text in public_grants(bucket.name, grants)]


def public_grants(bucket: str, grants: Iterable[Grant]) -> Iterator[str]:
    """Yield what the public may do with a bucket."""
    for grant in grants:
        if grant.member in PUBLIC:
            verb = "read" if grant.role in READERS else "use"
            whom = (
                "everyone on the internet" if grant.member == PUBLIC[0] else "everyone with a Google account"
            )
            yield f"{gs(bucket, '')} IS PUBLIC: {whom} may {verb} it ({grant.role})"


def warning(cloud: Cloud, account: str, *, deletes: bool = False) -> str:
    """Return what to do where the bucket of runs gives the service account of new TPUs no role, or nothing.

    `account` is empty for Google's default one, which may have no role at all; `deletes` is whether hosts are
    to delete their TPU, for which the default one needs another. A role that an account has in the project is
    not seen. Sends reads only, and says nothing where they are refused.
    """
    if not account and cloud.endpoints.is_default_account_editor:
        return ""
    told = [lambda: _warning(cloud, account)]
    if deletes and not account:
        told.append(lambda: _deletion(cloud))
    return "\n".join(filter(None, (within(text).value for text in told)))


def _deletion(cloud: Cloud) -> str:
    project, account = cloud.config.require("project"), cloud.default_account()
    return (
        "If it has none, let it delete the TPU at the end of --ttl or --idle, too, which else bills on: "
        f"gcloud projects add-iam-policy-binding {project} --member serviceAccount:{account} --role {DELETER}"
    )


def _warning(cloud: Cloud, named: str) -> str:
    bucket = cloud.bucket
    members = {grant.member for grant in bucket.grants()}
    account = named or cloud.default_account()
    if f"serviceAccount:{account}" in members:
        return ""
    command = grant_command(bucket.name, account)
    if not named:
        return f"If it has no role in the project, as in new organizations, let it use the bucket: {command}"
    return (
        f"{gs(bucket.name, '')} gives the service account of the TPU no role: unless the project does, jobs "
        f"can write nothing. Let it use the bucket: {command}"
    )
