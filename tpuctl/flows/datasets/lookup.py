"""Finds datasets in the bucket: by reference, or all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import DATASETS
from tpuctl.data.output.manifest import FILE, Manifest, decode_manifest
from tpuctl.datasets import DatasetRef, PinnedDataset
from tpuctl.errors import NotFoundError, nearest

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


def find_manifest(bucket: Bucket, ref: DatasetRef) -> Manifest | None:
    """Return the manifest of one version of a dataset, or None when it does not exist."""
    data = bucket.find(ref.folder + FILE)
    return decode_manifest(data) if data else None


def read_manifest(bucket: Bucket, ref: DatasetRef) -> Manifest:
    """Return the manifest of a dataset, of its newest version unless `ref` names one.

    Raises NotFoundError with the nearest names.
    """
    for version in [ref.version] if ref.version else _versions(bucket, ref.name):
        manifest = find_manifest(bucket, DatasetRef(ref.name, version))
        if manifest:
            return manifest
    raise not_found(bucket, ref, hint=f"Upload it: tpuctl data upload {ref.name} FOLDER")


def list_manifests(bucket: Bucket) -> Iterator[Manifest]:
    """Yield the manifests of all datasets, by name and version."""
    for listed in bucket.objects(DATASETS, glob=f"{DATASETS}*/*/{FILE}"):
        yield decode_manifest(bucket.read(listed.name))


def pin(bucket: Bucket, ref: DatasetRef) -> PinnedDataset:
    """Return the dataset as `read_manifest` finds it, pinned by its manifest's digest."""
    manifest = read_manifest(bucket, ref)
    return PinnedDataset(manifest.name, manifest.version, manifest.digest)


def not_found(bucket: Bucket, ref: DatasetRef, *, hint: str) -> NotFoundError:
    """Return the error for a dataset that does not exist; `hint` is for when no other name is close."""
    close = nearest(ref.name, bucket.folders(DATASETS))
    return NotFoundError(
        f"There is no dataset '{ref}' in gs://{bucket.name}.",
        hint=f"Did you mean {close[0]}?" if close and close[0] != ref.name else hint,
        dataset=str(ref),
    )


def _versions(bucket: Bucket, name: str) -> list[str]:
    """The versions of a dataset, newest first."""
    versions = [text for text in bucket.folders(DatasetRef(name, "").folder) if _is_version(text)]
    return sorted(versions, key=lambda version: [int(number) for number in version.split(".")], reverse=True)


def _is_version(text: str) -> bool:
    return all(part.isdigit() for part in text.split("."))
