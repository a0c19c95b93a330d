"""Datasets in the bucket: listing, finding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import DATASETS, dataset
from tpuctl.data.output.manifest import FILE, Manifest, decode_manifest
from tpuctl.errors import NotFoundError, nearest
from tpuctl.runs import DatasetRef

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


def find(bucket: Bucket, name: str, version: str) -> Manifest | None:
    """Return the manifest of one version of a dataset, or None when it does not exist."""
    data = bucket.find(dataset(name, version) + FILE)
    return decode_manifest(data) if data else None


def every(bucket: Bucket) -> Iterator[Manifest]:
    """Yield the manifests of all datasets, by name and version."""
    for item in bucket.objects(DATASETS, glob=f"{DATASETS}*/*/{FILE}"):
        yield decode_manifest(bucket.read(item.name))


def resolve(bucket: Bucket, wanted: str) -> DatasetRef:
    """Return the dataset called `NAME` (its newest version) or `NAME/VERSION`, pinned by its manifest.

    Raises NotFoundError with the nearest names.
    """
    manifest = newest(bucket, wanted)
    return DatasetRef(manifest.name, manifest.version, manifest.digest)


def newest(bucket: Bucket, wanted: str) -> Manifest:
    """Return the manifest of `NAME` (its newest version) or `NAME/VERSION`; raises NotFoundError."""
    name, _, version = wanted.partition("/")
    for one in [version] if version else _versions(bucket, name):
        manifest = find(bucket, name, one)
        if manifest:
            return manifest
    known = bucket.folders(DATASETS)
    close = nearest(name, known)
    hint = (
        f"Did you mean {close[0]}?"
        if close and close[0] != name
        else f"Upload it: tpuctl data upload {name} FOLDER"
    )
    raise NotFoundError(f"There is no dataset '{wanted}' in gs://{bucket.name}.", hint=hint, dataset=wanted)


def _versions(bucket: Bucket, name: str) -> list[str]:
    """The versions of a dataset, newest first."""
    numbered = [tuple(map(int, one.split("."))) for one in bucket.folders(dataset(name)) if _is_version(one)]
    return [".".join(map(str, one)) for one in sorted(numbered, reverse=True)]


def _is_version(text: str) -> bool:
    return all(part.isdigit() for part in text.split("."))
