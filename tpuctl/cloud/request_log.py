"""Logs each request, a line each, and says which host has not answered, and why.

The logger `tpuctl.requests` takes the lines at level DEBUG; `--debug` shows them. Bodies, headers, arguments
of commands on hosts, and the values of unknown parameters of a URL are never in one.

- Requests the bytes of objects over the client's own connections, without the client's copies of them.
- Records the requests of Google's clients that change something, instead of sending them.
"""

from __future__ import annotations

import io
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import quote, urlsplit

import requests
import urllib3
from google.api_core.exceptions import from_http_status
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import Request
from requests.adapters import BaseAdapter, HTTPAdapter

from tpuctl.errors import DeadlineError, TpuctlError, chain
from tpuctl.masking import MASK, masked
from tpuctl.nodes import HttpRequest

if TYPE_CHECKING:
    from tpuctl.cloud.storage import StorageClient


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
    shown = (
        f"{name}={value if name in PARAMETERS else MASK}" if is_given else name
        for name, is_given, value in pairs
    )
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


UNKNOWN_GENERATION = -1
"""The generation of every object that was never sent; `GENERATION` where a recorded URL has it."""
_EMPTY = {"size": "0", "crc32c": "AAAAAA==", "generation": str(UNKNOWN_GENERATION)}
"""What the service would say of an object without content."""


class Recorder(BaseAdapter):
    """Answers every request as Cloud Storage does for an empty bucket, and keeps those other than GET."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[HttpRequest] = []

    def send(  # type: ignore[override]  # the options of a real transport mean nothing here
        self, request: requests.PreparedRequest, **_options: object
    ) -> requests.Response:
        """Record a request; return an empty object, a session to upload to, or an empty list."""
        method, url = request.method or "", request.url or ""
        if method != "GET":
            recorded_url = url.replace(f"GenerationMatch={UNKNOWN_GENERATION}", "GenerationMatch=GENERATION")
            self.requests.append(HttpRequest(method, recorded_url, _body(request)))
        return _response(request, {"Location": f"{url.partition('&')[0]}&upload_id=UPLOAD_ID"})

    def close(self) -> None:
        """There is no connection to close."""


def _response(request: requests.PreparedRequest, headers: Mapping[str, str]) -> requests.Response:
    response = requests.Response()
    response.status_code = 200
    response.request, response.url = request, request.url or ""
    response.headers.update(headers)
    response.raw = io.BytesIO(json.dumps(_EMPTY).encode())
    return response


def _body(request: requests.PreparedRequest) -> dict[str, str] | None:
    """The name that the metadata of an upload gives the object; the content is not known yet."""
    if request.method != "POST" or not isinstance(request.body, bytes):
        return None
    _, brace, rest = request.body.decode(errors="replace").partition("{")
    return {"name": str(json.JSONDecoder().raw_decode(brace + rest)[0]["name"])} if brace else None
