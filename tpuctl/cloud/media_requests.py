"""Requests the bytes of objects over the client's own connections, without the client's copies of them."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote, urlsplit

import requests
import urllib3
from google.api_core.exceptions import from_http_status
from google.auth.transport.requests import Request
from requests.adapters import HTTPAdapter

from tpuctl.cloud.media_connections import Answer, MediaConnections, UnusualAnswerError
from tpuctl.cloud.request_log import logged

if TYPE_CHECKING:
    from google.cloud import storage

_RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
_UNAUTHORIZED = 401
_GZIP = b"\x1f\x8b"
_LONGEST_MESSAGE = 10_000
"""Bytes of a refusal that are read."""


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


class Body:
    """The bytes of an answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def read_all(self) -> bytes:
        """Return all bytes, unpacked if they came packed; raises BrokenOffError."""
        with _broken_off():
            data = self._answer.read()
        return gzip.decompress(data) if data[:2] == _GZIP else data

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer than `size` only at the end; raises BrokenOffError."""
        with _broken_off():
            return self._answer.read(size)

    def readinto(self, buffer: memoryview) -> int:
        """Read the next bytes into a buffer and return their number, 0 at the end; raises BrokenOffError."""
        with _broken_off():
            return self._answer.readinto(buffer)


class MediaRequests:
    """Requests for the bytes of one bucket's objects, from any thread."""

    def __init__(self, client: storage.Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._lock = threading.Lock()

    @contextmanager
    def open(self, item: Listed, start: int, end: int) -> Iterator[Body]:
        """Yield the stored bytes from `start` to before `end` of one generation of an object.

        Raises BrokenOffError where another request may succeed, else an error of google.api_core.
        """
        partial = start > 0 or end < item.size
        selection = {"Range": f"bytes={start}-{end - 1}"} if partial else {}
        path = f"/download/storage/v1/b/{self._bucket}/o/{quote(item.name, safe='')}"
        with self._authorized(f"{path}?alt=media&generation={item.generation}", selection) as answer:
            yield _body(answer, partial=partial)

    def fetch(self, item: Listed, start: int, end: int) -> bytes:
        """Return the stored bytes from `start` to before `end` of a generation, a few megabytes at most.

        Raises as `open` does, with less CPU time for each.
        """
        partial = start > 0 or end < item.size
        selection = {"Range": f"bytes={start}-{end - 1}"} if partial else {}
        path = f"/download/storage/v1/b/{self._bucket}/o/{quote(item.name, safe='')}"
        target, headers = f"{path}?alt=media&generation={item.generation}", self._headers()
        try:
            with _broken_off():
                status, data = logged(
                    "GET",
                    f"{self._origin}{target}",
                    lambda: self._connections.fetch(target, headers | selection, end - start),
                    itemgetter(0),
                )
        except BrokenOffError as error:
            if not isinstance(error.__cause__, UnusualAnswerError):
                raise
            status, data = 0, b""
        if status == (206 if partial else 200) and len(data) == end - start:
            return data
        return self._opened(item, start, end)

    def _opened(self, item: Listed, start: int, end: int) -> bytes:
        """Return bytes by `open`, which renews tokens and tells errors apart."""
        with self.open(item, start, end) as body:
            data = body.read(end - start)
            if len(data) < end - start or body.read(1):
                raise BrokenOffError
            return data

    def read_json(self, path: str) -> bytes:
        """Return what the JSON API answers at a path below the bucket; raises as `open` does."""
        with self._authorized(f"/storage/v1/b/{self._bucket}{path}", {}) as answer:
            body = _body(answer, partial=False)
            return body.read_all()

    @contextmanager
    def _authorized(self, target: str, selection: dict[str, str]) -> Iterator[Answer]:
        """Yield the answer to a GET; a token that is refused is renewed once."""
        headers = self._headers()
        with self._get(target, headers | selection) as answer:
            if answer.status != _UNAUTHORIZED:
                yield answer
                return
        with self._get(target, self._headers(refused=headers) | selection) as answer:
            yield answer

    @contextmanager
    def _get(self, target: str, headers: dict[str, str]) -> Iterator[Answer]:
        with ExitStack() as stack:
            with _broken_off():
                answer = logged(
                    "GET",
                    f"{self._origin}{target}",
                    lambda: stack.enter_context(self._connections.get(target, headers)),
                    attrgetter("status"),
                )
            yield answer

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
    def _connections(self) -> MediaConnections:
        """The connections of the client's session, with its proxies and certificates."""
        session: requests.Session = self._client._http
        settings = session.merge_environment_settings(self._origin, {}, True, None, None)
        request = requests.Request("GET", self._origin).prepare()
        adapter = cast("HTTPAdapter", session.get_adapter(self._origin))
        pool = adapter.get_connection_with_tls_context(
            request, settings["verify"], proxies=settings["proxies"], cert=settings["cert"]
        )
        return MediaConnections(pool)


def _body(answer: Answer, *, partial: bool) -> Body:
    """Return the bytes that were asked for; raises as `open` does if the answer has others."""
    if answer.status == (206 if partial else 200):
        return Body(answer)
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
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
        raise BrokenOffError from error
