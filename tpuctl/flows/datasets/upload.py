"""Uploading a dataset: its shards are staged, kept ones passed over, and all of it is committed at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import dataset, gs
from tpuctl.data.output.manifest import FILE, Manifest, decode_manifest
from tpuctl.data.output.shards import Shard, ShardResult
from tpuctl.data.plan import DatasetPlan
from tpuctl.flows.datasets.commit import COMMIT, Commit, same, taken
from tpuctl.flows.datasets.conversion import Conversion, Progress
from tpuctl.flows.datasets.local_copy import LocalCopy
from tpuctl.flows.datasets.staging import FOLDER, Staging
from tpuctl.nodes import HttpRequest

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


@dataclass(frozen=True)
class Uploaded:
    """A dataset that is in the bucket."""

    uri: str
    manifest: Manifest
    already_there: bool
    kept: int = 0
    """Shards that an upload before had left, whole."""


def requests(bucket: Bucket, plan: DatasetPlan) -> list[HttpRequest]:
    """Return what `upload` would send to write, for --dry-run."""
    folder = dataset(plan.name, plan.version)
    staged = gs(bucket.name, f"{folder}{FOLDER}")
    shards = [HttpRequest("PUT", f"{staged}{shard.identity}.tfrecord") for shard in plan.shards()]
    moves = [HttpRequest("MOVE", gs(bucket.name, folder + shard.file)) for shard in plan.shards()]
    files = [HttpRequest("PUT", gs(bucket.name, folder + file)) for file in plan.files[len(shards) : -1]]
    decision = HttpRequest("PUT", gs(bucket.name, folder + COMMIT))
    return [*shards, decision, *moves, *files, HttpRequest("COPY", gs(bucket.name, folder + FILE))]


def upload(
    bucket: Bucket, plan: DatasetPlan, progress: Progress, *, skip_bad: bool = False, keep: Path | None = None
) -> Uploaded:
    """Make the shards that are not there and write them; then the dataset exists, all of it or none.

    `keep` is a folder that gets a copy: each shard is written there before it is sent.
    Raises ConflictError when this version is there with other content or becomes so meanwhile,
    BadRecordsError, UsageError when the source changes, DeadlineError when the service does not answer.
    """
    bucket.check()
    commit = Commit(bucket, plan.name, plan.version)
    conversion = Conversion(plan, progress, skip_bad=skip_bad)
    standing = commit.complete()
    if standing is not None:
        return _compare(bucket, plan, conversion, decode_manifest(standing))
    staging = Staging(bucket, plan.name, plan.version)
    local = LocalCopy(keep) if keep else None
    kept: list[str] = []

    def work(shard: Shard) -> ShardResult:
        note = staging.kept(shard, skip_bad=skip_bad)
        if note is None:
            return staging.put(shard, lambda: conversion.stream(shard), local)
        kept.append(shard.file)
        if local:
            local.copy(conversion.stream(shard), shard.file)
        else:
            conversion.count(shard.records)
        return note

    shards = list(plan.shards())
    notes = conversion.run(work, shards)
    *others, (_, manifest) = plan.finish(notes).items()
    if local:
        for file, data in (*others, (FILE, manifest)):
            local.write(file, data)
    names = {shard.file: staging.shard_name(shard.identity) for shard in shards}
    stands = decode_manifest(commit.decide(manifest, dict(others), names))
    return Uploaded(
        _uri(bucket, plan), same(stands, decode_manifest(manifest)), already_there=False, kept=len(kept)
    )


def _compare(bucket: Bucket, plan: DatasetPlan, conversion: Conversion, standing: Manifest) -> Uploaded:
    """Make every shard without sending it, up to the first that is not the one there."""
    there = {entry.file: entry for entry in standing.shards}
    shards = list(plan.shards())
    if {shard.file for shard in shards} != there.keys():
        raise taken(plan.name, plan.version)

    def work(shard: Shard) -> ShardResult:
        note = conversion.stream(shard).drain()
        if note.entry != there[shard.file]:
            raise taken(plan.name, plan.version)
        return note

    notes = conversion.run(work, shards)
    made = decode_manifest(plan.finish(notes)[FILE])
    return Uploaded(_uri(bucket, plan), same(standing, made), already_there=True)


def _uri(bucket: Bucket, plan: DatasetPlan) -> str:
    return gs(bucket.name, dataset(plan.name, plan.version))
