"""Encodes and decodes the frames of the relay's protocol; pure.

All numbers are big-endian. The facts are those of gcloud's `iap_tunnel_websocket_utils.py` and of Google's
IAP Desktop (`SshRelayFormat`, which alone has the long close).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from tpuctl.cloud.iap.endings import Ending

SUBPROTOCOL = "relay.tunnel.cloudproxy.app"
MOST_DATA = 16_384
"""Bytes of a data frame that a client sends, at most."""
MOST_FIELD = 1 << 20
"""Bytes of a field that we read: a longer one is no frame of this protocol."""


@dataclass(frozen=True)
class Connected:
    """The relay has reached the host."""

    tag: ClassVar = 0x0001
    session: bytes
    """Names the tunnel when it is resumed."""


@dataclass(frozen=True)
class Reconnected:
    """The relay resumes the tunnel."""

    tag: ClassVar = 0x0002
    received: int
    """Bytes of ours that it has received since the tunnel began."""


@dataclass(frozen=True)
class Data:
    """Bytes from the host, or for it."""

    tag: ClassVar = 0x0004
    payload: bytes


@dataclass(frozen=True)
class Acknowledged:
    """What the sender has received since the tunnel began."""

    tag: ClassVar = 0x0007
    received: int
    """Bytes."""


@dataclass(frozen=True)
class LongClose:
    """The relay ends the tunnel, with a code and a reason that a WebSocket's close is too short for."""

    tag: ClassVar = 0x000A
    code: int
    reason: bytes


Frame = Connected | Reconnected | Data | Acknowledged | LongClose


def encode(frame: Data | Acknowledged) -> bytes:
    """Return a frame that a client sends."""
    if isinstance(frame, Data):
        return struct.pack(">HI", Data.tag, len(frame.payload)) + frame.payload
    return struct.pack(">HQ", Acknowledged.tag, frame.received)


class FrameDecoder:
    """Turns messages into frames: a message may hold several, or a part of one."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skips_message = False

    def feed(self, data: bytes, *, ends_message: bool = True) -> Iterator[Frame]:
        """Yield the frames that are complete with a message, or with a part of it.

        What follows a tag that is not known is left out, to the end of its message, as gcloud does.
        Raises Ending for what cannot be a frame.
        """
        if not self._skips_message:
            self._buffer += data
            yield from self._complete()
        if ends_message:
            self._skips_message = False

    def _complete(self) -> Iterator[Frame]:
        while len(self._buffer) >= struct.calcsize(">H"):
            (tag,) = struct.unpack_from(">H", self._buffer)
            if tag not in READERS:
                self._buffer.clear()
                self._skips_message = True
                return
            parsed = READERS[tag](self._buffer)
            if parsed is None:
                return
            frame, size = parsed
            del self._buffer[:size]
            yield frame


def _number(kind: type[Reconnected] | type[Acknowledged], buffer: bytearray) -> tuple[Frame, int] | None:
    if len(buffer) < struct.calcsize(">HQ"):
        return None
    return kind(struct.unpack_from(">HQ", buffer)[1]), struct.calcsize(">HQ")


def _field(buffer: bytearray, header: str) -> tuple[bytes, int] | None:
    """Return the bytes whose count is the header's last number, and where they end; None if some miss."""
    start = struct.calcsize(header)
    if len(buffer) < start:
        return None
    end = start + struct.unpack_from(header, buffer)[-1]
    if end - start > MOST_FIELD:
        raise Ending(f"the relay sent a frame of {end - start} bytes")
    return (bytes(buffer[start:end]), end) if len(buffer) >= end else None


def _bytes(kind: type[Connected] | type[Data], buffer: bytearray) -> tuple[Frame, int] | None:
    parsed = _field(buffer, ">HI")
    return (kind(parsed[0]), parsed[1]) if parsed else None


def _long_close(buffer: bytearray) -> tuple[Frame, int] | None:
    parsed = _field(buffer, ">HII")
    return (LongClose(struct.unpack_from(">HI", buffer)[1], parsed[0]), parsed[1]) if parsed else None


READERS: dict[int, Callable[[bytearray], tuple[Frame, int] | None]] = {
    Connected.tag: lambda buffer: _bytes(Connected, buffer),
    Reconnected.tag: lambda buffer: _number(Reconnected, buffer),
    Data.tag: lambda buffer: _bytes(Data, buffer),
    Acknowledged.tag: lambda buffer: _number(Acknowledged, buffer),
    LongClose.tag: _long_close,
}
"""Tag -> what returns the frame at a buffer's start and its size, or None while it is not complete."""
