"""Sends HTTP requests over connections that stay open: a new one costs a handshake and all certificates."""

from __future__ import annotations

import http.client
import os
import ssl
import time
from collections import deque
from functools import lru_cache
from typing import Deque, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import SplitResult, unquote, urlsplit

TIMEOUT = 60.0
"""Seconds without a byte after which a service does not answer."""
METADATA_HOST, METADATA = "metadata.google.internal", "/computeMetadata/v1/instance/"
IDLE = 30.0
"""Seconds after which a connection is not used again: a firewall on the way may have forgotten it."""


class Answer(NamedTuple):
    """A whole response."""

    status: int
    date: str
    """Its header Date; empty without one."""
    body: bytes
    generation: str = ""
    """Of the object that it is; empty for another answer."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


class Wire:
    """Requests to one service, from any thread: one takes a connection that is idle, or opens one.

    So none waits for another, and a program whose threads seldom ask at once has one connection.
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
        """Return the answer, whatever its status; raises OSError and http.client.HTTPException.

        A connection that was kept and turns out to be closed is replaced at once.
        """
        while True:
            kept = self._take()
            try:
                return self._exchange(kept or _connection(self._url), method, target, data, headers or {})
            except ConnectionError:
                if not kept:
                    raise

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

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        data: Optional[bytes],
        headers: Mapping[str, str],
    ) -> Answer:
        try:
            connection.request(method, target, data, dict(headers))
            with connection.getresponse() as response:
                date, generation = response.getheader("Date"), response.getheader("x-goog-generation")
                answer = Answer(response.status, date or "", response.read(), generation or "")
        except BaseException:  # also a signal's exception: what is left of the response is not the next one's
            connection.close()
            raise
        if connection.sock is not None:  # else the service ends it with this answer
            self._idle.append((connection, time.monotonic()))
        return answer


def ask_metadata(path: str, timeout: float) -> Answer:
    """Ask the metadata server of this VM; raises OSError and http.client.HTTPException."""
    host = os.environ.get("GCE_METADATA_HOST", METADATA_HOST)
    connection = http.client.HTTPConnection(host, timeout=timeout)
    try:
        connection.request(
            "GET", "/computeMetadata/v1/instance/" + path, headers={"Metadata-Flavor": "Google"}
        )
        with connection.getresponse() as response:
            return Answer(response.status, "", response.read())
    finally:
        connection.close()


def _connection(url: SplitResult) -> http.client.HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "http":
        return http.client.HTTPConnection(host, url.port, timeout=TIMEOUT)
    proxy = _proxy(host)
    if proxy is None:
        return http.client.HTTPSConnection(host, url.port, timeout=TIMEOUT, context=_certificates())
    connection = http.client.HTTPSConnection(
        proxy.hostname or "", proxy.port, timeout=TIMEOUT, context=_certificates()
    )
    connection.set_tunnel(host, url.port, _proxy_headers(proxy))
    return connection


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
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
