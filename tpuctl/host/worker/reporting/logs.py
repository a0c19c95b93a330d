"""Ships a growing local log to the bucket as numbered, immutable chunks."""

from __future__ import annotations

import sys
import time
from itertools import takewhile
from typing import List, NamedTuple, Sequence

from tpuctl.host import gcs, timing
from tpuctl.host.worker.records import (
    LOG_FOLDER,
    ORDERED_LOG,
    PIECES,
    Piece,
    ordered_log_file,
    pieces_text,
    read_pieces,
)

CHUNK = 4 * 1024 * 1024
"""Most bytes of one chunk."""
TEXT = "text/plain; charset=utf-8"
SET = 32
"""Chunks that are joined into one object: the most that the service takes at once."""
FEW = 8
"""Chunks of a whole log that stay as they are."""


class _Stored(NamedTuple):
    """An object of a worker's log."""

    item: gcs.Item
    number: int
    """Of its first chunk."""
    pieces: List[Piece]
    """The chunks that it has: one, unless some were joined."""
    is_left: bool
    """Whether another object has its chunk, too: it was to be deleted."""


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
        self._joined = 0
        """How many chunks there were when some were joined last."""
        self._start = ""
        """The last object that they were joined into."""
        self._may_join = True
        self.chunks = 0

    def due(self) -> bool:
        """Return whether it is time to ship again."""
        return time.monotonic() >= self._next

    def resume(self) -> None:
        """Begin behind what is in the bucket, whoever has shipped it."""
        self._is_behind = True

    def _find_place(self) -> None:
        stored = [one for one in self._stored() if not one.is_left]
        self.chunks = max([self.chunks, *(one.number + len(one.pieces) - 1 for one in stored)])
        self._offset, self._is_behind = sum(one.item.size for one in stored), False

    def _stored(self) -> List[_Stored]:
        """Return this worker's objects from the last joined one on, in the order of the log."""
        folder = self._folder + LOG_FOLDER
        glob = "%s*-%04d-*.log" % (folder, self._worker)
        found: List[_Stored] = []
        for item in self._bucket.list(folder, glob, start=self._start):
            file = item.name[len(folder) :]
            match = ORDERED_LOG.fullmatch(file)
            if match:
                alone = Piece(file, item.generation, item.size, item.updated)
                pieces = read_pieces(item.metadata.get(PIECES, ""), file, item.size) or [alone]
                found.append(_Stored(item, int(match[2]), pieces, False))
        joined = {piece.file for one in found for piece in one.pieces[1:]}
        found = [one._replace(is_left=one.pieces[0].file in joined) for one in found]
        return sorted(found, key=lambda one: one.number)

    def is_full(self) -> bool:
        """Return whether a set of chunks can be joined while as many newer ones stay."""
        return self._may_join and self.chunks >= self._joined + 2 * SET

    def join(self, is_over: bool = False) -> None:
        """Join chunks into objects of SET each: full sets without the newest, or all once the log is over.

        A joined object says which chunks it has before one of them is deleted: readers read each once,
        wherever this ends, and the next call deletes the rest. What the bucket refuses is not tried again.
        """
        if not self._may_join:
            return
        self._joined = self.chunks - SET
        try:
            stored = self._stored()
            for one in stored:
                if one.is_left:
                    self._bucket.delete(one.item)
            single = [one for one in stored if len(one.pieces) == 1 and not one.is_left]
            is_rest = is_over and (len(single) >= FEW or len(single) < len(stored))
            least = 2 if is_rest else 2 * SET
            while len(single) >= least:
                row = _row(single)
                self._join(row)
                single = single[len(row) :]
        except gcs.RefusedError:
            self._may_join = False
            raise

    def _join(self, row: Sequence[_Stored]) -> None:
        """Make one object of chunks without a gap, over the first, and delete the others."""
        self._start, self._joined = row[0].item.name, row[-1].number
        if len(row) > 1:
            said = pieces_text([one.pieces[0] for one in row])
            self._bucket.compose([one.item for one in row], TEXT, {PIECES: said})
            for one in row[1:]:
                self._bucket.delete(one.item)

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
        while not self._bucket.create(self._name, self._pending, TEXT):
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


def _row(single: Sequence[_Stored]) -> Sequence[_Stored]:
    """Return the first chunks, at most SET, without those after a gap in their numbers."""
    first = single[0].number
    return [one for _, one in takewhile(lambda at: at[1].number == first + at[0], enumerate(single[:SET]))]


PREFIX = "[tpuctl] "


def say(text: str) -> None:
    """Write a line into the supervisor's own log; a full disk ends nothing."""
    try:
        print(PREFIX + text, file=sys.stderr, flush=True)
    except OSError:
        pass
