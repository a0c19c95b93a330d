"""Files fetched over HTTP, gone on with where they were cut off; nothing is known here of what is in them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import requests
import urllib3

from tpuctl.errors import DeadlineError, NotFoundError, StateError, TpuctlError
from tpuctl.polling import Backoff, Sleep

Progress = Callable[[int, int], None]
"""Called with the bytes that are there and those there will be; the latter is 0 while it is not known."""

_BLOCK = 1 << 18
_TIMEOUT = (15, 60)
"""Seconds to connect, and between two pieces."""
_TRIES = 3
"""Of which none brings a single byte: then it is given up."""
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
"""Statuses that pass."""
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

    def fetch(self, url: str, path: Path, progress: Progress) -> None:
        """Bring the file at `url` to `path`; what is in that file already is not fetched again.

        Whoever asked has to look whether it is the right one: it may have changed between two tries. Raises
        NotFoundError, StateError when the server refuses, DeadlineError when it cannot be reached or its
        answers break off; what came is kept then.
        """
        waits, tries, why = Backoff(1.0, 10.0, 2.0).pauses(), 0, ""
        while tries < _TRIES:
            before = _size(path)
            try:
                if self._go_on(url, path, progress):
                    return
                why = "the answer broke off"
            except _Passing as error:
                why = str(error)
            except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
                why = _reason(error)
            tries = 1 if _size(path) > before else tries + 1
            if tries < _TRIES:
                self._sleep(next(waits))
        raise DeadlineError(
            f"{url} cannot be fetched: {why}.",
            hint="Check the network, then run the same command again: what has come is kept.",
            url=url,
        )

    def _go_on(self, url: str, path: Path, progress: Progress) -> bool:
        """Ask for what is missing, and append it; tell whether all is there."""
        there = _size(path)
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={there}-"} if there else {})}
        with self._session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
            if there and answer.status_code == requests.codes.requested_range_not_satisfiable:
                return True  # nothing is missing, or it is another file: the checksum tells
            _check(url, answer)
            start, total = _extent(answer)
            if start not in (0, there):
                raise _Passing("the server sent another part than was asked for")
            with path.open("ab" if start else "wb") as file:
                for block in answer.raw.stream(_BLOCK, decode_content=False):  # a .gz stays one
                    file.write(block)
                    start += len(block)
                    progress(start, total)
        return start >= total


class _Passing(Exception):
    """It may work the next time."""


def _check(url: str, answer: requests.Response) -> None:
    if answer.status_code in _AGAIN:
        raise _Passing(f"the server answered {answer.status_code} {answer.reason}")
    if answer.status_code in _GONE:
        raise NotFoundError(
            f"{url} is not there (the server answered {answer.status_code}).",
            hint="It may have moved.",
            url=url,
        )
    if answer.status_code not in (200, 206):
        raise _refused(url, answer)


def _refused(url: str, answer: requests.Response) -> TpuctlError:
    return StateError(
        f"The server refused {url}: {answer.status_code} {answer.reason}.",
        hint="A proxy or a filter may be in between: open it in a browser.",
        url=url,
    )


def _extent(answer: requests.Response) -> tuple[int, int]:
    """Return where the answer begins in the file, and the file's size; 0 where that is not said."""
    found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if answer.status_code == requests.codes.partial_content and found:
        return int(found[1]), int(found[2]) if found[2].isdigit() else 0
    return 0, int(answer.headers.get("Content-Length", "0"))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (requests.exceptions.ConnectTimeout, "the server does not answer"),
    (requests.exceptions.ReadTimeout, "the server sends nothing any more"),
    (requests.exceptions.SSLError, "its certificate is not accepted"),
    (requests.exceptions.ProxyError, "the proxy does not let it through"),
    (requests.exceptions.ChunkedEncodingError, "the connection broke off"),
    (requests.exceptions.ConnectionError, "there is no connection to the server"),
    (urllib3.exceptions.ReadTimeoutError, "the server sends nothing any more"),
    (urllib3.exceptions.HTTPError, "the connection broke off"),
)
"""The first that fits; the classes above are also of those below."""


def _reason(error: Exception) -> str:
    return next((why for kind, why in _REASONS if isinstance(error, kind)), type(error).__name__)
