"""HTTP of the programs on hosts: to the metadata server, to Cloud Storage and to the Cloud TPU API."""

from __future__ import annotations

import http.client
import os
import ssl
import time
from base64 import b64encode
from collections import deque
from functools import lru_cache
from typing import Deque, Mapping, NamedTuple, Optional, Tuple
from urllib import request
from urllib.parse import SplitResult, unquote, urlsplit

TIMEOUT = 60.0
"""Seconds without a byte after which a service does not answer."""
METADATA_HOST, METADATA = "metadata.google.internal", "/computeMetadata/v1/"
IDLE = 30.0
"""Seconds after which a connection is not used again: a firewall on the way may have forgotten it."""


class AnswerError(OSError):
    """What came is no answer, or only the beginning of one."""


class Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


class Wire:
    """Requests to one service, from any thread: one takes a connection that is idle, or opens one.

    So none waits for another, and a program whose threads seldom ask at once has one connection: a new one
    costs a handshake and all certificates.
    """

    def __init__(self, url: str) -> None:
        """Take the service's URL without a path; for https the environment's proxy is used."""
        self._url = urlsplit(url)
        self._idle: Deque[Tuple[http.client.HTTPConnection, float]] = deque()
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
            connection = kept or _connection(self._url, TIMEOUT)
            try:
                answer = _exchange(connection, method, target, data, headers)
            except ConnectionError:
                if not kept:
                    raise
            else:
                if connection.sock:
                    self._idle.append((connection, time.monotonic()))
                return answer

    def close(self) -> None:
        """Close the connections that are idle; the next request opens another one."""
        while self._idle:
            self._idle.pop()[0].close()

    def _take(self) -> Optional[http.client.HTTPConnection]:
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


def ask(
    url: str,
    method: str,
    target: str,
    data: Optional[bytes] = None,
    headers: Optional[Mapping[str, str]] = None,
    timeout: float = TIMEOUT,
) -> Answer:
    """Return the answer of a service to one request, whatever its status; raises OSError."""
    connection = _connection(urlsplit(url), timeout)
    try:
        return _exchange(connection, method, target, data, headers)
    finally:
        connection.close()


def ask_metadata(path: str, timeout: float, data: Optional[bytes] = None) -> Answer:
    """Ask the metadata server of this VM, or have it keep `data`; raises OSError."""
    place = os.environ.get("GCE_METADATA_HOST", METADATA_HOST)
    method = "GET" if data is None else "PUT"
    return ask("http://" + place, method, METADATA + path, data, {"Metadata-Flavor": "Google"}, timeout)


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    data: Optional[bytes],
    headers: Optional[Mapping[str, str]],
) -> Answer:
    """Send a request and read the whole answer; its connection is closed unless it takes another request."""
    try:
        connection.request(method, target, data, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    except BaseException as error:  # also a signal's: what is left of the response is not the next one's
        connection.close()
        if isinstance(error, OSError):
            raise
        if isinstance(error, http.client.HTTPException):
            raise AnswerError("no whole answer of HTTP: %s" % repr(error)[:200]) from error
        if isinstance(error, ValueError):  # it names the value, which may be a token
            raise ValueError("a header of the request is not one line of Latin-1") from None
        raise


def _connection(url: SplitResult, timeout: float) -> http.client.HTTPConnection:
    """Return a connection that opens with its first request."""
    host = url.hostname or ""
    if url.scheme == "http":
        return http.client.HTTPConnection(host, url.port, timeout=timeout)
    proxy = _proxy(host)
    if proxy is None:
        return http.client.HTTPSConnection(host, url.port, timeout=timeout, context=_certificates())
    connection = http.client.HTTPSConnection(
        proxy.hostname or "", proxy.port or 80, timeout=timeout, context=_certificates()
    )
    port = url.port or http.client.HTTPS_PORT
    connection.set_tunnel(host, port, {"Host": "%s:%d" % (host, port), **_login(proxy)})
    return connection


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()


def _proxy(host: str) -> Optional[SplitResult]:
    """Return the proxy that the environment names for https, None without one."""
    proxies = request.getproxies_environment()
    if "https" not in proxies or request.proxy_bypass_environment(host, proxies):  # type: ignore[attr-defined]
        return None
    return urlsplit(proxies["https"])


def _login(proxy: SplitResult) -> Mapping[str, str]:
    if proxy.username is None:
        return {}
    login = "%s:%s" % (unquote(proxy.username), unquote(proxy.password or ""))
    return {"Proxy-Authorization": "Basic " + b64encode(login.encode()).decode("ascii")}
