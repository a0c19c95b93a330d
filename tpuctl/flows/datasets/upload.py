"""Stages shards in the bucket under a name made from their content, until the dataset is committed.

    datasets/NAME/VERSION/staging/IDENTITY.tfrecord     a shard; of ArrayRecord, .array_record
    datasets/NAME/VERSION/staging/IDENTITY.json         its note, written after it: the shard is complete

The identity is that of the shard's records, options and layout. So the next upload can keep the shards of an
interrupted one if it makes the same, and shards of two sources never mix, however many uploads run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_objects import BadObjectError, DecodeError, decode, too_large
from tpuctl.data.output.manifest import (
    FILE,
    LARGEST,
    SUFFIXES,
    FileEntry,
    FileFormat,
    Manifest,
    ShardEntry,
    decode_manifest,
)
from tpuctl.data.output.shards import Shard, ShardResult, ShardStream
from tpuctl.data.plan import DatasetPlan
from tpuctl.datasets import DatasetRef
from tpuctl.errors import ConflictError, DeadlineError, NotFoundError, StateError, TpuctlError
from tpuctl.flows.datasets.conversion import Conversion, Report
from tpuctl.flows.datasets.pull import LocalCopy
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import fanout, values
from tpuctl.polling import NO_PAUSE, retry

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


FOLDER = "staging/"
_SHARD_TYPES: dict[FileFormat, str] = {
    "tfrecord": "application/x-tfrecord",
    "arrayrecord": "application/octet-stream",
}
_ATTEMPTS = 3


class _DamagedError(DeadlineError):
    """The bucket holds other bytes than those that were sent."""


class Staging:
    """The staged shards of one version of a dataset, as the bucket listed them at the start."""

    def __init__(self, bucket: Bucket, ref: DatasetRef, file_format: FileFormat = "tfrecord") -> None:
        self._bucket = bucket
        self._suffix, self._type = SUFFIXES[file_format], _SHARD_TYPES[file_format]
        self._prefix = ref.folder + FOLDER
        self._listed = {item.name: item for item in bucket.objects(self._prefix)}

    def shard_name(self, identity: str) -> str:
        """Return the name of the object that holds a staged shard."""
        return f"{self._prefix}{identity}.{self._suffix}"

    def find(self, shard: Shard, *, skip_bad: bool) -> ShardResult | None:
        """Return the note of this shard if an earlier upload has staged it completely."""
        if not self._listed:
            return None
        staged = self._listed.get(self.shard_name(shard.identity))
        listed_note = self._listed.get(self._note_name(shard.identity))
        if staged is None or listed_note is None:
            return None
        data = self._bucket.find(listed_note.name)
        if data is None:  # another upload of the same dataset has finished, and cleaned up
            return None
        try:
            note = decode(data, ShardResult)
        except DecodeError:
            return None
        return note if note.entry.content == staged.content and (skip_bad or not note.skipped) else None

    def put(self, shard: Shard, stream: Callable[[], ShardStream], local: LocalCopy | None) -> ShardResult:
        """Write a shard, then its note; raises DeadlineError when it arrives damaged each time."""
        return retry(
            lambda: self._stage(shard, stream(), local),
            on=_DamagedError,
            attempts=_ATTEMPTS,
            backoff=NO_PAUSE,
        )

    def _stage(self, shard: Shard, chunks: ShardStream, local: LocalCopy | None) -> ShardResult:
        name = self.shard_name(shard.identity)
        staged = self._listed.get(name)
        if staged is None:
            staged = self._add(name, local.first(chunks, shard.file) if local else chunks)
        note = chunks.drain()
        if staged is not None and staged.content == note.entry.content:
            self._add_note(shard.identity, msgspec.json.encode(note))
            return note
        if staged is not None:
            self._bucket.remove(staged)  # from an upload that was killed, or damaged on the way
            self._listed.pop(name, None)
        raise _DamagedError(
            f"{shard.file} arrived damaged.", hint="Run the same command again: complete shards are kept."
        )

    def rehearse(self, identity: str) -> tuple[Object, Object]:
        """Write a shard and its note without content, for a dry run; return both objects."""
        staged = self._bucket.add(self.shard_name(identity), (), self._type)
        return staged, self._add_note(identity, b"")

    def _add(self, name: str, chunks: Iterable[bytes]) -> Object | None:
        try:
            return self._bucket.add(name, chunks, self._type)
        except ConflictError:  # another upload of the same source was faster
            return self._bucket.stat(name)

    def _add_note(self, identity: str, data: bytes) -> Object:
        return self._bucket.upload(self._note_name(identity), [data], "application/json")

    def _note_name(self, identity: str) -> str:
        return f"{self._prefix}{identity}.json"


COMMIT = "commit.json"
_WIDTH = 8
_TYPES = {".json": "application/json", ".txt": "text/plain"}


class Moves(msgspec.Struct, frozen=True):
    """What a commit consists of besides its manifest."""

    shards: dict[str, str]
    """File name of each shard -> object that holds it, staged."""
    files: dict[str, str]
    """The small files: name -> text."""


class _RemovedError(StateError):
    """The dataset was removed between its commit and its manifest."""


class Commit:
    """The commit of one version of a dataset."""

    def __init__(self, bucket: Bucket, ref: DatasetRef) -> None:
        self._bucket = bucket
        self._ref = ref
        self._folder = ref.folder

    def decide(self, manifest: bytes, files: Mapping[str, bytes], shards: Mapping[str, str]) -> bytes:
        """Publish the dataset of `manifest` unless another is first; return the manifest that stands."""
        moves = Moves(dict(shards), {name: data.decode() for name, data in files.items()})
        self._write_moves(_digest(manifest), msgspec.json.encode(moves))
        return retry(lambda: self._publish(manifest), on=_RemovedError, attempts=_ATTEMPTS, backoff=NO_PAUSE)

    def complete(self) -> bytes | None:
        """Finish what this or another upload decided; return the manifest that stands, None without one.

        Raises StateError when what was decided cannot be finished any more.
        """
        decided = self._bucket.stat(self._folder + COMMIT)
        standing = self._bucket.find(self._folder + FILE)
        if standing is None and decided is not None:
            standing = self._finish(decided)
        if standing is not None:
            self._clean_up(decided)
        return standing

    def rehearse(self, shards: Mapping[str, Object], files: Iterable[str], notes: Iterable[Object]) -> None:
        """Send what `decide` sends where no other upload is first, without content, for a dry run.

        `shards` is file name -> staged object, `files` the names of the small files, `notes` those staged.
        """
        moves = self._write_moves("MANIFEST_SHA256", b"")
        self._bucket.create(self._folder + COMMIT, b"")
        decided = self._bucket.stat(self._folder + COMMIT)
        for file, staged in shards.items():
            self._bucket.move(staged, self._folder + file)
        for file in files:
            self._create_file(file, "")
        if decided is not None:
            self._bucket.copy(decided, self._folder + FILE)
            self._bucket.remove(decided)
        for leftover in (moves, *notes):
            self._bucket.remove(leftover)

    def _publish(self, manifest: bytes) -> bytes:
        try:
            self._bucket.create(self._folder + COMMIT, manifest)
        except ConflictError:
            pass  # another upload has decided: what it began is finished
        standing = self.complete()
        if standing is None:
            raise _RemovedError(
                "The dataset was removed while it was uploaded.", hint="Run the upload again."
            )
        return standing

    def _finish(self, decided: Object) -> bytes | None:
        try:
            if decided.size > LARGEST:
                raise too_large(decided.name, LARGEST)
            manifest = self._bucket.stream(decided).read(decided.size)
            self._put_in_place(manifest)
            self._bucket.copy(decided, self._folder + FILE)
        except (ConflictError, NotFoundError):
            return self._bucket.find(self._folder + FILE)  # finished by another, or removed
        return manifest

    def _put_in_place(self, data: bytes) -> None:
        manifest = decode_manifest(data, self._ref, COMMIT)
        moves = self._read_moves(self._moves_name(_digest(data)))
        staged = {item.name: item for item in self._bucket.objects(self._folder + FOLDER)}

        def place(entry: ShardEntry) -> None:
            self._place_shard(entry, staged.get(moves.shards.get(entry.file, "")))

        values(fanout(place, manifest.shards, width=_WIDTH))
        for name, entry in manifest.files.items():
            self._place_file(name, entry, moves.files.get(name))

    def _read_moves(self, name: str) -> Moves:
        recorded = self._bucket.find(name)
        try:
            return Moves({}, {}) if recorded is None else decode(recorded, Moves)
        except DecodeError as error:
            hint = f"Remove what is left of the upload: tpuctl data rm {self._ref}"
            raise BadObjectError(name, f"does not say how to finish an upload: {error}", hint=hint) from error

    def _place_shard(self, entry: ShardEntry, staged: Object | None) -> None:
        with self._lost_on_conflict(entry.file):
            retry(
                lambda: self._move_shard(entry, staged),
                on=ConflictError,
                attempts=_ATTEMPTS,
                backoff=NO_PAUSE,
            )

    def _move_shard(self, entry: ShardEntry, staged: Object | None) -> None:
        """Raises ConflictError when another object had the name, which is removed by then."""
        name = self._folder + entry.file
        if staged is not None:
            try:
                self._bucket.move(staged, name)
                return
            except ConflictError:
                pass  # the name is taken: by this shard already, or by what a removed dataset left
            except NotFoundError:
                staged = None  # another upload that finishes the same has moved it
        existing = self._bucket.stat(name)
        if existing is not None and existing.content == entry.content:
            return
        if existing is None or staged is None:
            raise self._lost(entry.file)
        self._bucket.remove(existing)
        raise ConflictError(f"{name} was another object.")

    def _place_file(self, file: str, entry: FileEntry, text: str | None) -> None:
        with self._lost_on_conflict(file):
            retry(
                lambda: self._write_file(file, entry, text),
                on=ConflictError,
                attempts=_ATTEMPTS,
                backoff=NO_PAUSE,
            )

    def _write_file(self, file: str, entry: FileEntry, text: str | None) -> None:
        """Raises ConflictError when another upload writes the file at the same time."""
        existing = self._bucket.stat(self._folder + file)
        if existing is not None and existing.content == entry.content:
            return
        if text is None:
            raise self._lost(file)
        if existing is not None:
            self._bucket.remove(existing)
        self._create_file(file, text)

    def _create_file(self, file: str, text: str) -> None:
        content_type = _TYPES.get("." + file.rpartition(".")[2], "application/octet-stream")
        self._bucket.create(self._folder + file, text.encode(), content_type)

    def _clean_up(self, decided: Object | None) -> None:
        """Remove what is no longer needed; where that is not allowed, it does no harm."""
        staged = self._bucket.objects(self._folder + FOLDER)
        fanout(self._bucket.remove, [*([decided] if decided else []), *staged], width=_WIDTH)

    def _write_moves(self, digest: str, data: bytes) -> Object:
        return self._bucket.upload(self._moves_name(digest), [data], "application/json")

    def _moves_name(self, digest: str) -> str:
        return f"{self._folder}{FOLDER}{digest}.moves.json"

    @contextmanager
    def _lost_on_conflict(self, file: str) -> Iterator[None]:
        try:
            yield
        except ConflictError as error:
            raise self._lost(file) from error

    def _lost(self, file: str) -> TpuctlError:
        return StateError(
            f"An upload that was not finished has lost {file}.",
            hint=f"Remove what is left of it: tpuctl data rm {self._ref}",
            file=file,
        )


def require_same(standing: Manifest, converted: Manifest) -> Manifest:
    """Return the manifest that stands if it is the one just made; raises ConflictError."""
    if standing.digest != converted.digest:
        raise version_taken(converted.ref)
    return standing


def version_taken(ref: DatasetRef) -> ConflictError:
    """Return the error for a version that has other content."""
    return ConflictError(
        f"Version {ref.version} of the dataset '{ref.name}' exists with other content.",
        hint="Give the new one another number with --version.",
    )


def _digest(manifest: bytes) -> str:
    return sha256(manifest).hexdigest()


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
    staging, commit = Staging(rehearsal, plan.ref, plan.file_format), Commit(rehearsal, plan.ref)
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
    staging = Staging(bucket, plan.ref, plan.file_format)
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
