"""Uploads a dataset: stages its shards, keeps those staged before, and commits all at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.data.output.manifest import FILE, Manifest, decode_manifest
from tpuctl.data.output.shards import Shard, ShardResult
from tpuctl.data.plan import DatasetPlan
from tpuctl.flows.datasets.commit import Commit, require_same, version_taken
from tpuctl.flows.datasets.conversion import Conversion, Report
from tpuctl.flows.datasets.local_copy import LocalCopy
from tpuctl.flows.datasets.staging import Staging
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
    """Complete shards that an earlier upload had staged."""


def requests(bucket: Bucket, plan: DatasetPlan) -> list[HttpRequest]:
    """Return the requests by which `upload` changes the bucket if nothing of this version is there yet.

    Reads are not listed. A PUT stands for one request per 8 MiB of its object.
    """
    rehearsal = bucket.dry_run()
    staging, commit = Staging(rehearsal, plan.ref), Commit(rehearsal, plan.ref)
    shards = list(plan.shards())
    staged = [staging.rehearse(shard.identity) for shard in shards]
    moved = {shard.file: data for shard, (data, _) in zip(shards, staged, strict=True)}
    commit.rehearse(moved, plan.files[len(shards) : -1], [note for _, note in staged])
    return rehearsal.requests


def upload(
    bucket: Bucket, plan: DatasetPlan, report: Report, *, skip_bad: bool = False, keep: Path | None = None
) -> Uploaded:
    """Convert and write the shards that are missing; then the dataset exists, all of it or none.

    `keep` is a folder that gets a copy: each shard is written there before it is sent.
    Raises ConflictError when this version is there with other content or becomes so meanwhile,
    BadRecordsError, UsageError when the source changes, DeadlineError when the service does not answer.
    """
    plan.require_good(skip_bad=skip_bad)
    bucket.check()
    commit = Commit(bucket, plan.ref)
    conversion = Conversion(plan, report, skip_bad=skip_bad)
    standing = commit.complete()
    if standing is not None:
        return _compare(bucket, plan, conversion, decode_manifest(standing, plan.ref))
    staging = Staging(bucket, plan.ref)
    local = LocalCopy(keep, plan.files) if keep else None
    staged_before: list[str] = []

    def stage(shard: Shard) -> ShardResult:
        note = staging.find(shard, skip_bad=skip_bad)
        if note is None:
            return staging.put(shard, lambda: conversion.stream(shard), local)
        staged_before.append(shard.file)
        if local:
            local.copy(conversion.stream(shard), shard.file)
        else:
            conversion.count(shard.records)
        return note

    shards = list(plan.shards())
    *small_files, (_, manifest) = plan.finish(conversion.run(stage, shards)).items()
    if local:
        for file, data in (*small_files, (FILE, manifest)):
            local.write(file, data)
    names = {shard.file: staging.shard_name(shard.identity) for shard in shards}
    converted = decode_manifest(manifest, plan.ref)  # before it is published: all readers will take it
    published = decode_manifest(commit.decide(manifest, dict(small_files), names), plan.ref)
    result = require_same(published, converted)
    return Uploaded(plan.ref.uri(bucket.name), result, already_there=False, kept=len(staged_before))


def _compare(bucket: Bucket, plan: DatasetPlan, conversion: Conversion, standing: Manifest) -> Uploaded:
    """Convert every shard without sending it, up to the first that differs from the one in the bucket."""
    entries = {entry.file: entry for entry in standing.shards}
    shards = list(plan.shards())
    if {shard.file for shard in shards} != entries.keys():
        raise version_taken(plan.ref)

    def compare(shard: Shard) -> ShardResult:
        note = conversion.stream(shard).drain()
        if note.entry != entries[shard.file]:
            raise version_taken(plan.ref)
        return note

    converted = decode_manifest(plan.finish(conversion.run(compare, shards))[FILE])
    return Uploaded(plan.ref.uri(bucket.name), require_same(standing, converted), already_there=True)
