"""Shards on their way: in the bucket under a name that says what they hold, until the dataset is committed.

    datasets/NAME/VERSION/staging/IDENTITY.tfrecord     a shard
    datasets/NAME/VERSION/staging/IDENTITY.json         its note, written after it: the shard is whole

The identity is that of the shard's records, options and layout. So what one upload has left behind can be
kept by the next one that makes the same shard, and shards of two sources never mix, however many uploads run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_layout import dataset
from tpuctl.data.output.shards import Shard, ShardResult, ShardStream
from tpuctl.errors import ConflictError, DeadlineError
from tpuctl.flows.datasets.local_copy import LocalCopy

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

FOLDER = "staging/"
_TRIES = 3


class Staging:
    """The staged shards of one version of a dataset, as they were when this was made."""

    def __init__(self, bucket: Bucket, name: str, version: str) -> None:
        self._bucket = bucket
        self._prefix = dataset(name, version) + FOLDER
        self._there = {one.name: one for one in bucket.objects(self._prefix)}

    def shard_name(self, identity: str) -> str:
        """Return the name of the object that holds a staged shard."""
        return f"{self._prefix}{identity}.tfrecord"

    def kept(self, shard: Shard, *, skip_bad: bool) -> ShardResult | None:
        """Return the note of this shard if it is there, whole, from an upload before."""
        if not self._there:
            return None
        staged, note = (
            self._there.get(self.shard_name(shard.identity)),
            self._there.get(self._note_name(shard)),
        )
        if staged is None or note is None:
            return None
        said = self._bucket.find(note.name)
        if said is None:  # another upload of the same is through, and has cleared up
            return None
        try:
            found = msgspec.json.decode(said, type=ShardResult)
        except msgspec.DecodeError:
            return None
        return found if found.entry.content == staged.content and (skip_bad or not found.skipped) else None

    def put(self, shard: Shard, start: Callable[[], ShardStream], local: LocalCopy | None) -> ShardResult:
        """Write a shard, then its note; raises DeadlineError when it arrived damaged."""
        name = self.shard_name(shard.identity)
        staged, stream = self._there.get(name), start()
        for _ in range(_TRIES):
            if staged is None:
                staged = self._add(name, local.first(stream, shard.file) if local else stream)
            note = stream.drain()
            if staged is not None and staged.content == note.entry.content:
                self._bucket.upload(self._note_name(shard), [msgspec.json.encode(note)], "application/json")
                return note
            if staged is not None:
                self._bucket.remove(staged)  # what a kill, or a bad line, has left
            staged, stream = None, start()
        raise DeadlineError(
            f"{shard.file} arrived damaged.", hint="Run the same command again: whole shards are kept."
        )

    def _add(self, name: str, chunks: Iterable[bytes]) -> Object | None:
        try:
            return self._bucket.add(name, chunks, "application/x-tfrecord")
        except ConflictError:  # another upload of the same source was faster
            return self._bucket.stat(name)

    def _note_name(self, shard: Shard) -> str:
        return f"{self._prefix}{shard.identity}.json"
