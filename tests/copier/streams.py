"""Streams of a copy: two ends in this process, and what a host of somebody else sends."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tpuctl.copier.receiving import Receiver, Refuse
from tpuctl.copier.sending import END, NOTE, PIECE, Incoming, Item, line, lines, send
from tpuctl.local.confined_folder import ConfinedFolder


class Pipe:
    """A pipe of the system, of which one end is written."""

    def __init__(self) -> None:
        self._ends = os.pipe()
        self.stream = stream(lambda: os.read(self._ends[0], PIECE))

    def write(self, data: bytes) -> None:
        """Write all bytes; none once the other end has gone."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._ends[1], view) :]

    def close(self, end: int) -> None:
        """Close one end."""
        with suppress(OSError):
            os.close(self._ends[end])


def stream(receive: Callable[[], bytes]) -> io.BufferedReader[Incoming]:
    return io.BufferedReader(Incoming(receive), PIECE)


def played(*pieces: bytes) -> io.BufferedReader[Incoming]:
    """Return a stream that has some bytes, then ends."""
    left = iter(pieces)
    return stream(lambda: next(left, b""))


def copied(
    items: Iterable[Item],
    folder: Path,
    name: str = "",
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Receiver:
    """Copy what is listed into a folder, as two ends with pipes between them."""
    there, back = Pipe(), Pipe()

    def serve() -> None:
        try:
            send(items, back.stream, there, progress)
        finally:
            there.close(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        with ConfinedFolder(folder) as confined:
            receiver = Receiver(confined, name, progress)
            back.write(line("go") + receiver.choose(lines(there.stream)))
            receiver.receive(there.stream)
        return receiver
    finally:
        there.close(0)
        back.close(1)
        thread.join()
        back.close(0)


def entry(name: str, size: Any = 1, mode: Any = 0o644, mtime: Any = 0, kind: str = "file") -> bytes:
    """Return the line of a file."""
    return line(kind, name, size, mode, mtime)


def member(name: str, data: bytes = b"x", **facts: Any) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member of an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for fact, value in facts.items():
        setattr(info, fact, value)
    return info, data


LAST = member("note", b"", pax_headers={END: "all"})


def note(reason: str) -> tuple[tarfile.TarInfo, bytes]:
    """Return what says that the file before it is not whole."""
    return member("note", b"", pax_headers={NOTE: reason})


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return an archive of some members; none that says that all was sent."""
    out = io.BytesIO()
    with tarfile.open(mode="w|", fileobj=out, format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def received(
    folder: Path,
    listed: Sequence[bytes],
    sent: bytes,
    refuse: Refuse = lambda parts: None,
) -> tuple[Receiver, bytes]:
    """Receive what a host sends, and return what is wanted of its list, too."""
    incoming = played(b"".join(listed) + line("end"), sent)
    with ConfinedFolder(folder) as confined:
        receiver = Receiver(confined, "", refuse=refuse)
        flags = receiver.choose(lines(incoming))
        receiver.receive(incoming)
    return receiver, flags
