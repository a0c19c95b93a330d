"""Sends HTTP requests over connections that stay open: a new one costs a handshake and all certificates."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Deque, Mapping, Optional, Tuple
from urllib.parse import SplitResult, unquote, urlsplit

from tpuctl.worker.connection import Answer, Connection, head, status_of

if TYPE_CHECKING:
    import ssl

TIMEOUT = 60.0
"""Seconds without a byte after which a service does not answer."""
METADATA_HOST, METADATA = "metadata.google.internal", "/computeMetadata/v1/instance/"
IDLE = 30.0
"""Seconds after which a connection is not used again: a firewall on the way may have forgotten it."""
PORTS = {"http": 80, "https": 443}


class Wire:
    """Requests to one service, from any thread: one takes a connection that is idle, or opens one.

    So none waits for another, and a program whose threads seldom ask at once has one connection.
    """

    def __init__(self, url: str) -> None:
        """Take the service's URL without a path; for https the environment's proxy is used."""
        self._url = urlsplit(url)
        self._idle: Deque[Tuple[Connection, float]] = deque()
        """Each with when it was used last, in order; no lock: a signal's handler may raise anywhere."""

    def request(
        self,
        method: str,
        target: str,
        data: Optional[bytes] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Answer:
        """Return the answer, whatever its status; raises OSError.

        A connection that was kept and turns out to be closed is replaced at once.
        """
        while True:
            kept = self._take()
            try:
                connection = kept or _connect(self._url, TIMEOUT)
                return self._exchange(connection, method, target, data, headers or {})
            except ConnectionError:
                if not kept:
                    raise

    def close(self) -> None:
        """Close the connections that are idle; the next request opens another one."""
        while self._idle:
            self._idle.pop()[0].close()

    def _take(self) -> Optional[Connection]:
        """Return the connection that was used last; the others are closed once they are too old."""
        try:
            connection, used = self._idle.pop()
        except IndexError:
            return None
        if time.monotonic() <= used + IDLE:
            return connection
        connection.close()
        self.close()
        return None

    def _exchange(
        self,
        connection: Connection,
        method: str,
        target: str,
        data: Optional[bytes],
        headers: Mapping[str, str],
    ) -> Answer:
        try:
            answer = connection.exchange(method, target, data, headers)
        except BaseException:  # also a signal's exception: what is left of the response is not the next one's
            connection.close()
            raise
        if connection.is_reusable:
            self._idle.append((connection, time.monotonic()))
        else:
            connection.close()
        return answer


def ask_metadata(path: str, timeout: float) -> Answer:
    """Ask the metadata server of this VM; raises OSError."""
    place = os.environ.get("GCE_METADATA_HOST", METADATA_HOST)
    connection = _connect(urlsplit("http://" + place), timeout)
    try:
        return connection.exchange("GET", METADATA + path, None, {"Metadata-Flavor": "Google"})
    finally:
        connection.close()


def _connect(url: SplitResult, timeout: float) -> Connection:
    host, port = url.hostname or "", url.port or PORTS[url.scheme]
    if url.scheme == "http":
        return Connection(_open(host, port, timeout), url.netloc)
    proxy = _proxy(host)
    if proxy is None:
        stream = _open(host, port, timeout)
    else:
        stream = _open(proxy.hostname or "", proxy.port or PORTS["http"], timeout)
    try:
        if proxy is not None:
            _tunnel(stream, "%s:%d" % (host, port), _proxy_headers(proxy))
        return Connection(_certificates().wrap_socket(stream, server_hostname=host), url.netloc)
    except BaseException:
        stream.close()
        raise


def _open(host: str, port: int, timeout: float) -> socket.socket:
    stream = socket.create_connection((host, port), timeout)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def _tunnel(stream: socket.socket, place: str, headers: Mapping[str, str]) -> None:
    """Have a proxy connect the stream to a place; raises OSError."""
    stream.sendall(head("CONNECT %s HTTP/1.1" % place, {"Host": place, **headers}))
    with stream.makefile("rb", 0) as reader:  # without a buffer: what follows is not the proxy's
        first = line = reader.readline()
        while line.strip():
            line = reader.readline()
    if not 200 <= status_of(first) < 300:
        raise OSError("the proxy refuses a tunnel: %s" % first.decode("latin-1").strip())


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    import ssl  # noqa: PLC0415  slow, and an emulator on the host has none

    return ssl.create_default_context()


def _proxy(host: str) -> Optional[SplitResult]:
    """Return the proxy that the environment names for https, None without one."""
    if not (os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")):
        return None
    from urllib import request  # noqa: PLC0415  slow, and hosts on Google's network have no proxy

    proxies = request.getproxies_environment()
    if request.proxy_bypass_environment(host, proxies):  # type: ignore[attr-defined]
        return None
    return urlsplit(proxies["https"])


def _proxy_headers(proxy: SplitResult) -> Mapping[str, str]:
    if proxy.username is None:
        return {}
    from base64 import b64encode  # noqa: PLC0415  as above

    login = "%s:%s" % (unquote(proxy.username), unquote(proxy.password or ""))
    return {"Proxy-Authorization": "Basic " + b64encode(login.encode()).decode("ascii")}
