"""Requests the bytes of objects over the client's own connections, without the client's copies of them."""

from __future__ import annotations

import http.client
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlsplit

import requests
import urllib3
from google.api_core.exceptions import from_http_status
from google.auth.transport.requests import Request
from requests.adapters import HTTPAdapter

if TYPE_CHECKING:
    from google.cloud import storage

    from tpuctl.cloud.storage import Object

_TIMEOUT = urllib3.Timeout(connect=15, read=60)
"""Seconds to connect, and between two blocks."""
_RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
_UNAUTHORIZED = 401
_LONGEST_MESSAGE = 10_000
"""Bytes of a refusal that are read."""


class BrokenOffError(Exception):
    """A request got no answer, or not all of it: worth another one."""


class Body:
    """The bytes of an answer."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        # urllib3 reads into memory of its own, which takes four times the CPU time of reading into ours
        self._stream: io.BufferedIOBase = response._fp  # type: ignore[attr-defined]

    def readinto(self, buffer: memoryview) -> int:
        """Read the next bytes into a buffer and return their number, 0 at the end; raises BrokenOffError."""
        with _broken_off():
            return self._stream.readinto(buffer)


class MediaRequests:
    """Requests for the bytes of one bucket's objects, from any thread."""

    def __init__(self, client: storage.Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._lock = threading.Lock()

    @contextmanager
    def open(self, item: Object, start: int, end: int) -> Iterator[Body]:
        """Yield the stored bytes from `start` to before `end` of one generation of an object.

        Raises BrokenOffError where another request may succeed, else an error of google.api_core.
        """
        response = self._answer(item, start, end)
        try:
            yield Body(response)
            response.release_conn()
        finally:
            response.close()

    def _answer(self, item: Object, start: int, end: int) -> urllib3.BaseHTTPResponse:
        partial = start > 0 or end < item.size
        selection = {"Range": f"bytes={start}-{end - 1}"} if partial else {}
        headers = self._headers()
        response = self._send(item, headers | selection)
        if response.status == _UNAUTHORIZED:
            response.close()
            response = self._send(item, self._headers(refused=headers) | selection)
        if response.status == (206 if partial else 200):
            return response
        with _broken_off():
            message = response.read(_LONGEST_MESSAGE).decode("utf-8", "replace")
        response.close()
        if response.status in _RETRIABLE or response.status < 400:
            raise BrokenOffError from _refusal(response.status, message)
        raise _refusal(response.status, message)

    def _send(self, item: Object, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        path = f"/download/storage/v1/b/{self._bucket}/o/{quote(item.name, safe='')}"
        with _broken_off():
            return self._pool.urlopen(
                "GET", f"{path}?alt=media&generation={item.generation}", headers=headers, retries=False,
                redirect=False, timeout=_TIMEOUT, preload_content=False, decode_content=False,
            )  # fmt: skip

    def _headers(self, refused: dict[str, str] | None = None) -> dict[str, str]:
        """Return headers with a token, another one than that of `refused`."""
        credentials = self._client._credentials
        headers = {"Accept-Encoding": "gzip"}  # what is stored compressed comes as it is
        with self._lock:
            credentials.before_request(self._refresh, "GET", self._origin, headers)
            if headers == refused:  # else another thread has renewed it
                credentials.refresh(self._refresh)
                credentials.before_request(self._refresh, "GET", self._origin, headers)
        return headers

    @cached_property
    def _refresh(self) -> Request:
        return Request()

    @cached_property
    def _origin(self) -> str:
        parts = urlsplit(self._client.api_endpoint)
        return f"{parts.scheme}://{parts.netloc}"

    @cached_property
    def _pool(self) -> urllib3.HTTPConnectionPool:
        """The connections of the client's session, with its proxies and certificates."""
        session: requests.Session = self._client._http
        settings = session.merge_environment_settings(self._origin, {}, True, None, None)
        request = requests.Request("GET", self._origin).prepare()
        adapter = cast("HTTPAdapter", session.get_adapter(self._origin))
        return adapter.get_connection_with_tls_context(
            request, settings["verify"], proxies=settings["proxies"], cert=settings["cert"]
        )


def _refusal(status: int, message: str) -> Exception:
    error: Exception = from_http_status(status, message)  # type: ignore[no-untyped-call]
    return error


@contextmanager
def _broken_off() -> Iterator[None]:
    """Turn errors of the connection into BrokenOffError."""
    try:
        yield
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
        raise BrokenOffError from error
