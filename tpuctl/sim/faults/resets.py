"""Resets a connection, as a fault on the way does."""

from __future__ import annotations

import asyncio
import socket
import struct

_NO_LINGER = struct.pack("ii", 1, 0)


def reset(transport: asyncio.BaseTransport | None) -> None:
    """Send a TCP reset to the other end of a connection, and close it."""
    if not isinstance(transport, asyncio.Transport):
        return
    raw = transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
