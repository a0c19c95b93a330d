"""Verifies a shard: framing, checksums, and the size in the manifest."""

from __future__ import annotations

from tpuctl.data.output.manifest import ShardEntry
from tpuctl.data.tfrecord.framing import Readable, read_records
from tpuctl.errors import UsageError
from tpuctl.object_content import ContentDigest


def verify_shard(stream: Readable, entry: ShardEntry) -> None:
    """Read a shard to its end; raises UsageError at the first damage or difference, with the file's name."""
    tally = _Tally(stream)
    try:
        records = sum(1 for _record in read_records(tally))
    except UsageError as error:
        facts = {**error.facts, "file": entry.file}
        raise UsageError(f"{entry.file}: {error.message}", hint=error.hint, **facts) from error
    if records != entry.records:
        raise _differs(entry.file, "records", records, entry.records)
    if difference := tally.digest.content().difference(entry.content):
        raise _differs(entry.file, *difference)


def _differs(file: str, field: str, actual: object, expected: object) -> UsageError:
    return UsageError(
        f"{file} has {field} {actual}, and its manifest says {expected}.",
        hint="Upload the dataset again under a new version.",
        file=file,
    )


class _Tally:
    """A stream that computes size and checksum of the bytes read from it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.digest = ContentDigest()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data
