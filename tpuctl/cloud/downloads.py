"""Downloads files over HTTP and resumes interrupted downloads. Callers check the content.

- Adapts streams to Google's client: a file object to upload an iterator from, and one to read an object.
- Downloads objects into files: ranges side by side, checksums on the way in, resumed inside a range.
"""

from __future__ import annotations

import io
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from google.api_core.exceptions import GoogleAPICallError
from google.cloud.storage.exceptions import DataCorruption

from tpuctl import polling
from tpuctl.cloud.request_log import BrokenOffError, MediaRequests, Read, log_session
from tpuctl.errors import DeadlineError, NotFoundError, StateError, TpuctlError
from tpuctl.object_content import ContentDigest
from tpuctl.polling import Backoff, Sleep

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tpuctl.cloud.storage import Object, StorageClient


class ChunkStream(io.RawIOBase):
    """An iterator of bytes as the file object that the client reads; forward only."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest: bytes | memoryview = b""
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return exactly `size` bytes, fewer only at the end: the client takes a short read for the end."""
        parts: list[bytes | memoryview] = [self._rest]
        available = len(self._rest)
        while size < 0 or available < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            available += len(chunk)
        self._rest = b""
        if 0 <= size < available:
            last = memoryview(parts.pop())
            split = len(last) - (available - size)
            parts.append(last[:split])
            self._rest = last[split:]
        data = b"".join(parts)
        self._position += len(data)
        return data


class BufferFullError(Exception):
    """More bytes came than the reader takes."""


class BoundedBuffer(io.BytesIO):
    """Bytes in memory up to a limit; a write beyond it raises BufferFullError, which ends a download."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Buffer, /) -> int:
        if self.tell() + memoryview(data).nbytes > self._most:
            raise BufferFullError
        return super().write(data)


class ObjectStream:
    """An object's bytes, fetched a range at a time; `read` returns fewer than `size` only at the end."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, part: int) -> None:
        """`fetch(start, end)` returns the bytes from `start` to before `end`."""
        self._fetch = fetch
        self._size = size
        self._part = part
        self._fetched = 0
        self._held = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        parts: list[memoryview] = []
        while size > 0 and (self._held or self._refill()):
            parts.append(self._held[:size])
            size -= len(parts[-1])
            self._held = self._held[len(parts[-1]) :]
        return b"".join(parts)

    def _refill(self) -> bool:
        end = min(self._fetched + self._part, self._size)
        if end > self._fetched:
            self._held = memoryview(self._fetch(self._fetched, end))
            self._fetched = end
        return bool(self._held)


ReportCount = Callable[[int], None]
"""Takes the number of bytes that have arrived since it was called last; what it raises ends the download."""

CONNECTIONS = 8
"""Requests at once, of all downloads from a bucket: fewer than the connections that the client keeps."""
RANGE = 32 << 20
"""Bytes of a large object that one request fetches."""
BLOCK = 1 << 18
"""Bytes that are held for each connection."""
PATIENCE = 120.0
"""Seconds without a byte after which a download fails, as in Google's client."""
BACKOFF = Backoff(first=0.2, longest=10, factor=2)


def silent(size: int) -> None:
    """Report to nobody."""


