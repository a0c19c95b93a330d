"""Datasets in the bucket: uploading, listing, finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.data.manifest import FILE, Manifest, ShardEntry, decode_manifest
from tpuctl.data.plan import DatasetPlan
from tpuctl.data.shards import Shard
from tpuctl.errors import ConflictError, NotFoundError, StateError, TpuctlError, nearest
from tpuctl.fanout import fanout, values
from tpuctl.nodes import HttpRequest
from tpuctl.runs import DatasetRef
from tpuctl.uris import DATASETS, dataset, gs

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

UPLOADS = 4
"""Shards under way at once; each holds one part of 8 MiB in memory."""


@dataclass(frozen=True)
class Uploaded:
    """A dataset that is in the bucket."""

    uri: str
    manifest: Manifest
    already_there: bool


def requests(bucket: Bucket, plan: DatasetPlan) -> list[HttpRequest]:
    """Return what `upload` would send, for --dry-run."""
    folder = dataset(plan.name, plan.version)
    return [HttpRequest("PUT", gs(bucket.name, folder + file)) for file in plan.files]


def upload(bucket: Bucket, plan: DatasetPlan, progress: Callable[[int, int], None]) -> Uploaded:
    """Make the shards and write them, the manifest last: until then the dataset does not exist.

    `progress` gets records done and records in all. Raises ConflictError when this version is there with
    other content, StateError when a shard arrived damaged, UsageError when the source has changed meanwhile.
    """
    folder = dataset(plan.name, plan.version)
    standing = find(bucket, plan.name, plan.version)
    done = 0

    def one(shard: Shard) -> ShardEntry:
        nonlocal done
        entry = _rehearsed(shard) if standing else _write(bucket, folder, shard)
        done += shard.records
        progress(done, plan.records)
        return entry

    bucket.check()
    entries = values(fanout(one, plan.shards(), width=UPLOADS))
    *others, manifest = plan.finish(entries).items()
    made = decode_manifest(manifest[1])
    if standing:
        return Uploaded(gs(bucket.name, folder), _same(standing, made), already_there=True)
    for name, data in others:
        bucket.upload(folder + name, [data], "text/plain" if name.endswith(".txt") else "application/json")
    try:
        bucket.create(folder + FILE, manifest[1])
    except ConflictError:
        return Uploaded(gs(bucket.name, folder), _same(_read(bucket, folder), made), already_there=True)
    return Uploaded(gs(bucket.name, folder), made, already_there=False)


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
    name, _, version = wanted.partition("/")
    versions = [version] if version else _versions(bucket, name)
    for one in versions:
        manifest = find(bucket, name, one)
        if manifest:
            return DatasetRef(name, one, manifest.digest)
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


def _write(bucket: Bucket, folder: str, shard: Shard) -> ShardEntry:
    written = bucket.upload(folder + shard.file, shard.chunks(), "application/x-tfrecord")
    entry = shard.entry
    if (written.size, written.crc32c) != (entry.bytes, entry.crc32c):
        raise StateError(f"{written.name} arrived damaged.", hint="Upload again.")
    return entry


def _rehearsed(shard: Shard) -> ShardEntry:
    """What the shard would be, without sending it; compared with what stands in the end."""
    for _ in shard.chunks():
        pass
    return shard.entry


def _same(standing: Manifest, made: Manifest) -> Manifest:
    if standing.digest != made.digest:
        raise _taken(made)
    return standing


def _taken(made: Manifest) -> TpuctlError:
    return ConflictError(
        f"Version {made.version} of the dataset '{made.name}' exists with other content.",
        hint="Give the new one another number with --version.",
    )


def _read(bucket: Bucket, folder: str) -> Manifest:
    return decode_manifest(bucket.read(folder + FILE))
