"""One WebSocket to the relay, by the `websockets` library without its threads: once open, nothing blocks."""

from __future__ import annotations

import os
import socket
import ssl
import time
import traceback
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from urllib.parse import SplitResult, unquote, urlsplit

import requests.utils
import urllib3
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidMessage, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from tpuctl.cloud.iap.frames import MOST_FIELD, SUBPROTOCOL, Ending, Interruption, Refusal, close

PORTS = {"ws": 80, "wss": 443}
ORIGIN = "bot:iap-tunneler"
READ_SIZE = 1 << 16
MOST_REFUSAL = 2_000
"""Characters of a refusal's body that are read for its reason."""
MOST_OUTPUT = 4 * MOST_FIELD
"""Bytes that wait to be written, more than a tunnel queues: each ping of a relay is answered, read or not."""
DATA = (Opcode.BINARY, Opcode.CONT, Opcode.TEXT)


class WebSocket:
    """An open connection."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float, *, is_local: bool) -> None:
        """Connect; raises Interruption, Refusal, or Ending where the server speaks another protocol."""
        deadline = time.monotonic() + timeout
        try:
            self._socket = connect(url, timeout, is_local=is_local)
        except OSError as error:
            raise Interruption(f"the relay cannot be reached: {error.strerror or error}") from error
        self._output = bytearray()
        self._protocol = ClientProtocol(
            parse_uri(url),
            origin=Origin(ORIGIN),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=2 * MOST_FIELD,
        )
        try:
            self._shake_hands(headers, deadline)
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for it."""
        return self._socket.fileno()

    @property
    def has_input(self) -> bool:
        """Whether `receive` has something to yield though the descriptor has nothing to read."""
        return bool(self._protocol.events) or (
            isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        )

    @property
    def output_size(self) -> int:
        """Bytes that are not written yet."""
        return len(self._output)

    def send(self, message: bytes) -> None:
        """Queue a message; `flush` writes it."""
        self._protocol.send_binary(message)
        self._collect()

    def ping(self) -> None:
        """Queue a ping, which the relay answers."""
        self._protocol.send_ping(b"")
        self._collect()

    def say_goodbye(self) -> None:
        """Queue the close of the connection."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
            self._collect()

    def flush(self) -> None:
        """Write what is queued, as far as the network takes it; raises Interruption."""
        try:
            while self._output:
                del self._output[: self._socket.send(memoryview(self._output)[:READ_SIZE])]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            raise Interruption(_text(error)) from error

    def receive(self) -> Iterator[tuple[bytes, bool]]:
        """Yield what has arrived: bytes, and whether a message ends with them.

        Raises Ending or Interruption when the relay has closed the connection, or the network has lost it.
        """
        has_ended = self._read()
        if len(self._output) > MOST_OUTPUT:
            raise Ending("the relay sends pings, and reads no answer")
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in DATA:
                yield bytes(event.data), event.fin
        if self._protocol.close_rcvd is not None:
            raise close(int(self._protocol.close_rcvd.code), self._protocol.close_rcvd.reason)
        if has_ended:
            raise Interruption("the connection was lost")
        if self._protocol.parser_exc is not None:
            raise Ending(f"the relay sent what is no WebSocket frame: {self._protocol.parser_exc}")

    def close(self) -> None:
        """Close the connection at once."""
        self._socket.close()

    def _read(self) -> bool:
        """Parse what has arrived; returns whether the connection has ended. Raises Interruption."""
        try:
            data = self._socket.recv(READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise Interruption(_text(error)) from error
        self._feed(data)
        self._collect()
        return not data

    def _shake_hands(self, headers: Mapping[str, str], deadline: float) -> None:
        request = self._protocol.connect()
        request.headers.update(headers)
        self._protocol.send_request(request)
        self._collect()
        try:
            self._socket.sendall(self._output)
            self._output.clear()
            while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                self._feed(self._socket.recv(READ_SIZE))
        except OSError as error:
            raise Interruption(_text(error)) from error
        self._check_handshake()

    def _check_handshake(self) -> None:
        error = self._protocol.handshake_exc
        if isinstance(error, InvalidStatus):
            response: Response = error.response
            body = bytes(response.body or b"")[:MOST_REFUSAL].decode(errors="replace")
            raise Refusal(response.status_code, body or response.reason_phrase) from error
        if isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError):
            raise Interruption("the connection was lost before it answered") from error
        if error is not None or self._protocol.subprotocol != SUBPROTOCOL:
            raise Ending("what answers is not IAP's relay") from error

    def _feed(self, data: bytes) -> None:
        if data:
            self._protocol.receive_data(data)
        elif not self._protocol.reader.eof:
            self._protocol.receive_eof()

    def _collect(self) -> None:
        for data in self._protocol.data_to_send():
            self._output += data


def _text(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "the relay did not answer in time"
    return f"the connection was lost ({error.strerror or error})"


# Opens the TCP and TLS connection to the relay, through the user's proxy and with the user's authorities.


def connect(url: str, timeout: float, *, is_local: bool) -> socket.socket:
    """Return a connection to the host of a `ws:` or `wss:` URL; a local one goes through no proxy.

    The variables are those of our other clients: https_proxy, no_proxy, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE.
    Raises Interruption, which says what failed, and OSError.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    proxy = None if is_local else _proxy(host, port)
    stream = (
        _through(proxy, host, port, timeout) if proxy else socket.create_connection((host, port), timeout)
    )
    stream.settimeout(timeout)
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return authorities().wrap_socket(stream, server_hostname=host) if parts.scheme == "wss" else stream
    except BaseException:
        stream.close()
        raise


def authorities() -> ssl.SSLContext:
    """Return the context with the authorities that our other clients trust, or those of the user."""
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    try:
        if bundle:
            if os.path.isdir(bundle):
                return ssl.create_default_context(capath=bundle)
            return ssl.create_default_context(cafile=bundle)
        context = ssl.create_default_context()
        context.load_verify_locations(requests.utils.DEFAULT_CA_BUNDLE_PATH)
    except OSError as error:
        raise Interruption(f"the certificates of {bundle} cannot be read: {error.strerror}") from error
    return context


def _proxy(host: str, port: int) -> SplitResult | None:
    url = f"https://{host}:{port}"
    proxy = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
    if not proxy:
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http":
        raise Interruption(
            f"the proxy {parts.scheme}://{parts.hostname} cannot be used: only http:// proxies can"
        )
    return parts


def _through(proxy: SplitResult, host: str, port: int, timeout: float) -> socket.socket:
    """Return a connection that an HTTP proxy has opened (CONNECT)."""
    connection = HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=timeout)
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}" if proxy.username else None
    connection.set_tunnel(host, port, headers=urllib3.make_headers(proxy_basic_auth=login))
    try:
        connection.connect()
    except (OSError, HTTPException) as error:
        connection.close()
        traceback.clear_frames(error.__traceback__)  # of Python 3.11.2: its answer keeps the connection open
        place = f"{proxy.hostname}:{proxy.port or 80}"
        raise Interruption(f"the proxy {place} does not open a connection to {host}: {error}") from error
    return connection.sock
