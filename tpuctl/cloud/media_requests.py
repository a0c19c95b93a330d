"""Requests the bytes of objects over the client's own connections, without the client's copies of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote, urlsplit

import requests
import urllib3
from google.api_core.exceptions import from_http_status
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import Request
from requests.adapters import HTTPAdapter

from tpuctl.cloud.request_log import logged

if TYPE_CHECKING:
    from tpuctl.cloud.storage import StorageClient

TIMEOUT = urllib3.Timeout(connect=15, read=60)
"""Seconds to connect, and between two blocks."""
_RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
_UNAUTHORIZED = 401
_LONGEST_MESSAGE = 10_000
"""Bytes of a refusal that are read."""

Read = Callable[[int], bytes]
"""Returns the next bytes, fewer than it was asked for only at the end; raises BrokenOffError."""


class Listed(Protocol):
    """An object as it was listed."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def generation(self) -> int: ...


class BrokenOffError(Exception):
    """A request got no answer, or not all of it: worth another one."""


class MediaRequests:
    """Requests for the bytes of one bucket's objects, from any thread."""

    def __init__(self, client: StorageClient, bucket: str) -> None:
        parts = urlsplit(client.api_endpoint)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._client = client
        self._bucket = bucket
        self._lock = threading.Lock()

    @contextmanager
    def open(self, item: Listed, start: int, end: int) -> Iterator[Read]:
        """Yield what reads the stored bytes from `start` to before `end` of one generation of an object.

        Raises BrokenOffError where another request may succeed, else an error of google.api_core.
        """
        partial = start > 0 or end < item.size
        selection = {"Range": f"bytes={start}-{end - 1}"} if partial else {}
        path = f"/download/storage/v1/b/{self._bucket}/o/{quote(item.name, safe='')}"
        with self._get(f"{path}?alt=media&generation={item.generation}", selection) as answer:
            _check(answer, 206 if partial else 200)

            def read(size: int) -> bytes:
                with _broken_off():
                    return answer.read(size, decode_content=False)

            yield read

    def fetch(self, item: Listed, start: int, end: int) -> bytes:
        """Return the stored bytes from `start` to before `end`, a few megabytes at most; raises as `open`."""
        with self.open(item, start, end) as read:
            data = read(end - start)
            if len(data) < end - start or read(1):
                raise BrokenOffError
            return data

    def read_json(self, path: str) -> bytes:
        """Return what the JSON API answers at a path below the bucket; raises as `open` does."""
        with self._get(f"/storage/v1/b/{self._bucket}{path}", {}) as answer:
            _check(answer, 200)
            with _broken_off():
                return answer.read(decode_content=True)

    @contextmanager
    def _get(self, target: str, selection: dict[str, str]) -> Iterator[urllib3.BaseHTTPResponse]:
        """Yield the answer to a GET; a token that is refused is renewed once."""
        headers = self._headers()
        answer = self._answer(target, headers | selection)
        if answer.status == _UNAUTHORIZED and not isinstance(self._client.credentials, AnonymousCredentials):
            answer.close()
            answer = self._answer(target, self._headers(refused=headers) | selection)
        with closing(answer):  # an answer that is read to its end has given its connection back
            yield answer

    def _answer(self, target: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        def send() -> urllib3.BaseHTTPResponse:
            return self._connections.urlopen(
                "GET", target, headers=headers, timeout=TIMEOUT, retries=False, preload_content=False
            )

        with _broken_off():
            return logged("GET", f"{self._origin}{target}", send, lambda answer: answer.status)

    def _headers(self, refused: dict[str, str] | None = None) -> dict[str, str]:
        """Return headers with a token, another one than that of `refused`."""
        credentials = self._client.credentials
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
    def _connections(self) -> urllib3.HTTPConnectionPool:
        """The connections of the client's session, with its proxies and certificates.

        A request by the session itself takes three times the CPU time: most of what a small object costs.
        """
        settings = self._client.session.merge_environment_settings(self._origin, {}, True, None, None)
        adapter = cast("HTTPAdapter", self._client.session.get_adapter(self._origin))
        return adapter.get_connection_with_tls_context(
            requests.Request("GET", self._origin).prepare(),
            settings["verify"],
            proxies=settings["proxies"],
            cert=settings["cert"],
        )


def _check(answer: urllib3.BaseHTTPResponse, status: int) -> None:
    """Raise as `open` does unless an answer has the bytes that were asked for."""
    if answer.status == status:
        return
    with _broken_off():
        message = answer.read(_LONGEST_MESSAGE).decode("utf-8", "replace")
    if answer.status in _RETRIABLE or answer.status < 400:
        raise BrokenOffError from _refusal(answer.status, message)
    raise _refusal(answer.status, message)


def _refusal(status: int, message: str) -> Exception:
    try:
        message = str(json.loads(message)["error"]["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # a download is refused in plain text
    error: Exception = from_http_status(status, message)  # type: ignore[no-untyped-call]
    return error


@contextmanager
def _broken_off() -> Iterator[None]:
    """Turn errors of the connection into BrokenOffError."""
    try:
        yield
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise BrokenOffError from error
