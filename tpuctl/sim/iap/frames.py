"""Reads and writes the frames of the relay's protocol, version 4: a tag of two bytes, then its content.

Google publishes no description. The sources are its two open clients: gcloud
(`iap_tunnel_websocket_utils.py`) and IAP Desktop (`SshRelayConstants.cs`, https://github.com/GoogleCloudPlatform/iap-desktop).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tpuctl.sim.iap.close_codes import INVALID_DATA, INVALID_TAG, Closing

LARGEST_DATA = 16_384
"""Bytes in a data frame at most."""

CONNECTED, RECONNECTED, DATA, ACK = 0x0001, 0x0002, 0x0004, 0x0007
_TAG = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_POSITION = struct.Struct(">Q")


@dataclass(frozen=True)
class Data:
    """Bytes of the tunnelled connection."""

    content: bytes


@dataclass(frozen=True)
class Ack:
    """How many bytes the client has received since the tunnel was opened."""

    received: int


def connected(session: str) -> bytes:
    """Return the frame that opens a tunnel and names its session."""
    name = session.encode()
    return _TAG.pack(CONNECTED) + _LENGTH.pack(len(name)) + name


def reconnected(received: int) -> bytes:
    """Return the frame that resumes a tunnel: how many bytes of the client's have arrived."""
    return _TAG.pack(RECONNECTED) + _POSITION.pack(received)


def data(content: bytes) -> bytes:
    """Return the frame that carries bytes to the client."""
    return _TAG.pack(DATA) + _LENGTH.pack(len(content)) + content


def ack(received: int) -> bytes:
    """Return the frame that says how many bytes of the client's have arrived."""
    return _TAG.pack(ACK) + _POSITION.pack(received)


class FrameReader:
    """Takes a client's bytes, however they are split into messages, and returns its frames."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, message: bytes) -> Iterator[Data | Ack]:
        """Yield the frames that are complete with this message; raises Closing for what is no frame."""
        self._buffer += message
        while frame := self._next():
            yield frame

    def _next(self) -> Data | Ack | None:
        if len(self._buffer) < _TAG.size:
            return None
        (tag,) = _TAG.unpack_from(self._buffer)
        if tag == ACK:
            content = self._take(_TAG.size, _POSITION.size)
            return None if content is None else Ack(_POSITION.unpack(content)[0])
        if tag != DATA:
            raise Closing(INVALID_TAG)
        if len(self._buffer) < _TAG.size + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, _TAG.size)
        if length > LARGEST_DATA:
            raise Closing(INVALID_DATA)
        content = self._take(_TAG.size + _LENGTH.size, length)
        return None if content is None else Data(content)

    def _take(self, start: int, length: int) -> bytes | None:
        """Remove a frame whose content has this place from the buffer; None while it is not complete."""
        end = start + length
        if len(self._buffer) < end:
            return None
        content, self._buffer = self._buffer[start:end], self._buffer[end:]
        return content
