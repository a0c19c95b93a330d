"""Copies bytes between two descriptors and a stream to a host, as OpenSSH wants of a proxy command."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import ByteStream

CHUNK = 1 << 16
PATIENCE = 10.0
"""Seconds that the host has to answer after the end of the source."""


def relay(stream: ByteStream, source: int, sink: int) -> None:
    """Copy both ways until the host closes the stream, or the sink's reader has gone; closes the stream.

    The end of the source is passed on; a host that says nothing afterwards is left. Raises OSError when the
    stream is lost.
    """
    stream.settimeout(PATIENCE)
    source_ended = threading.Event()
    sender = threading.Thread(target=_send_all, args=(source, stream, source_ended), daemon=True)
    sender.start()
    try:
        while data := _receive(stream, source_ended):
            _write(sink, data)
    except BrokenPipeError:
        pass
    finally:
        stream.close()


def _receive(stream: ByteStream, source_ended: threading.Event) -> bytes:
    while True:
        try:
            return stream.recv(CHUNK)
        except TimeoutError:
            if source_ended.is_set():
                return b""


def _send_all(source: int, stream: ByteStream, source_ended: threading.Event) -> None:
    with suppress(OSError):  # a stream that is lost ends the other direction, too
        while data := os.read(source, CHUNK):
            _send(stream, data)
        stream.shutdown(socket.SHUT_WR)
    source_ended.set()


def _send(stream: ByteStream, data: bytes) -> None:
    while data:
        with suppress(TimeoutError):  # nothing was sent: the host reads slowly
            data = data[stream.send(data) :]


def _write(sink: int, data: bytes) -> None:
    while data:
        data = data[os.write(sink, data) :]
