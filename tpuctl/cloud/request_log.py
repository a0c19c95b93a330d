"""Logs each request, a line each, and says which host has not answered, and why.

The logger `tpuctl.requests` takes the lines at level DEBUG; `--debug` shows them. Bodies, headers, arguments
of commands on hosts, and the values of unknown parameters of a URL are never in one.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tpuctl.errors import DeadlineError, TpuctlError, chain
from tpuctl.masking.text import MASK, masked

if TYPE_CHECKING:
    import requests

T = TypeVar("T")

LOGGER = logging.getLogger("tpuctl.requests")
PARAMETERS = frozenset({
    "ack", "alt", "currencyCode", "delimiter", "endOffset", "fields", "generation", "ifGenerationMatch",
    "ifGenerationNotMatch", "ifSourceGenerationMatch", "instance", "interface", "matchGlob",
    "maxResults", "name", "newWebsocket", "optionsRequestedPolicyVersion", "pageSize", "port", "prefix",
    "prettyPrint", "project", "projection", "recursive", "returnPartialSuccess", "startOffset",
    "uploadType", "versions", "zone",
})  # fmt: skip
"""Parameters of URLs that hold no secret; signatures, tokens and ids of uploads are not among them."""
_HOSTS = (r"host='([^']+)'", r"resolution failed for ([\w.-]+)", r"ipv[46]:([\w.:%\[\]-]+?): ")
"""Where texts of requests, urllib3 and gRPC name a host; of several, the last one is the cause's."""
_CAUSES = (
    r"certificate verify failed(?:: [^()'\"]*[^()'\" ])?",
    r"Tunnel connection failed: [^'\")]+",
    r"\[Errno -?\d+\] ([^'\")\]]+)",
    r"(?i)connection refused|connection reset by peer|network is unreachable|no route to host|"
    r"domain name not found|could not contact dns servers",
    r"(?i)timed out|timeout",
    r"(?i)closed connection without response|socket closed|connection aborted",
    r"DNS resolution failed",
)
_REPEATED = frozenset({
    408, 429, 500, 502, 503, 504,
    "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "RESOURCE_EXHAUSTED",
})  # fmt: skip
"""Codes after which the same request may be sent again."""


def is_on() -> bool:
    """Whether anybody reads the log."""
    return LOGGER.isEnabledFor(logging.DEBUG)


def logged(
    method: str, target: str, send: Callable[[], T], code: Callable[[T], object] = lambda _: "OK"
) -> T:
    """Return what `send` returns, and log it as one request; `code` reads the code of the answer."""
    if not is_on():
        return send()
    begun = time.monotonic()
    try:
        answer = send()
    except BaseException as error:
        status, why = _code(error), unanswered(error)
        shown = f"{status} ({why})" if status and why else status or why or _reason(error)
        _note(method, target, shown, begun, fails=not status or status in _REPEATED)
        raise
    answered = code(answer)
    _note(method, target, answered, begun, fails=answered in _REPEATED)
    return answer


def log_session(session: requests.Session) -> None:
    """Have a session log each of its requests, those too that a library of Google's sends again."""
    for adapter in session.adapters.values():
        adapter.send = _logging(adapter.send)  # type: ignore[method-assign]


def _logging(send: Callable[..., requests.Response]) -> Callable[..., requests.Response]:
    def logging_send(request: requests.PreparedRequest, **options: Any) -> requests.Response:
        answer: Callable[[requests.Response], int] = attrgetter("status_code")
        return logged(request.method or "", request.url or "", lambda: send(request, **options), answer)

    return logging_send


@contextmanager
def showing(write: Callable[[str], object]) -> Iterator[None]:
    """Pass the line of each request of the block to `write`."""
    handler, level = _Lines(write), LOGGER.level
    _attempts.clear()
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.setLevel(level)
        LOGGER.removeHandler(handler)


class _Lines(logging.Handler):
    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; where nobody reads it, the request is none the worse."""
        try:
            self._write(record.getMessage())
        except OSError:
            pass


_attempts: dict[tuple[str, str], int] = {}
"""Method and address of requests that have failed -> how often in a row."""
_lock = threading.Lock()


def _note(method: str, target: str, code: object, begun: float, *, fails: bool) -> None:
    took = round(1000 * (time.monotonic() - begun))
    request = (method, _without_values(target))
    with _lock:
        attempt = _attempts.pop(request, 0) + 1
        if fails:
            _attempts[request] = attempt
    LOGGER.debug("%s", masked(f"{' '.join(request)} -> {code}, {took} ms, attempt {attempt}"))


def _without_values(url: str) -> str:
    """Return an address with the values of the known parameters only."""
    address, mark, query = url.partition("?")
    pairs = (pair.partition("=") for pair in query.split("&"))
    shown = (f"{name}={value if name in PARAMETERS else MASK}" if is_given else name
             for name, is_given, value in pairs)  # fmt: skip
    return address + mark + "&".join(shown)


def _code(error: BaseException) -> int | str:
    """Return the code that a service gave: gRPC's by name, else that of HTTP; 0 without one."""
    status = getattr(error, "grpc_status_code", None)
    code = getattr(error, "code", 0) if status is None else status.name
    return code if isinstance(code, (int, str)) else 0


def _reason(error: BaseException) -> str:
    """Return what happened, without the texts of libraries: they may quote what was sent."""
    words = error.message if isinstance(error, TpuctlError) else getattr(error, "strerror", None)
    return words or type(error).__name__


def unanswered(error: BaseException | None) -> str:
    """Return which host has not answered and why: `oauth2.googleapis.com: Name or service not known`.

    Empty for an error that does not tell, as that of a service which has answered.
    """
    text = "\n".join(map(str, chain(error)))
    hosts = [host for expression in _HOSTS for host in re.findall(expression, text)]
    urls = (str(getattr(getattr(each, "request", None), "url", None) or "") for each in chain(error))
    host = hosts[-1] if hosts else next((urlsplit(url).hostname or "" for url in urls if url), "")
    found = (re.search(expression, text) for expression in _CAUSES)
    cause = next((match[match.lastindex or 0].strip() for match in found if match), "")
    return f"{host}: {cause}" if host and cause else ""


@contextmanager
def naming_host() -> Iterator[None]:
    """Let the error of a service that cannot be reached say which host that is, and why."""
    try:
        yield
    except DeadlineError as error:
        why = unanswered(error.__cause__)
        if why and why not in error.message:
            error.message = f"{error.message} {why}."
            error.facts["cause"] = why
        raise
