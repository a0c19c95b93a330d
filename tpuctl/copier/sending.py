"""Lists files, and sends those that the other end wants.

One end lists files in lines of JSON, the other answers `go` and a byte for each, `1` for those it wants, and
these follow as a tar archive. There a member with the record NOTE says that the file before it is not whole,
and one with END that all was sent: a stream without it was cut.
"""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from typing import Any, BinaryIO, Callable, Iterable, Iterator, List, Tuple

FILE, FOLDER, LEFT_OUT = "file", "folder", "left out"
NOTE, END = "TPUCTL.left-out", "TPUCTL.end"
"""Records of a pax header."""
PIECE = 1 << 18
"""Bytes that are read or written at once."""
PACKET = 32_000
"""Bytes that are sent at once: SSH takes no more."""
BATCH = 1 << 12
"""Bytes of lines that are sent at once: the other end takes a long silence for the end."""
LONGEST_LINE = 1 << 16
MOST_LISTED = 1 << 27
"""Bytes of all lines: a million files."""
DEEPEST = 200
"""Nested folders: the trees of people and programs are less deep."""
KEPT_MODE = 0o755
"""Bits of a mode that are kept: who else uses a machine must not be able to change the file."""

Item = Tuple[str, Tuple[Any, ...]]
"""A path on this machine, and the line that the other end gets of it."""
Progress = Callable[[int, int], None]
"""Takes the bytes that have arrived, and all of them."""


class StoppedError(Exception):
    """The other end cannot go on; the text says why."""


class Incoming(io.RawIOBase):
    """What comes from the other end; `receive` returns the next bytes, none at the end."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._rest = memoryview(b"")
        self.allowed = MOST_LISTED
        """Bytes that may still come: what bounds the memory."""
        self.has_ended = False

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; raises ValueError for more than are allowed."""
        self._rest = self._rest or memoryview(self._receive())
        self.has_ended = not self._rest
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        self.allowed -= size
        if self.allowed < 0:
            raise ValueError("it sends more than it has announced")
        return size


class Counter:
    """Counts the bytes that have arrived."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = self.total = 0

    def add(self, size: int) -> None:
        """Count bytes."""
        self._done += size
        self._progress(self._done, self.total)


def line(*words: Any) -> bytes:
    """Return a line; the first word says what it is."""
    return json.dumps(words).encode() + b"\n"


def lines(stream: io.BufferedReader[Incoming]) -> Iterator[List[Any]]:
    """Yield the words of each line; raises EOFError, StoppedError, and ValueError or so for what is none."""
    while True:
        text = stream.readline(LONGEST_LINE)
        if not text:
            raise EOFError
        words = json.loads(text)
        if words[0] == "error":
            raise StoppedError(words[1])
        yield words


def top_name(path: str) -> str:
    """Return the name that a copy of a path has; empty for the contents of a folder, as of `folder/.`."""
    last = path.rstrip("/").rpartition("/")[2]
    return "" if last in ("", ".", "..") else last


def list_tree(path: str, name: str, root: str = "", above: Tuple[str, ...] = ()) -> Iterator[Item]:
    """Yield a file, or a folder and what is in it; `name` is that of the top at the other end, or empty.

    Links are followed as long as they stay in the folder.
    """
    real = os.path.realpath(path) if not above or os.path.islink(path) else path
    root = root or real
    reason = ""
    try:
        status = os.stat(real)
        facts = (status.st_mode & KEPT_MODE, status.st_mtime)
        if real in above or os.path.commonpath([real, root]) != root:
            reason = "is a link that leads out of the folder, or around in it"
        elif len(above) > DEEPEST:
            reason = "lies in more than %d folders" % DEEPEST
        elif stat.S_ISREG(status.st_mode):
            yield real, (FILE, name, status.st_size, *facts)
        elif stat.S_ISDIR(status.st_mode):
            names = sorted(os.listdir(real))
            if name:
                yield real, (FOLDER, name, 0, *facts)
            for inner in names:
                inner_name = name + "/" + inner if name else inner
                yield from list_tree(os.path.join(real, inner), inner_name, root, (*above, real))
        else:
            reason = "is no file and no folder"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        yield path, (LEFT_OUT, path, reason)


def send(items: Iterable[Item], stream: io.BufferedReader[Incoming], out: Any, progress: Progress) -> None:
    """Send a list and what is wanted of it; `out.write` takes all bytes. Raises EOFError, StoppedError."""
    entries: List[Item] = []
    batch = b""
    for path, words in items:
        batch += line(*words)
        if words[0] != LEFT_OUT:
            entries.append((path, words))
        if len(batch) > BATCH:
            out.write(batch)
            batch = b""
    out.write(batch + line("end"))
    next(lines(stream))
    wanted = stream.read(len(entries))
    if len(wanted) < len(entries):
        raise EOFError
    counter = Counter(progress)
    counter.total = sum(words[2] for _, words in entries)
    with tarfile.open(
        mode="w|", fileobj=out, bufsize=PACKET, format=tarfile.PAX_FORMAT, encoding="utf-8"
    ) as archive:
        for (path, (kind, name, *facts)), flag in zip(entries, wanted):  # noqa: B905  Python 3.8
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = facts
            if flag != ord("1"):
                counter.add(info.size)
            elif kind == FOLDER:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                _add(archive, path, info, counter)
            archive.members.clear()  # type: ignore[attr-defined]  # it would hold each one
        _add_note(archive, END, "all")


class _Content:
    """Exactly the bytes that a header announces: zeros for those that cannot be read."""

    def __init__(self, stream: BinaryIO, counter: Counter) -> None:
        self._stream, self._counter = stream, counter
        self.reason = ""

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        data = b""
        try:
            data = self._stream.read(size)
        except OSError as error:
            self.reason = error.strerror or str(error)
        self._counter.add(size)
        return data + bytes(size - len(data))


def _add(archive: tarfile.TarFile, path: str, info: tarfile.TarInfo, counter: Counter) -> None:
    """Add a file, and a note if it is not whole."""
    try:
        stream = open(path, "rb")  # noqa: SIM115  what fails here is not what fails below
    except OSError as error:
        info.size, reason = 0, error.strerror or str(error)
        archive.addfile(info)
    else:
        with stream:
            content = _Content(stream, counter)
            archive.addfile(info, content)  # type: ignore[arg-type]
            status = os.fstat(stream.fileno())
        is_same = (status.st_size, status.st_mtime) == (info.size, info.mtime)
        reason = content.reason or ("" if is_same else "it changed while it was copied")
    if reason:
        _add_note(archive, NOTE, reason)


def _add_note(archive: tarfile.TarFile, key: str, text: str) -> None:
    info = tarfile.TarInfo("note")
    info.pax_headers = {key: text}
    archive.addfile(info)
