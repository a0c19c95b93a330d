"""The other end of a copy: what it sends is known beforehand, and what it gets is kept."""

from __future__ import annotations

from typing import Any

from tpuctl.copier.frames import Frames


class ScriptedEnd:
    """An end that sends some records and pieces of files, whatever it gets."""

    def __init__(self, *items: Any) -> None:
        self._incoming = encoded(*items)
        self._outgoing = bytearray()
        self.frames = Frames(self._take, self._outgoing.extend)

    def _take(self) -> bytes:
        data, self._incoming = self._incoming, b""
        return data

    @property
    def got(self) -> list[Any]:
        """The records and pieces that it got so far, in their order."""
        return decoded(bytes(self._outgoing))


def encoded(*items: Any) -> bytes:
    """Return some records and pieces of files as they are sent."""
    sent = bytearray()
    frames = Frames(lambda: b"", sent.extend)
    for item in items:
        frames.send_data(item) if isinstance(item, bytes) else frames.send(item)
    frames.flush()
    return bytes(sent)


def decoded(data: bytes) -> list[Any]:
    """Return the records and pieces that some bytes are."""
    pieces = [data]
    frames = Frames(lambda: pieces.pop() if pieces else b"", lambda data: None)
    items = []
    while True:
        try:
            items.append(frames.receive())
        except EOFError:
            return items
