"""Downloads files over HTTP and resumes interrupted downloads. Callers check the content."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import requests
import urllib3

from tpuctl.errors import DeadlineError, NotFoundError, StateError, TpuctlError
from tpuctl.polling import Backoff, Sleep

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
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class Downloads:
    """Fetches files; `close` it at the end."""

    def __init__(self, *, sleep: Sleep = time.sleep) -> None:
        self._session = requests.Session()
        self._sleep = sleep

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def fetch(self, url: str, path: Path, report: ReportBytes) -> None:
        """Fetch the file at `url` to `path`; bytes that `path` holds already are not fetched again.

        The caller verifies the content: the file may have changed between two attempts. Raises NotFoundError,
        StateError when the server refuses, DeadlineError when it cannot be reached or its responses break
        off; the part already downloaded is kept.
        """
        pauses, failures, why = Backoff(1.0, 10.0, 2.0).pauses(), 0, ""
        while failures < _ATTEMPTS:
            before = _size(path)
            try:
                if self._resume(url, path, report):
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

    def _resume(self, url: str, path: Path, report: ReportBytes) -> bool:
        """Fetch the missing bytes and append them; return whether the file is complete."""
        offset = _size(path)
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={offset}-"} if offset else {})}
        with self._session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if offset and response.status_code == requests.codes.requested_range_not_satisfiable:
                return True  # nothing is missing, or it is another file: the caller's checksum decides
            _check(url, response)
            start, total = _extent(response)
            if start not in (0, offset):
                raise _TransientError("the server sent another range than the requested one")
            with path.open("ab" if start else "wb") as file:
                for block in response.raw.stream(_BLOCK, decode_content=False):  # a .gz stays one
                    file.write(block)
                    start += len(block)
                    report(start, total)
        return start >= total


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


def _extent(response: requests.Response) -> tuple[int, int]:
    """Return the offset of the response in the file, and the file's size; 0 where the headers lack it."""
    match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code == requests.codes.partial_content and match:
        return int(match[1]), int(match[2]) if match[2].isdigit() else 0
    return 0, int(response.headers.get("Content-Length", "0"))


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
