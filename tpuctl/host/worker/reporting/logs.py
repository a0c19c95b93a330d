"""Ships a growing local log to the bucket as numbered, immutable chunks."""

from __future__ import annotations

import re
import sys
import time

from tpuctl.host import gcs, timing
from tpuctl.host.worker.records import LOG_FOLDER, ordered_log_file

CHUNK = 4 * 1024 * 1024
"""Most bytes of one chunk."""
ORDERED_LOG = re.compile(r"[0-9]{8}T[0-9]{6}-([0-9]{4})-([0-9]{6})\.log")
"""Name of a chunk: time, worker, number."""


class LogShipper:
    """Reads a file from the last offset and writes what is new as the next chunk."""

    def __init__(self, bucket: gcs.Bucket, folder: str, worker: int, path: str) -> None:
        """Take the attempt's `folder` in the bucket, and the log's `path` on this host."""
        self._bucket = bucket
        self._folder = folder
        self._worker = worker
        self._name = ""
        self._path = path
        self._offset = 0
        self._pending = b""
        self._began = time.monotonic()
        self._next = 0.0
        self._is_behind = False
        self.chunks = 0

    def due(self) -> bool:
        """Return whether it is time to ship again."""
        return time.monotonic() >= self._next

    def resume(self) -> None:
        """Begin behind what is in the bucket, whoever has shipped it."""
        self._is_behind = True

    def _find_place(self) -> None:
        folder = self._folder + LOG_FOLDER
        offset = 0
        for item in self._bucket.list(folder):
            match = ORDERED_LOG.fullmatch(item.name[len(folder) :])
            if match and int(match[1]) == self._worker:
                self.chunks, offset = max(self.chunks, int(match[2])), offset + item.size
        self._offset, self._is_behind = offset, False

    def ship(self) -> None:
        """Ship everything that is new; a chunk that fails is retried with the same bytes the next time.

        The pause begins with a chunk: what a silent script prints is shipped at the next look.
        """
        if self._is_behind:
            self._find_place()
        before = self.chunks
        with open(self._path, "rb") as stream:
            while True:
                stream.seek(self._offset)
                self._pending = self._pending or stream.read(CHUNK)
                if not self._pending:
                    break
                try:
                    self._put()
                except gcs.RefusedError:
                    self._next = time.monotonic() + timing.HEARTBEAT
                    raise
        if self.chunks > before:
            self._next = time.monotonic() + self._pause()

    def _put(self) -> None:
        """Create the next chunk; a name that another program has taken is left to it."""
        self._name = self._name or self._next_name()  # the same name again after a failure
        while not self._bucket.create(self._name, self._pending, "text/plain; charset=utf-8"):
            text = "another program has written gs://%s/%s: it is skipped"
            say(text % (self._bucket.name, self._name))
            self.chunks += 1
            self._name = self._next_name()
        self.chunks += 1
        self._offset += len(self._pending)
        self._pending, self._name = b"", ""

    def _next_name(self) -> str:
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._bucket.now()))
        return self._folder + ordered_log_file(moment, self._worker, self.chunks + 1)

    def _pause(self) -> float:
        age = time.monotonic() - self._began
        return next(pause for limit, pause in timing.LOG_INTERVALS if age < limit)


PREFIX = "[tpuctl] "


def say(text: str) -> None:
    """Write a line into the supervisor's own log; a full disk ends nothing."""
    try:
        print(PREFIX + text, file=sys.stderr, flush=True)
    except OSError:
        pass
