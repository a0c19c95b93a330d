"""Removes a version of a dataset: first the manifest, without which it does not exist, then the shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.bucket_objects import BadObjectError
from tpuctl.data.output.manifest import FILE, Manifest
from tpuctl.datasets import DatasetRef, is_version
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.lookup import find_manifest, not_found
from tpuctl.flows.datasets.upload import COMMIT
from tpuctl.flows.progress import Report, silent
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

_WIDTH = 8
_FIRST = (COMMIT, FILE)
"""Without `commit.json` no upload can bring the dataset back; without a manifest it does not exist."""


@dataclass(frozen=True)
class Removal:
    """What a removal deletes."""

    ref: DatasetRef
    manifest: Manifest | None
    """None for what is left of an upload or a removal that was not finished, or is no manifest."""
    objects: tuple[Object, ...]
    """In the order in which they are deleted."""

    @property
    def bytes(self) -> int:
        """Bytes of all objects."""
        return sum(listed.size for listed in self.objects)


def plan_removal(bucket: Bucket, ref: DatasetRef, warn: Report = silent) -> Removal:
    """Return what is to be removed for a reference, which may lack the version of a dataset that has one.

    `warn` gets a line about a manifest that cannot be read: it is removed, too. Sends reads only.
    Raises NotFoundError, and UsageError where there are several versions.
    """
    version = ref.version or _only_version(bucket, ref.name)
    exact = DatasetRef(ref.name, version)
    listed = {item.name: item for item in bucket.objects(exact.folder)} if version else {}
    if not listed:
        raise not_found(bucket, ref, hint="See: tpuctl data ls")
    first = [exact.folder + file for file in _FIRST if exact.folder + file in listed]
    names = [*first, *(name for name in listed if name not in first)]
    return Removal(exact, _manifest(bucket, exact, warn), tuple(listed[name] for name in names))


def _manifest(bucket: Bucket, ref: DatasetRef, warn: Report) -> Manifest | None:
    try:
        return find_manifest(bucket, ref)
    except BadObjectError as error:
        warn(error.message)
        return None


def requests(bucket: Bucket, removal: Removal) -> list[HttpRequest]:
    """Return what `remove` sends, in the order of `removal.objects`."""
    rehearsal = bucket.dry_run()
    remove(rehearsal, removal, width=1)
    return rehearsal.requests


def remove(bucket: Bucket, removal: Removal, *, width: int = _WIDTH) -> None:
    """Delete these generations of these objects; run again after a kill, it deletes the rest."""
    first = [item for item in removal.objects if item.name.removeprefix(removal.ref.folder) in _FIRST]
    for item in first:
        bucket.remove(item)
    values(fanout(bucket.remove, [item for item in removal.objects if item not in first], width=width))


def _only_version(bucket: Bucket, name: str) -> str:
    folders = bucket.folders(DatasetRef(name, "").folder) if name else []
    versions = list(filter(is_version, folders))  # others may write any folder there
    if len(versions) > 1:
        raise UsageError(
            f"The dataset '{name}' has the versions {', '.join(versions)}.",
            hint=f"Name one of them: tpuctl data rm {DatasetRef(name, versions[-1])}",
            versions=versions,
        )
    return versions[0] if versions else ""
