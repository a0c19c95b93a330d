"""Removing a version of a dataset: it stops existing first, its objects go afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import DATASETS, dataset, gs
from tpuctl.data.output.manifest import FILE, Manifest, decode_manifest
from tpuctl.errors import NotFoundError, UsageError, nearest
from tpuctl.flows.datasets.commit import COMMIT
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

_WIDTH = 8


@dataclass(frozen=True)
class Removal:
    """What would be removed."""

    name: str
    version: str
    manifest: Manifest | None
    """None where an upload was never finished, or a removal."""
    objects: tuple[Object, ...]
    """In the order in which they go."""

    @property
    def bytes(self) -> int:
        """Bytes of all objects."""
        return sum(one.size for one in self.objects)

    def requests(self, bucket: str) -> list[HttpRequest]:
        """Return what `remove` would send."""
        return [HttpRequest("DELETE", gs(bucket, one.name)) for one in self.objects]


def removal(bucket: Bucket, wanted: str) -> Removal:
    """Return what is to be removed for `NAME/VERSION`, or `NAME` where it has one version; reads only.

    Raises NotFoundError, and UsageError where there are several versions.
    """
    name, _, version = wanted.partition("/")
    version = version or _only_version(bucket, name)
    found = {one.name: one for one in bucket.objects(dataset(name, version))} if version else {}
    if not found:
        close = nearest(name, bucket.folders(DATASETS))
        raise NotFoundError(
            f"There is no dataset '{wanted}' in gs://{bucket.name}.",
            hint=f"Did you mean {close[0]}?" if close and close[0] != name else "See: tpuctl data ls",
            dataset=wanted,
        )
    # without `commit.json` nobody can bring it back; without a manifest it does not exist
    first = [f"{dataset(name, version)}{file}" for file in (COMMIT, FILE)]
    ordered = [found[one] for one in first if one in found] + [
        found[one] for one in found if one not in first
    ]
    data = bucket.find(first[1])
    return Removal(name, version, decode_manifest(data) if data else None, tuple(ordered))


def remove(bucket: Bucket, planned: Removal) -> None:
    """Delete these generations of these objects; run again after a kill, it deletes the rest."""
    first = [one for one in planned.objects if one.name.endswith((f"/{COMMIT}", f"/{FILE}"))]
    for one in first:
        bucket.remove(one)
    values(fanout(bucket.remove, [one for one in planned.objects if one not in first], width=_WIDTH))


def _only_version(bucket: Bucket, name: str) -> str:
    versions = bucket.folders(dataset(name)) if name else []
    if len(versions) > 1:
        raise UsageError(
            f"The dataset '{name}' has the versions {', '.join(versions)}.",
            hint=f"Say which: tpuctl data rm {name}/{versions[-1]}",
            versions=versions,
        )
    return versions[0] if versions else ""
