"""Lists files and sends those that the other end does not have."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any, BinaryIO, Callable, Iterator, Tuple

from tpuctl.copier.frames import Frames, Record

PIECE = 1 << 18
"""Bytes of a file that are read at once."""
PULSE = 1 << 26
"""Bytes that are compared between two signs of life."""
DEEPEST = 200
"""Nested folders: the trees of people and programs are less deep."""
BATCH = 500
"""Entries of a record."""

Item = Tuple[str, Record]
"""A path on this machine, and what the other end is told of it."""
Skip = Callable[[str, str], None]
"""Takes a path that is left out, and the reason."""


def list_tree(top: str, name: str, skip: Skip) -> Iterator[Item]:
    """Yield a file, or a folder and what is in it; `name` is that of the top at the other end, or empty.

    Links are followed as long as they stay in the folder.
    """
    root = os.path.realpath(top)
    yield from _walk(root, [name] if name else [], root, (), skip)


def top_name(path: str) -> str:
    """Return the name that a copy of a path has; empty for the contents of a folder, as of `folder/.`."""
    last = path.rstrip("/").rpartition("/")[2]
    return "" if last in ("", ".", "..") else last


def _walk(path: str, parts: list[str], root: str, above: tuple[str, ...], skip: Skip) -> Iterator[Item]:
    try:
        status = os.stat(path)
        if len(above) > DEEPEST:
            skip(path, "lies in more than %d folders" % DEEPEST)
        elif stat.S_ISDIR(status.st_mode):
            names = sorted(os.listdir(path))
            if parts:
                yield path, _entry("folder", parts, status)
            for name in names:
                yield from _child(os.path.join(path, name), [*parts, name], root, (*above, path), skip)
        elif stat.S_ISREG(status.st_mode):
            yield path, _entry("file", parts, status)
        else:
            skip(path, "is no file and no folder")
    except OSError as error:
        skip(path, error.strerror or str(error))


def _child(path: str, parts: list[str], root: str, above: tuple[str, ...], skip: Skip) -> Iterator[Item]:
    if os.path.islink(path):
        target = os.path.realpath(path)
        if not os.path.exists(target):
            skip(path, "is a link to nothing")
            return
        if target in above or os.path.commonpath([target, root]) != root:
            skip(path, "is a link that leads out of the folder, or around in it")
            return
        path = target
    yield from _walk(path, parts, root, above, skip)


def _entry(kind: str, parts: list[str], status: os.stat_result) -> Record:
    return {
        "kind": kind,
        "path": parts,
        "size": status.st_size if kind == "file" else 0,
        "mode": stat.S_IMODE(status.st_mode) & 0o777,
        "mtime": status.st_mtime_ns,
    }


class Sender:
    """Sends the files of one list; `progress` gets the bytes of each step."""

    def __init__(
        self,
        frames: Frames,
        items: list[Item],
        progress: Callable[[int], None],
        has_answer: Callable[[], bool],
    ) -> None:
        """`has_answer`: whether the other end says something meanwhile, which is that it takes no more."""
        self._frames = frames
        self._items = items
        self._progress = progress
        self._has_answer = has_answer
        self._stopped = False
        self._end: Record = {}

    def send(self) -> Record:
        """Send the list, then what the other end does not have, and return what it says at the end."""
        frames = self._frames
        for start in range(0, len(self._items), BATCH):
            frames.send({"entries": [entry for _, entry in self._items[start : start + BATCH]]})
        frames.send({"listed": True})
        frames.flush()
        had = self._had()
        if self._end:
            return self._end
        for index, (path, entry) in enumerate(self._items):
            if entry["kind"] == "file" and index in had and not self._stopped:
                self._send_file(index, path, *had[index])
        frames.send({"sent": True})
        frames.flush()
        while "done" not in self._end:
            self._end = frames.receive_record()
        return self._end

    def _had(self) -> dict[int, tuple[int, str]]:
        """Return the bytes and their digest that the other end has of each file that it takes."""
        had: dict[int, tuple[int, str]] = {}
        while True:
            record = self._frames.receive_record()
            if "done" in record:  # already: nothing can be written there
                self._end = record
            if "go" in record or "done" in record:
                return had
            for index, size, digest in record["had"]:
                had[index] = size, digest

    def _send_file(self, index: int, path: str, size: int, digest: str) -> None:
        try:
            with open(path, "rb", buffering=0) as stream:
                before = _version(stream)
                self._send_rest(index, stream, size, digest)
                if _version(stream) != before:
                    raise OSError(0, "it changed while it was copied")
        except OSError as error:
            self._frames.send({"failed": error.strerror or str(error), "file": index})
        else:
            self._frames.send({"sum": self._hash.hexdigest(), "file": index})

    def _send_rest(self, index: int, stream: BinaryIO, size: int, digest: str) -> None:
        self._hash = hashlib.sha256()
        if size and not begins_with(stream, self._hash, size, digest, self._pulse):
            size = 0
            self._hash = hashlib.sha256()
            stream.seek(0)
        self._frames.send({"begin": index, "offset": size})
        self._progress(size)
        while True:
            data = stream.read(PIECE)
            if not data or self._is_stopped():
                return
            self._hash.update(data)
            self._frames.send_data(data)
            self._progress(len(data))

    def _pulse(self) -> None:
        """Give a sign of life: the other end takes a long silence for the end."""
        self._frames.send({"alive": True})
        self._frames.flush()

    def _is_stopped(self) -> bool:
        if not self._stopped and self._has_answer():
            self._end = self._frames.receive_record()
            self._stopped = True
        return self._stopped


def _version(stream: BinaryIO) -> tuple[int, int]:
    status = os.fstat(stream.fileno())
    return status.st_size, status.st_mtime_ns


def begins_with(
    stream: BinaryIO, content: Any, size: int, digest: str, pulse: Callable[[], None] = lambda: None
) -> bool:
    """Return whether the first bytes of a file have a digest; `content` is updated with them.

    `pulse` is called now and then.
    """
    left = size
    while left:
        data = stream.read(min(PIECE, left))
        if not data:
            return False
        content.update(data)
        left -= len(data)
        if left % PULSE < PIECE:
            pulse()
    return bool(content.hexdigest() == digest)
