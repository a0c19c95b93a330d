"""Exchanges records and pieces of files over two streams of bytes: a tag, a length, and the bytes of each."""

from __future__ import annotations

import json
import struct
from typing import Any, Callable, Dict

HEAD = struct.Struct(">cI")
RECORD, DATA = b"J", b"D"
LONGEST = 1 << 24
"""Bytes of a frame; a longer one is no frame."""
BUFFER = 1 << 16
"""Bytes that are collected before they are sent."""

Record = Dict[str, Any]


class ProtocolError(Exception):
    """The other end sends what is no frame, or not the one that is due."""


class Frames:
    """Both directions of a connection; `read` returns some bytes, none at the end, and `write` takes all."""

    def __init__(self, read: Callable[[], bytes], write: Callable[[bytes], None]) -> None:
        self._read = read
        self._write = write
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def send(self, record: Record) -> None:
        """Send a record, at the next `flush` at the latest."""
        self._add(RECORD, json.dumps(record).encode())

    def send_data(self, data: bytes) -> None:
        """Send a piece of a file, with what was collected: a large piece is copied once."""
        if len(data) < BUFFER:
            self._add(DATA, data)
            return
        outgoing, self._outgoing = self._outgoing, bytearray()
        self._write(b"".join((outgoing, HEAD.pack(DATA, len(data)), data)))

    def flush(self) -> None:
        """Send what was collected."""
        outgoing, self._outgoing = self._outgoing, bytearray()
        if outgoing:
            self._write(bytes(outgoing))

    def receive(self) -> Record | bytes:
        """Return the next record or piece; raises EOFError at the end of the stream, ProtocolError."""
        tag, length = HEAD.unpack(self._take(HEAD.size))
        if tag not in (RECORD, DATA) or length > LONGEST:
            raise ProtocolError("the other end does not speak our protocol")
        data = self._take(length)
        if tag == DATA:
            return data
        try:
            record = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("the other end sends no record") from error
        if not isinstance(record, dict):
            raise ProtocolError("the other end sends no record")
        return record

    def receive_record(self) -> Record:
        """Return the next record; raises ProtocolError for a piece."""
        record = self.receive()
        if isinstance(record, bytes):
            raise ProtocolError("the other end sends a file before it is due")
        return record

    def _add(self, tag: bytes, data: bytes) -> None:
        self._outgoing += HEAD.pack(tag, len(data))
        self._outgoing += data
        if len(self._outgoing) >= BUFFER:
            self.flush()

    def _take(self, size: int) -> bytes:
        while len(self._incoming) < size:
            data = self._read()
            if not data:
                raise EOFError
            self._incoming += data
        with memoryview(self._incoming) as incoming:
            taken = bytes(incoming[:size])
        del self._incoming[:size]
        return taken