class ObjectDownloads:
    """Downloads of one bucket's objects, from any thread."""

    def __init__(self, client: StorageClient, bucket: str, *, sleep: Sleep = polling.sleep) -> None:
        self._requests = MediaRequests(client, bucket)
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._sleep = sleep

    def fetch(self, item: Object, path: Path, report: ReportCount = silent) -> None:
        """Fetch one generation of an object, as it is stored, into a file that does not exist yet.

        Raises DataCorruption where its checksum is another, errors of google.api_core and requests, OSError.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            parts = [
                _Part(item, start, min(start + RANGE, item.size), descriptor, report)
                for start in range(0, item.size, RANGE)
            ]
            self._fetch(parts)
        finally:
            os.close(descriptor)
        whole = ContentDigest()
        for part in parts:
            whole.append(part.digest)
        if whole.content() != item.content:
            raise DataCorruption(None, item.name)

    def _fetch(self, parts: list[_Part]) -> None:
        if len(parts) <= 1:
            for part in parts:
                self._complete(part, threading.Event())
            return
        stopped = threading.Event()
        with ThreadPoolExecutor(min(CONNECTIONS, len(parts)), thread_name_prefix="range") as pool:
            try:
                for _ in pool.map(lambda part: self._complete(part, stopped), parts):
                    pass
            finally:
                stopped.set()

    def _complete(self, part: _Part, stopped: threading.Event) -> None:
        """Request a part until all of it is there, each time from where the last answer broke off."""
        pauses, deadline, position = BACKOFF.pauses(), time.monotonic() + PATIENCE, part.position
        while part.position < part.end and not stopped.is_set():
            try:
                with self._slots, self._requests.open(part.item, part.position, part.end) as read:
                    for _ in part.receive(read):
                        if stopped.is_set():
                            return
                if part.position < part.end:
                    raise BrokenOffError
            except BrokenOffError as error:
                if part.position > position:
                    pauses, deadline, position = BACKOFF.pauses(), time.monotonic() + PATIENCE, part.position
                elif time.monotonic() > deadline:
                    raise given_up(error) from error
                self._sleep(next(pauses))


class _Part:
    """A range of an object on its way into its place in a file."""

    def __init__(self, item: Object, start: int, end: int, descriptor: int, report: ReportCount) -> None:
        self.item = item
        self.position = start
        """The first byte that is not there yet."""
        self.end = end
        self.digest = ContentDigest()
        self._descriptor = descriptor
        self._report = report

    def receive(self, read: Read) -> Iterator[None]:
        """Take bytes from `read` until it has no more or the part is complete; yield after each block."""
        while data := read(min(BLOCK, self.end - self.position)):
            self._write(data)
            self.digest.update(data)
            self.position += len(data)
            self._report(len(data))
            yield

    def _write(self, block: bytes) -> None:
        data, position = memoryview(block), self.position
        while data:
            written = os.pwrite(self._descriptor, data, position)
            data, position = data[written:], position + written


def given_up(error: BrokenOffError) -> Exception:
    """Return the error of the service, or that of a connection."""
    cause = error.__cause__
    return cause if isinstance(cause, GoogleAPICallError) else requests.exceptions.ConnectionError(str(cause))


ReportBytes = Callable[[int, int], None]
"""Takes the bytes of a file so far and its size, which is 0 while it is not known."""

_BLOCK = 1 << 18
_TIMEOUT = (15, 60)
"""Seconds to connect, and between two blocks."""
_ATTEMPTS = 3
"""In a row that bring no byte: then the download fails."""
_RETRIABLE = {408, 425, 429, 500, 502, 503, 504}
"""HTTP statuses of failures that may pass."""
_GONE = {404, 410}
_MOST_REDIRECTS = 10
_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")


class Downloads:
    """Fetches files; `close` it at the end."""

    def __init__(self, *, sleep: Sleep = polling.sleep) -> None:
        self._session = _Session()
        log_session(self._session)
        self._sleep = sleep

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def fetch(self, url: str, path: Path, report: ReportBytes, most: int) -> None:
        """Fetch the file at `url` to `path`; bytes that `path` holds already are not fetched again.

        The caller verifies the content: the file may have changed between two attempts. Raises NotFoundError,
        StateError when the server refuses, sends more than `most` bytes or redirects to an address that is
        not on the internet, DeadlineError when it cannot be reached or its responses break
        off; the part already downloaded is kept.
        """
        pauses, failures, why = Backoff(1.0, 10.0, 2.0).pauses(), 0, ""
        while failures < _ATTEMPTS:
            before = _size(path)
            try:
                if self._resume(url, path, report, most):
                    return
                why = "the response broke off"
            except _TransientError as error:
                why = str(error)
            except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
                why = _reason(error)
            failures = 1 if _size(path) > before else failures + 1
            if failures < _ATTEMPTS:
                self._sleep(next(pauses))
        raise DeadlineError(
            f"{url} cannot be fetched: {why}.",
            hint="Check the network, then run the same command again: the part already downloaded is kept.",
            url=url,
        )

    def _resume(self, url: str, path: Path, report: ReportBytes, most: int) -> bool:
        """Fetch the missing bytes and append them; return whether the file is complete."""
        offset = _size(path)
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={offset}-"} if offset else {})}
        with self._get(url, headers) as response:
            if offset and response.status_code == requests.codes.requested_range_not_satisfiable:
                return True  # nothing is missing, or it is another file: the caller's checksum decides
            _check(url, response)
            start, total = _extent(response)
            if total > most:
                raise _too_large(url, f"has {total} bytes", most)
            if start not in (0, offset):
                raise _TransientError("the server sent another range than the requested one")
            with path.open("ab" if start else "wb") as file:
                for block in response.raw.stream(_BLOCK, decode_content=False):  # a .gz stays one
                    start += len(block)
                    if start > most:
                        raise _too_large(url, "does not end", most)
                    file.write(block)
                    report(start, total)
        return start >= total

    def _get(self, url: str, headers: dict[str, str]) -> requests.Response:
        """Return the response to a GET, after redirects that lead to the internet; raises StateError."""
        target = url
        for _ in range(_MOST_REDIRECTS):
            response = self._session.get(
                target, headers=headers, stream=True, timeout=_TIMEOUT, allow_redirects=False
            )
            if not response.is_redirect:
                return response
            response.close()
            target = _following(url, target, response.headers["Location"])
        raise _redirected(url, f"{_MOST_REDIRECTS} times")


class _Session(requests.Session):
    """Follows no redirect, and reads nothing of it: requests would read all to prepare the next request."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return that there is none."""


