"""Carries bytes between a socket pair and the relay, across connections that are lost in between."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

from tpuctl.cloud.iap.frames import (
    MOST_DATA,
    REAUTHENTICATE,
    Acknowledged,
    Connected,
    Data,
    Ending,
    Frame,
    FrameDecoder,
    Interruption,
    LongClose,
    Reconnected,
    close,
    encode,
    explain,
)
from tpuctl.cloud.iap.relay import Instance, Relay
from tpuctl.cloud.iap.websocket import WebSocket
from tpuctl.errors import TpuctlError, cause
from tpuctl.polling import Backoff

WINDOW = 4 << 20
"""Bytes that may be on their way unacknowledged. The relay acknowledges when it likes: no small number."""
ACK_EVERY = 2 * MOST_DATA
"""Bytes received after which the relay wants to hear of them, as gcloud does it."""
MOST_PENDING = 1 << 18
"""Bytes that wait for the reader of the socket, or for the network, before no more are taken."""
LONGEST_PAUSE = 15.0
"""Seconds between two attempts to resume a tunnel."""
READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class TunnelSocket(socket.socket):
    """A connection to a worker: a socket whose `recv` raises the reason when the tunnel has failed."""

    def __init__(self, descriptor: int, tunnel: Tunnel) -> None:
        super().__init__(fileno=descriptor)
        self._tunnel = tunnel

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return bytes, none at the end; raises HostError or ConfigError if the tunnel has failed."""
        try:
            data = super().recv(size, flags)
        except ConnectionResetError:  # the tunnel ended with bytes that it had not taken
            data = b""
        if not data and size and self._tunnel.failure:
            raise self._tunnel.failure
        return data

    def close(self) -> None:
        """Close the connection; the tunnel sends what it has, and ends."""
        self._tunnel.abandon()
        super().close()


def open_tunnel(relay: Relay, instance: Instance, subject: str) -> TunnelSocket:
    """Return a connection to a port of an instance; `subject` names it in errors: "Worker 0 of 'n1'".

    Raises HostError, and ConfigError if the user may not use the tunnel.
    """
    tunnel = Tunnel(relay, instance, subject)
    return tunnel.open()


