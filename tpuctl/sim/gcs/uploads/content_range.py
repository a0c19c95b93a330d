"""Parses the Content-Range of a request to a resumable upload, and checks it against the upload."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tpuctl.sim.gcs.errors import GcsError, invalid

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(frozen=True)
class ContentRange:
    """Bytes `first` to `last` of `total`; None for both is a status query, None for `total` is unknown."""

    first: int | None = None
    last: int | None = None
    total: int | None = None

    @classmethod
    def parse(cls, header: str) -> ContentRange:
        """Parse a Content-Range header; raises 400."""
        match = _CONTENT_RANGE.fullmatch(header.strip())
        if match is None:
            raise invalid(f"Failed to parse Content-Range header: {header}")
        first, last, total = (int(text) if text and text != "*" else None for text in match.groups())
        if first is not None and last is not None and (last < first or (total is not None and last >= total)):
            raise invalid(f"Failed to parse Content-Range header: {header}")
        return cls(first, last, total)

    @property
    def is_status_query(self) -> bool:
        return self.first is None

    def new_bytes(self, chunks: AsyncIterator[bytes], stored: int) -> AsyncIterator[bytes]:
        """Return the bytes of a body behind the stored ones; raises 503 if bytes between are missing."""
        first = self.first or 0
        if first > stored:
            raise GcsError(
                503,
                "Invalid request. According to the Content-Range header, the upload offset is "
                f"{first} byte(s), which exceeds already uploaded size of {stored} byte(s).",
            )
        length = self.last - first + 1 if self.last is not None else None
        return _window(chunks, stored - first, length)

    def check_total(self, stored: int) -> None:
        """Raise 400 if more bytes are stored than the total."""
        if self.total is not None and stored > self.total:
            raise invalid(f"{stored} bytes were received, more than the {self.total} announced.")


async def _window(chunks: AsyncIterator[bytes], skip: int, length: int | None) -> AsyncIterator[bytes]:
    """Yield the bytes behind the first `skip` and within the first `length`."""
    offset = 0
    async for chunk in chunks:
        start = max(skip - offset, 0)
        end = len(chunk) if length is None else min(length - offset, len(chunk))
        offset += len(chunk)
        if start < end:
            yield chunk[start:end]
