"""Downloads objects into files: ranges side by side, checksums on the way in, resumed inside a range."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.cloud.storage.exceptions import DataCorruption

from tpuctl import polling
from tpuctl.cloud.media_requests import BrokenOffError, MediaRequests, Read
from tpuctl.object_content import ContentDigest
from tpuctl.polling import Backoff, Sleep

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object, StorageClient

ReportCount = Callable[[int], None]
"""Takes the number of bytes that have arrived since it was called last; what it raises ends the download."""

CONNECTIONS = 8
"""Requests at once, of all downloads from a bucket: fewer than the connections that the client keeps."""
RANGE = 32 << 20
"""Bytes of a large object that one request fetches."""
BLOCK = 1 << 18
"""Bytes that are held for each connection."""
PATIENCE = 120.0
"""Seconds without a byte after which a download fails, as in Google's client."""
BACKOFF = Backoff(first=0.2, longest=10, factor=2)


def silent(size: int) -> None:
    """Report to nobody."""


class ObjectDownloads:
    """Downloads of one bucket's objects, from any thread."""

    def __init__(self, client: StorageClient, bucket: str, *, sleep: Sleep = polling.sleep) -> None:
        self._requests = MediaRequests(client, bucket)
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._sleep = sleep

    def fetch(self, item: Object, path: Path, report: ReportCount = silent) -> None:
        """Fetch one generation of an object, as it is stored, into a file that does not exist yet.

        Raises DataCorruption where its checksum is another, errors of google.api_core and requests, OSError.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            parts = [
                _Part(item, start, min(start + RANGE, item.size), descriptor, report)
                for start in range(0, item.size, RANGE)
            ]
            self._fetch(parts)
        finally:
            os.close(descriptor)
        whole = ContentDigest()
        for part in parts:
            whole.append(part.digest)
        if whole.content() != item.content:
            raise DataCorruption(None, item.name)

    def _fetch(self, parts: list[_Part]) -> None:
        if len(parts) <= 1:
            for part in parts:
                self._complete(part, threading.Event())
            return
        stopped = threading.Event()
        with ThreadPoolExecutor(min(CONNECTIONS, len(parts)), thread_name_prefix="range") as pool:
            try:
                for _ in pool.map(lambda part: self._complete(part, stopped), parts):
                    pass
            finally:
                stopped.set()

    def _complete(self, part: _Part, stopped: threading.Event) -> None:
        """Request a part until all of it is there, each time from where the last answer broke off."""
        pauses, deadline, position = BACKOFF.pauses(), time.monotonic() + PATIENCE, part.position
        while part.position < part.end and not stopped.is_set():
            try:
                with self._slots, self._requests.open(part.item, part.position, part.end) as read:
                    for _ in part.receive(read):
                        if stopped.is_set():
                            return
                if part.position < part.end:
                    raise BrokenOffError
            except BrokenOffError as error:
                if part.position > position:
                    pauses, deadline, position = BACKOFF.pauses(), time.monotonic() + PATIENCE, part.position
                elif time.monotonic() > deadline:
                    raise given_up(error) from error
                self._sleep(next(pauses))


class _Part:
    """A range of an object on its way into its place in a file."""

    def __init__(self, item: Object, start: int, end: int, descriptor: int, report: ReportCount) -> None:
        self.item = item
        self.position = start
        """The first byte that is not there yet."""
        self.end = end
        self.digest = ContentDigest()
        self._descriptor = descriptor
        self._report = report

    def receive(self, read: Read) -> Iterator[None]:
        """Take bytes from `read` until it has no more or the part is complete; yield after each block."""
        while data := read(min(BLOCK, self.end - self.position)):
            self._write(data)
            self.digest.update(data)
            self.position += len(data)
            self._report(len(data))
            yield

    def _write(self, block: bytes) -> None:
        data, position = memoryview(block), self.position
        while data:
            written = os.pwrite(self._descriptor, data, position)
            data, position = data[written:], position + written


def given_up(error: BrokenOffError) -> Exception:
    """Return the error of the service, or that of a connection."""
    cause = error.__cause__
    return cause if isinstance(cause, GoogleAPICallError) else requests.exceptions.ConnectionError(str(cause))