class Tunnel:
    """One tunnel, in a thread of its own: connections to the relay come and go, the tunnel stays."""

    def __init__(self, relay: Relay, instance: Instance, subject: str) -> None:
        self.failure: TpuctlError | None = None
        self._relay = relay
        self._instance = instance
        self._subject = subject
        self._patience = relay.patience
        self._abandoned = threading.Event()
        self._ledger = Ledger()
        self._incoming = bytearray()
        self._session = b""
        self._has_greeting = False
        self._local_ended = False
        self._last_heard = self._next_ping = self._adopted = self._deadline = 0.0
        self._carried: tuple[int, int] | None = None
        """Bytes received and confirmed when a connection was lost for which the time to resume began."""
        self._pauses: Iterator[float]
        self._connection: WebSocket
        self._decoder: FrameDecoder
        self._local: socket.socket

    def open(self) -> TunnelSocket:
        """Connect to the host and return the near end; raises HostError or ConfigError."""
        try:
            self._adopt(self._relay.begin(self._instance))
        except Ending as ending:
            raise explain(ending, self._subject, self._instance) from cause(ending)
        try:
            near, self._local = socket.socketpair()
        except OSError:
            self._connection.close()
            raise
        self._local.setblocking(False)
        threading.Thread(target=self._run, name=f"iap {self._instance.name}", daemon=True).start()
        return TunnelSocket(near.detach(), self)

    def abandon(self) -> None:
        """Say that nobody uses the near end any more."""
        self._abandoned.set()

    def _run(self) -> None:
        try:
            self._carry()
        except Ending as ending:
            if not ending.is_normal:
                self.failure = explain(ending, self._subject, self._instance)
        except TpuctlError as error:  # such as credentials that cannot be renewed
            self.failure = error
        except OSError:
            pass  # the near end is closed
        finally:
            self._connection.close()
            self._deliver_all()
            self._local.close()

    def _carry(self) -> None:
        """Carry bytes until either side has ended; raises the Ending of the relay's side."""
        while not self._has_sent_all:
            try:
                self._step()
            except Interruption as interruption:
                self._resume(interruption)
        with suppress(Ending):
            self._say_goodbye()

    @property
    def _has_sent_all(self) -> bool:
        """Whether the near end was closed, and all that it sent is with the relay.

        A relay that has read our goodbye may fail to acknowledge, and drop what it has not carried yet.
        """
        is_quiet = time.monotonic() - self._last_heard >= self._patience.linger
        is_sent = not (self._ledger.has_unsent or self._connection.output_size)
        return self._local_ended and is_sent and (is_quiet or not self._ledger.awaits_confirmation)

    def _step(self) -> None:
        """Wait until something can be read or written, and do that."""
        self._send()
        near, relay = self._poll()
        if relay:
            for frame in self._frames():
                self._handle(frame)
        if near & READABLE:
            self._take()
        if self._incoming:
            self._deliver()
        self._keep_alive()

    def _poll(self) -> tuple[int, int]:
        """Return the events of the near end and of the relay."""
        poll = select.poll()
        takes = not (self._local_ended or self._ledger.is_full)
        near = (select.POLLIN if takes else 0) | (select.POLLOUT if self._incoming else 0)
        relay = (select.POLLIN if self._has_room else 0) | (
            select.POLLOUT if self._connection.output_size else 0
        )
        if near:
            poll.register(self._local, near)
        if relay:
            poll.register(self._connection, relay)
        ready = self._has_room and self._connection.has_input
        events = dict(poll.poll(0 if ready else self._timeout() * 1000))
        readable = events.get(self._connection.fileno(), 0) & READABLE
        return events.get(self._local.fileno(), 0), int((readable and self._has_room) or ready)

    @property
    def _has_room(self) -> bool:
        return len(self._incoming) < MOST_PENDING

    def _timeout(self) -> float:
        """Seconds until something has to be said to the relay."""
        moment = min(self._next_ping, self._last_heard + self._patience.silence)
        if self._ledger.unacknowledged:
            moment = min(moment, self._last_heard + self._patience.acknowledge)
        return max(moment - time.monotonic(), 0.0)

    def _take(self) -> None:
        """Read what the user of the near end has sent."""
        try:
            data = self._local.recv(MOST_DATA)
        except BlockingIOError:
            return
        except ConnectionResetError:  # it was closed with bytes unread
            data = b""
        if data:
            self._ledger.add(data)
        else:
            self._local_ended = True

    def _deliver(self) -> None:
        """Write to the near end what it takes; what nobody reads any more is dropped."""
        try:
            del self._incoming[: self._local.send(self._incoming)]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self._incoming.clear()
            self._local_ended = True

    def _deliver_all(self) -> None:
        """Write all that has arrived, also to a slow reader."""
        self._local.setblocking(True)
        while self._incoming and not self._abandoned.is_set():
            self._deliver()

    def _send(self) -> None:
        """Write what is to be sent, as far as the network takes it."""
        while self._ledger.has_unsent and self._connection.output_size < MOST_PENDING:
            self._connection.send(encode(Data(self._ledger.next_chunk())))
        is_quiet = time.monotonic() - self._last_heard >= self._patience.acknowledge
        if self._ledger.unacknowledged > (0 if is_quiet else ACK_EVERY):
            self._connection.send(encode(Acknowledged(self._ledger.acknowledge())))
        self._connection.flush()

    def _keep_alive(self) -> None:
        """Ask a silent relay whether it is there; raises Interruption when it does not answer."""
        now = time.monotonic()
        if not self._has_room:  # it is we who do not listen
            self._last_heard = now
        if now - self._last_heard >= self._patience.silence:
            raise Interruption(f"the relay did not answer for {now - self._last_heard:.0f} s")
        if now >= self._next_ping:
            self._connection.ping()
            self._next_ping = now + self._patience.ping

    def _frames(self) -> Iterator[Frame]:
        self._last_heard = time.monotonic()
        self._next_ping = self._last_heard + self._patience.ping
        for data, ends_message in self._connection.receive():
            yield from self._decoder.feed(data, ends_message=ends_message)

    def _handle(self, frame: Frame) -> None:
        """Act on a frame; raises Ending for one that does not belong there."""
        match frame:
            case LongClose(code, reason):
                raise close(code, reason.decode(errors="replace"))
            case Connected(session) if not self._has_greeting and not self._session:
                self._session, self._has_greeting = session, True
            case Reconnected(received) if not self._has_greeting and self._session:
                self._ledger.rewind(received)
                self._has_greeting = True
            case Data(payload) if self._has_greeting:
                self._ledger.receive(len(payload))
                self._incoming += payload
            case Acknowledged(received) if self._has_greeting:
                self._ledger.confirm(received)
            case _:
                raise Ending(f"the relay sent {type(frame).__name__} at the wrong moment")

    def _adopt(self, connection: WebSocket) -> None:
        """Use a new connection, once the relay has greeted on it; raises Ending."""
        self._connection, self._decoder, self._has_greeting = connection, FrameDecoder(), False
        self._last_heard = time.monotonic()
        self._next_ping = self._last_heard + self._patience.ping
        deadline = self._last_heard + self._patience.connect
        try:
            while not self._has_greeting:
                for frame in self._frames():
                    self._handle(frame)
                if not self._has_greeting:
                    _await_input(connection, deadline)
        except BaseException:
            connection.close()
            raise
        self._adopted = time.monotonic()

    def _resume(self, interruption: Interruption) -> None:
        """Go on with a new connection; raises Ending when that cannot be, or took too long.

        A connection that was lost at once and carried nothing counts as an attempt that failed.
        """
        self._connection.close()
        loss = interruption
        pause = 0.0 if self._is_new_loss() else next(self._pauses)
        while not self._abandoned.wait(pause):
            if pause and time.monotonic() >= self._deadline:
                raise Ending(f"the connection was lost, and then: {loss.reason}", loss.code) from loss
            renew = loss.code == REAUTHENTICATE
            try:
                return self._adopt(
                    self._relay.resume(self._instance, self._session, self._ledger.received, renew=renew)
                )
            except Interruption as failure:
                loss = failure
            pause = min(next(self._pauses), max(self._deadline - time.monotonic(), 0.001))
        raise interruption

    def _is_new_loss(self) -> bool:
        """Whether the lost connection carried bytes or lasted: then the time to resume begins anew."""
        carried = (self._ledger.received, self._ledger.confirmed)
        now = time.monotonic()
        is_steady = now - self._adopted >= self._patience.steady
        if self._carried == carried and not is_steady:
            return False
        self._carried, self._deadline = carried, now + self._patience.resume
        self._pauses = Backoff(first=self._patience.pause, longest=LONGEST_PAUSE).pauses()
        return True

    def _say_goodbye(self) -> None:
        """Close the connection in a way that leaves the relay time to read everything; ends by an Ending."""
        self._connection.say_goodbye()
        self._last_heard = time.monotonic()
        while True:
            self._connection.flush()
            _await_input(self._connection, self._last_heard + self._patience.linger)
            for frame in self._frames():
                self._handle(frame)
                self._deliver_some()

    def _deliver_some(self) -> None:
        """Write to the near end, which may still read; wait for it once much has arrived."""
        while self._incoming:
            self._deliver()
            if self._has_room:
                return
            poll = select.poll()
            poll.register(self._local, select.POLLOUT)
            poll.poll()
            self._last_heard = time.monotonic()  # it is we who did not listen


def _await_input(connection: WebSocket, deadline: float) -> None:
    """Return when the relay has sent something; raises Interruption at the deadline."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    remaining = deadline - time.monotonic()
    if not connection.has_input and (remaining <= 0 or not poll.poll(remaining * 1000)):
        raise Interruption("the relay did not answer in time")


# Counts the bytes of a tunnel, so that a connection that is lost loses and repeats none; pure.


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
