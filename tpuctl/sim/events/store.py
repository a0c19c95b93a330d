"""Stores events on disk: lines of JSON in two files of bounded size, complete after a kill -9."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tpuctl.sim.events.event import Event
from tpuctl.simulator_folder import rotated

LARGEST = 8 << 20
"""Bytes of a file; then it becomes the older one, and a new one begins."""
TAIL = 64 << 10


class EventStore:
    """Writes events to `path`; a full file is renamed, with `.1` at its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._encoder = msgspec.json.Encoder()
        self._open()

    def write(self, event: Event) -> None:
        """Append one event: it is with the kernel when this returns. A full disk loses it."""
        line = self._encoder.encode(event) + b"\n"
        try:
            os.write(self._file, line)
        except OSError:
            return
        self._size += len(line)
        if self._size > LARGEST:
            os.close(self._file)
            self._path.replace(rotated(self._path))
            self._open()

    def last_number(self) -> int:
        """Return the number of the last event written, also by an earlier process; 0 without any."""
        for path in (self._path, rotated(self._path)):
            for line in reversed(_tail(path)):
                try:
                    return msgspec.json.decode(line, type=Event).number
                except msgspec.DecodeError:
                    continue  # cut by a full disk
        return 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size and _tail(self._path)[-1:] != [b""]:
            self._size += os.write(self._file, b"\n")  # after half a line


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read().split(b"\n")
    except FileNotFoundError:
        return []
