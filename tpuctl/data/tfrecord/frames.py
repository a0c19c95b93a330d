"""Frames many records of a TFRecord file at once: in one buffer, with all checksums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np

from tpuctl.data.tfrecord.framing import HEAD, MASK_DELTA, OVERHEAD, frame
from tpuctl.data.tfrecord.texts import Bytes, Places, windows

_FOOT = OVERHEAD - HEAD


@dataclass(frozen=True)
class Frames:
    """Records as a TFRecord file holds them, one after the other."""

    data: bytes
    ends: Places
    """Where each record's frame ends in `data`."""

    def __len__(self) -> int:
        return len(self.ends)

    @classmethod
    def of(cls, records: Sequence[bytes]) -> Frames:
        """Frame each record."""
        return cls.joined([frame(record) for record in records])

    @classmethod
    def joined(cls, frames: Sequence[bytes]) -> Frames:
        """Return frames that were made one by one."""
        return cls(b"".join(frames), np.cumsum(np.fromiter(map(len, frames), np.int64, len(frames))))

    def records(self) -> Iterator[bytes]:
        """Yield each record without its frame."""
        start = 0
        for end in self.ends.tolist():
            yield self.data[start + HEAD : end - _FOOT]
            start = end

    def pieces(self, size: int) -> Iterator[tuple[bytes, int]]:
        """Yield the data in pieces of about `size` bytes, whole frames each, with the number of records."""
        first = start = 0
        while first < len(self.ends):
            after = max(int(np.searchsorted(self.ends, start + size, side="right")), first + 1)
            end = int(self.ends[after - 1])
            yield self.data[start:end], after - first
            first, start = after, end


def fill_checksums(data: Bytes, ends: Places) -> Frames:
    """Write the checksum of each record behind it; all else of the frames is in `data` already."""
    content = data.tobytes()
    begins = np.concatenate(([0], ends[:-1])) + HEAD
    bounds = zip(begins.tolist(), (ends - _FOOT).tolist(), strict=True)
    value = google_crc32c.value
    checksums = np.array([value(content[begin:end]) for begin, end in bounds], np.uint64)
    rotated = (checksums >> np.uint64(15)) | (checksums << np.uint64(17))
    masked = (rotated + np.uint64(MASK_DELTA)).astype("<u4")  # modulo 2**32, as the format has it
    windows(data, _FOOT)[ends - _FOOT] = masked.view(f"V{_FOOT}")
    return Frames(data.tobytes(), ends)
