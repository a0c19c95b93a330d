"""Whether a shard is what its manifest says."""

from __future__ import annotations

import google_crc32c

from tpuctl.data.output.manifest import ShardEntry, checksum_text
from tpuctl.data.tfrecord.framing import Readable, read_records
from tpuctl.errors import UsageError


def verify_shard(stream: Readable, entry: ShardEntry) -> None:
    """Read a shard to its end; raises UsageError at the first damage or difference, with the file's name."""
    tally = _Tally(stream)
    try:
        records = sum(1 for _record in read_records(tally))
    except UsageError as error:
        facts = {**error.facts, "file": entry.file}
        raise UsageError(f"{entry.file}: {error.message}", hint=error.hint, **facts) from error
    found = {"records": records, "bytes": tally.size, "crc32c": checksum_text(tally.crc32c)}
    for what, value in found.items():
        wanted = getattr(entry, what)
        if value != wanted:
            raise UsageError(
                f"{entry.file} has {what} {value}, and its manifest says {wanted}.",
                hint="Upload the dataset again under a new version.",
                file=entry.file,
            )


class _Tally:
    """A stream that counts and sums up what is read from it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.size = 0
        self.crc32c = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.size += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        return data