class _TransientError(Exception):
    """A failure that may pass."""


def _check(url: str, response: requests.Response) -> None:
    if response.status_code in _RETRIABLE:
        raise _TransientError(f"the server answered {response.status_code} {response.reason}")
    if response.status_code in _GONE:
        raise NotFoundError(
            f"{url} is not there (the server answered {response.status_code}).",
            hint="It may have moved.",
            url=url,
        )
    if response.status_code not in (200, 206):
        raise _refused(url, response)


def _refused(url: str, response: requests.Response) -> TpuctlError:
    return StateError(
        f"The server refused {url}: {response.status_code} {response.reason}.",
        hint="A proxy or a filter may be in between: open it in a browser.",
        url=url,
    )


def _too_large(url: str, problem: str, most: int) -> StateError:
    return StateError(
        f"The file at {url} {problem}, and the published one has at most {most}.",
        hint="The server sends another file: try again later, or take it from a folder.",
        url=url,
        most=most,
    )


def _following(url: str, origin: str, location: str) -> str:
    """Return where a redirect leads, in the form in which it is asked for; raises StateError.

    Of `http://a\\@b/` one parser takes `a` for the host and another one `b`.
    """
    try:
        target = requests.Request("GET", urljoin(origin, location)).prepare().url or ""
        check_redirect(url, origin, target)
    except ValueError as error:  # of urllib, requests, and the codec of host names
        raise _redirected(url, "to an invalid address") from error
    return target


def check_redirect(url: str, origin: str, target: str) -> None:
    """Raise StateError unless a redirect leads from one server on the internet to another, or to its own.

    A server could otherwise have this machine ask others that only it reaches: a metadata server, a router.
    """
    before, after = urlsplit(origin), urlsplit(target)
    if after.scheme not in ("http", "https") or (before.scheme, after.scheme) == ("https", "http"):
        raise _redirected(url, f"to {after.scheme}:, from {before.scheme}:")
    if after.hostname != before.hostname and not _is_public(after.hostname or ""):
        raise _redirected(url, f"to {after.hostname}, which is not on the internet")


def _is_public(host: str) -> bool:
    """Return whether all addresses of a host are on the internet; only a proxy may know a name."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return all(ip_address(str(address[4][0]).partition("%")[0]).is_global for address in addresses)


def _redirected(url: str, where: str) -> StateError:
    return StateError(
        f"The server redirects {url} {where}.",
        hint="A proxy or a filter may be in between: open it in a browser.",
        url=url,
    )


def _extent(response: requests.Response) -> tuple[int, int]:
    """Return the offset of the response in the file, and the file's size; 0 where the headers lack it."""
    match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code == requests.codes.partial_content and match:
        return int(match[1]), int(match[2]) if match[2].isdigit() else 0
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if re.fullmatch("[0-9]{1,18}", length) else 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (requests.exceptions.ConnectTimeout, "the server does not respond"),
    (requests.exceptions.ReadTimeout, "the server stopped sending"),
    (requests.exceptions.SSLError, "its certificate is not accepted"),
    (requests.exceptions.ProxyError, "the proxy refuses the connection"),
    (requests.exceptions.ChunkedEncodingError, "the connection broke off"),
    (requests.exceptions.ConnectionError, "there is no connection to the server"),
    (urllib3.exceptions.ReadTimeoutError, "the server stopped sending"),
    (urllib3.exceptions.HTTPError, "the connection broke off"),
)
"""The first that matches; the classes above are subclasses of those below."""


def _reason(error: Exception) -> str:
    return next((why for kind, why in _REASONS if isinstance(error, kind)), type(error).__name__)
