"""A relay of its own for tests: speaks the protocol as gcloud's client expects it, and misbehaves on request.

It shares no code with the client, nor with the simulator.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

SUBPROTOCOL = "relay.tunnel.cloudproxy.app"


class ScriptedRelay:
    """Tunnels to a backend on loopback; the attributes say how it misbehaves."""

    def __init__(self, backend: int) -> None:
        self.backend = backend
        self.url = ""
        self.requests: list[Request] = []
        self.pieces: Callable[[bytes], list[bytes]] = lambda frames: [frames]
        """Splits or joins what is sent into messages."""
        self.closes: list[tuple[int, str]] = []
        """Code and reason with which the next requests are closed."""
        self.answers: list[Response] = []
        """What is answered to the next requests instead of a WebSocket."""
        self.cut_after: list[int] = []
        """Bytes each way after which each connection is cut, without a goodbye."""
        self.connections: list[ServerConnection] = []
        self.drops_greeted = False
        """Whether connections end right after the greeting."""
        self.session_name = "session"
        """Begins the names of sessions; in Latin-1, as a client has to take any bytes for one."""
        self.cut_code = 0
        self.cuts = 0
        self.sessions: dict[str, Session] = {}

    def parameters(self, index: int = -1) -> dict[str, str]:
        """The query of a request."""
        return {
            name: values[0] for name, values in parse_qs(urlsplit(self.requests[index].path).query).items()
        }

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Answer nothing, not even a ping, on the connections that are open, for a block."""
        with ExitStack() as stack:
            for connection in self.connections:
                stack.enter_context(connection.protocol_mutex)
            yield

    def cut(self) -> None:
        """Cut the connections that are open."""
        for connection in self.connections:
            connection.socket.shutdown(socket.SHUT_RDWR)

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Record a request, and refuse it if that is asked for."""
        self.requests.append(request)
        return self.answers.pop(0) if self.answers else None

    def handle(self, connection: ServerConnection) -> None:
        """Carry bytes on one WebSocket."""
        if self.closes:
            connection.close(*self.closes.pop(0))
            return
        request = connection.request
        assert request is not None
        text = urlsplit(request.path).query
        query = {name: values[0] for name, values in parse_qs(text, encoding="latin-1").items()}
        if "/reconnect" in request.path:
            session = self.sessions.get(query["sid"])
            if session is None:
                connection.close(4001, "session not found")
                return
            carrier = Carrier(self, session, connection)
            session.rewind(int(query["ack"]))
            greeting = struct.pack(">HQ", 2, session.received)
        else:
            name = f"{self.session_name}-{len(self.sessions)}"
            session = self.sessions[name] = Session(self.backend)
            carrier = Carrier(self, session, connection)
            greeting = struct.pack(">HI", 1, len(name)) + name.encode("latin-1")
        self.connections.append(connection)
        try:
            carrier.carry(greeting)
        finally:
            self.connections.remove(connection)


class Session:
    """A connection to the backend, and what the client has not acknowledged of it."""

    def __init__(self, backend: int) -> None:
        self.stream = socket.create_connection(("127.0.0.1", backend))
        self.received = 0
        self.sent = bytearray()
        self.acknowledged = 0
        self.position = 0
        self.changed = threading.Condition()
        self.has_ended = False
        self.uplink = threading.Lock()
        self.carrier: Carrier | None = None
        """The newest one: the others carry nothing more."""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def close(self) -> None:
        """Close the connection to the backend."""
        with suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)
        self._reading.join()
        self.stream.close()

    def rewind(self, position: int) -> None:
        """Send again what follows a position."""
        assert self.acknowledged <= position <= len(self.sent)
        self.position = position

    def _read(self) -> None:
        with suppress(OSError):
            while data := self.stream.recv(16_384):
                with self.changed:
                    self.sent += data
                    self.changed.notify_all()
        with self.changed:
            self.has_ended = True
            self.changed.notify_all()


class Carrier:
    """One WebSocket of a session."""

    def __init__(self, relay: ScriptedRelay, session: Session, connection: ServerConnection) -> None:
        self._relay = relay
        self._session = session
        self._connection = connection
        self._left = relay.cut_after.pop(0) if relay.cut_after else None
        self._over = threading.Event()
        with session.uplink, session.changed:
            session.carrier = self
        self._sending = threading.Lock()

    def carry(self, greeting: bytes) -> None:
        """Carry bytes both ways until the connection ends."""
        with suppress(ConnectionClosed, OSError):
            self._send(greeting)
            if self._relay.drops_greeted:
                self._connection.close(1011, "dropped")
                return
            sender = threading.Thread(target=self._send_all, daemon=True)
            sender.start()
            self._receive_all()
        self._over.set()
        with self._session.changed:
            self._session.changed.notify_all()

    def _send(self, frames: bytes) -> None:
        with self._sending:  # a frame in parts is not mixed with another one
            for piece in self._relay.pieces(frames):
                self._connection.send(piece)

    def _send_all(self) -> None:
        session = self._session
        with suppress(ConnectionClosed, OSError):
            while not self._over.is_set():
                with session.changed:
                    while (
                        session.position == len(session.sent)
                        and not session.has_ended
                        and not self._over.is_set()
                    ):
                        session.changed.wait(0.2)
                    data = bytes(session.sent[session.position : session.position + 16_384])
                    if self._over.is_set() or session.carrier is not self:
                        return
                    session.position += len(data)
                if not data:
                    self._connection.close(4010, "destination read failed")
                    return
                self._send(struct.pack(">HI", 4, len(data)) + data)
                self._spend(len(data))

    def _receive_all(self) -> None:
        session, unacknowledged = self._session, 0
        buffer = b""
        for message in self._connection:
            assert isinstance(message, bytes)
            buffer += message
            size, buffer = self._take(buffer)
            unacknowledged += size
            self._spend(size)
            if unacknowledged > 32_768:
                with suppress(ConnectionClosed):  # the client may have said goodbye
                    self._send(struct.pack(">HQ", 7, session.received))
                unacknowledged = 0

    def _take(self, buffer: bytes) -> tuple[int, bytes]:
        """Carry the frames of a buffer to the backend; returns the bytes of data, and the rest."""
        session, carried = self._session, 0
        with session.uplink:
            while len(buffer) >= 6 and session.carrier is self:
                tag, size = struct.unpack_from(">HI", buffer)
                if tag == 7:
                    session.acknowledged = struct.unpack_from(">HQ", buffer)[1]
                    assert session.acknowledged <= len(session.sent)
                    buffer = buffer[10:]
                    continue
                assert tag == 4, tag
                assert size <= 16_384
                data, buffer = buffer[6 : 6 + size], buffer[6 + size :]
                session.stream.sendall(data)
                session.received += size
                carried += size
        return carried, buffer

    def _spend(self, size: int) -> None:
        """Cut the connection when it has carried what it may."""
        if self._left is None:
            return
        self._left -= size
        if self._left <= 0 and not self._over.is_set():
            self._over.set()
            self._relay.cuts += 1
            if self._relay.cut_code:
                self._connection.close_timeout = 0.2  # the client answers no goodbye of this kind
                self._connection.close(self._relay.cut_code, "")
            self._connection.socket.shutdown(socket.SHUT_RDWR)


@contextmanager
def scripted_relay(backend: int, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedRelay]:
    """A relay to a port of loopback, for a block; `tls` makes it one for `wss://localhost`."""
    relay = ScriptedRelay(backend)
    server: Server = serve(
        relay.handle,
        "127.0.0.1",
        0,
        subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
        process_request=relay.answer,
        compression=None,
        ssl=tls,
        ping_interval=None,
        close_timeout=10,
    )
    scheme = "wss://localhost" if tls else "ws://127.0.0.1"
    relay.url = f"{scheme}:{server.socket.getsockname()[1]}/v4"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        server.shutdown()
        thread.join()
        for session in relay.sessions.values():
            session.close()


def refusal(status: int, body: str) -> Response:
    """An HTTP answer."""
    content = body.encode()
    return Response(status, "Refused", Headers([("Content-Length", str(len(content)))]), content)
