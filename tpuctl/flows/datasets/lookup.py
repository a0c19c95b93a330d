"""Finds datasets in the bucket: by reference, or all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import DATASETS
from tpuctl.bucket_objects import BadObjectError
from tpuctl.data.output.manifest import FILE, LARGEST, Manifest, decode_manifest
from tpuctl.datasets import DatasetRef, PinnedDataset, is_version
from tpuctl.errors import NotFoundError, nearest
from tpuctl.flows.progress import Report, silent

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


def find_manifest(bucket: Bucket, ref: DatasetRef) -> Manifest | None:
    """Return the manifest of one version of a dataset, or None without one; raises BadObjectError."""
    data = bucket.find(ref.folder + FILE, LARGEST) if ref.is_valid else None
    return None if data is None else decode_manifest(data, ref)


def read_manifest(bucket: Bucket, ref: DatasetRef, warn: Report = silent) -> Manifest:
    """Return the manifest of a dataset, of its newest version unless `ref` names one.

    `warn` gets a line about each newer version whose manifest cannot be read. Raises NotFoundError with the
    nearest names, BadObjectError if no manifest of the dataset can be read.
    """
    refused: list[BadObjectError] = []
    for version in [ref.version] if ref.version else _versions(bucket, ref.name):
        try:
            manifest = find_manifest(bucket, DatasetRef(ref.name, version))
        except BadObjectError as error:
            refused.append(error)
            continue
        if manifest:
            for refusal in refused:
                warn(refusal.message)
            return manifest
    if refused:
        raise refused[0]
    raise not_found(bucket, ref, hint=f"Upload it: tpuctl data upload {ref.name} FOLDER")


def list_manifests(bucket: Bucket, warn: Report = silent) -> Iterator[Manifest]:
    """Yield the manifests of all datasets, by name and version; `warn` gets a line about each bad one."""
    for listed in bucket.objects(DATASETS, glob=f"{DATASETS}*/*/{FILE}"):
        ref = DatasetRef(*listed.name.split("/")[1:3])
        try:
            if not ref.is_valid:
                raise BadObjectError(listed.name, "is in a folder that cannot be a dataset's")
            manifest = find_manifest(bucket, ref)
        except BadObjectError as error:
            warn(error.message)
        else:
            yield from [manifest] if manifest else []  # None: removed since it was listed


def pin(bucket: Bucket, ref: DatasetRef, warn: Report = silent) -> PinnedDataset:
    """Return the dataset as `read_manifest` finds it, pinned by its manifest's digest."""
    manifest = read_manifest(bucket, ref, warn)
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
    versions = [text for text in bucket.folders(DatasetRef(name, "").folder) if is_version(text)]
    return sorted(versions, key=lambda version: [int(number) for number in version.split(".")], reverse=True)
