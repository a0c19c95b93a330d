"""Downloads files over HTTP and resumes interrupted downloads. Callers check the content."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from tpuctl import polling
from tpuctl.cloud.request_log import log_session
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
