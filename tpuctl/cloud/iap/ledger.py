"""Counts the bytes of a tunnel, so that a connection that is lost loses and repeats none; pure."""

from __future__ import annotations

from collections import deque

from tpuctl.cloud.iap.endings import Ending
from tpuctl.cloud.iap.frames import MOST_DATA

WINDOW = 4 << 20
"""Bytes that may be on their way unacknowledged. The relay acknowledges when it likes: no small number."""
ACK_EVERY = 2 * MOST_DATA
"""Bytes received after which the relay wants to hear of them, as gcloud does it."""


class Ledger:
    """What was sent and not acknowledged, and what was received, since the tunnel began."""

    def __init__(self) -> None:
        self.received = 0
        self._acknowledged = 0
        self._confirmed = 0
        self._unconfirmed: deque[bytes] = deque()
        self._unconfirmed_size = 0
        self._next = 0
        """Index of the first chunk that this connection has not sent."""
        self._sent = 0
        """Bytes that this connection and those before it have sent, as the relay counts them."""
        self._most_sent = 0

    @property
    def is_full(self) -> bool:
        """Whether to send nothing more until the relay acknowledges."""
        return self._unconfirmed_size >= WINDOW

    @property
    def confirmed(self) -> int:
        """Bytes that the relay has received since the tunnel began."""
        return self._confirmed

    @property
    def has_unsent(self) -> bool:
        """Whether `next_chunk` returns bytes."""
        return self._next < len(self._unconfirmed)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether the relay has so much to acknowledge that it will."""
        return self._unconfirmed_size > ACK_EVERY

    def add(self, data: bytes) -> None:
        """Take bytes that shall be sent, at most as many as a frame holds."""
        self._unconfirmed.append(data)
        self._unconfirmed_size += len(data)

    def next_chunk(self) -> bytes:
        """Return the next bytes to send; call it while there are some."""
        chunk = self._unconfirmed[self._next]
        self._next += 1
        self._sent += len(chunk)
        self._most_sent = max(self._most_sent, self._sent)
        return chunk

    def confirm(self, total: int) -> None:
        """Forget what the relay has received: `total` bytes since the beginning.

        Raises Ending for fewer than it had said before, or more than were sent.
        """
        size = total - self._confirmed
        if size < 0 or total > self._most_sent:
            raise Ending(f"the relay acknowledged {total} bytes, which cannot be")
        self._confirmed = total
        self._unconfirmed_size -= size
        while size and size >= len(self._unconfirmed[0]):
            size -= len(self._unconfirmed.popleft())
            self._next = max(self._next - 1, 0)
        if size:
            self._unconfirmed[0] = self._unconfirmed[0][size:]

    def rewind(self, total: int) -> None:
        """Confirm `total` bytes, and send the others again: for a new connection."""
        self.confirm(total)
        self._next, self._sent = 0, total
        self._acknowledged = self.received  # the request for the new connection has said so

    def receive(self, size: int) -> None:
        """Count bytes that were received."""
        self.received += size

    @property
    def unacknowledged(self) -> int:
        """Bytes that were received and not acknowledged."""
        return self.received - self._acknowledged

    def acknowledge(self) -> int:
        """Return the bytes received since the beginning, which the caller tells the relay."""
        self._acknowledged = self.received
        return self.received
