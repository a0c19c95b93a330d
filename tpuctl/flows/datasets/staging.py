"""Stages shards in the bucket under a name made from their content, until the dataset is committed.

    datasets/NAME/VERSION/staging/IDENTITY.tfrecord     a shard
    datasets/NAME/VERSION/staging/IDENTITY.json         its note, written after it: the shard is complete

The identity is that of the shard's records, options and layout. So the next upload can keep the shards of an
interrupted one if it makes the same, and shards of two sources never mix, however many uploads run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_objects.decoding import DecodeError, decode
from tpuctl.data.output.shards import Shard, ShardResult, ShardStream
from tpuctl.datasets import DatasetRef
from tpuctl.errors import ConflictError, DeadlineError
from tpuctl.flows.datasets.local_copy import LocalCopy
from tpuctl.polling import NO_PAUSE, retry

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

FOLDER = "staging/"
_SHARD_TYPE = "application/x-tfrecord"
_ATTEMPTS = 3


class _DamagedError(DeadlineError):
    """The bucket holds other bytes than those that were sent."""


class Staging:
    """The staged shards of one version of a dataset, as the bucket listed them at the start."""

    def __init__(self, bucket: Bucket, ref: DatasetRef) -> None:
        self._bucket = bucket
        self._prefix = ref.folder + FOLDER
        self._listed = {item.name: item for item in bucket.objects(self._prefix)}

    def shard_name(self, identity: str) -> str:
        """Return the name of the object that holds a staged shard."""
        return f"{self._prefix}{identity}.tfrecord"

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
            on=_DamagedError, attempts=_ATTEMPTS, backoff=NO_PAUSE,
        )  # fmt: skip

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
        staged = self._bucket.add(self.shard_name(identity), (), _SHARD_TYPE)
        return staged, self._add_note(identity, b"")

    def _add(self, name: str, chunks: Iterable[bytes]) -> Object | None:
        try:
            return self._bucket.add(name, chunks, _SHARD_TYPE)
        except ConflictError:  # another upload of the same source was faster
            return self._bucket.stat(name)

    def _add_note(self, identity: str, data: bytes) -> Object:
        return self._bucket.upload(self._note_name(identity), [data], "application/json")

    def _note_name(self, identity: str) -> str:
        return f"{self._prefix}{identity}.json"
