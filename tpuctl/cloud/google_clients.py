"""Builds Google's own clients; each is imported only when it is used."""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
import requests
from google.api_core import exceptions

from tpuctl.bucket_objects import decoder_of
from tpuctl.cloud.error_mapping import Service, translated
from tpuctl.config.files import use_plain_letters
from tpuctl.errors import DeadlineError
from tpuctl.polling import retry

if TYPE_CHECKING:
    import grpc
    from google.auth.credentials import Credentials
    from google.auth.transport.requests import AuthorizedSession
    from google.cloud.tpu_v2 import TpuClient

    from tpuctl.cloud.storage import StorageClient


UNUSED = ("aiohttp", "opentelemetry")
"""Google's clients import them where they are installed: for asynchronous halves, and for tracing."""
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


@contextmanager
def blocked(*names: str) -> Iterator[None]:
    """Let optional imports of these packages fail inside the block, but not of those imported before it.

    Libraries import what they use only where it is installed, and tpuctl never: it is slow.
    """
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def default_credentials(project: str | None = None) -> Credentials:
    """Return application default credentials; raises ConfigError when there are none.

    Requests of a user count against the quota of `project` unless the credentials name another one: some APIs
    refuse a user without one, in words that tell of an API that is off.
    """
    import google.auth  # noqa: PLC0415
    from google.oauth2.credentials import Credentials as UserCredentials  # noqa: PLC0415

    from tpuctl.cloud.error_mapping import translated  # noqa: PLC0415
    from tpuctl.cloud.request_log import is_on  # noqa: PLC0415

    with translated("Google Cloud"):
        credentials, _ = google.auth.default(scopes=SCOPES)
    if project and isinstance(credentials, UserCredentials) and not credentials.quota_project_id:
        credentials = credentials.with_quota_project(project)
    if is_on():
        _log_refreshes(credentials)
    return credentials


def _log_refreshes(credentials: Credentials) -> None:
    """Have credentials, and their copies, log each request for a token, whichever client needs it."""
    from tpuctl.cloud.request_log import logged  # noqa: PLC0415

    kind: Any = type(credentials)
    status: Callable[[Any], object] = attrgetter("status")

    def refresh(self: Credentials, request: Callable[..., object]) -> None:
        def logging_request(url: str, method: str = "GET", *rest: object, **options: object) -> object:
            return logged(method, url, lambda: request(url, method, *rest, **options), status)

        kind.refresh(self, logging_request)

    credentials.__class__ = type(kind.__name__, (kind,), {"refresh": refresh})


def anonymous_credentials() -> Credentials:
    """Return the credentials of a service that checks none."""
    from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415

    return AnonymousCredentials()  # type: ignore[no-untyped-call]


def tpu_client(credentials: Credentials) -> TpuClient:
    """Return a client of Google's Cloud TPU API."""
    _prepare_grpc()
    with blocked(*UNUSED):
        from google.cloud import tpu_v2  # noqa: PLC0415

    return tpu_v2.TpuClient(credentials=credentials)


def local_tpu_client(address: str) -> TpuClient:
    """Return a client of the Cloud TPU API at `HOST:PORT` on loopback, without TLS or credentials."""
    _prepare_grpc()
    import grpc  # noqa: PLC0415

    with blocked(*UNUSED):
        from google.cloud import tpu_v2  # noqa: PLC0415
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport  # noqa: PLC0415

    def open_channel(host: str, *, options: Sequence[tuple[str, int]], **_: object) -> grpc.Channel:
        """Return a channel with the options that Google's client gives its own: answers of any size.

        Without the last one gRPC sends even loopback traffic to a proxy of the user's environment.
        """
        return grpc.insecure_channel(host, options=[*options, ("grpc.enable_http_proxy", 0)])

    transport = TpuGrpcTransport(host=address, credentials=anonymous_credentials(), channel=open_channel)
    return tpu_v2.TpuClient(transport=transport)


def storage_client(project: str, credentials: Credentials, url: str = "") -> StorageClient:
    """Return a client of Cloud Storage: of Google's, or of the service at a `url` on loopback."""
    # Else each client asks for the bucket once more, in a thread of its own, for tracing that is off.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    session = rest_session(credentials, is_local=bool(url))
    session.hooks["response"].append(_read_refusal)
    with blocked(*UNUSED):
        from tpuctl.cloud.storage import StorageClient  # noqa: PLC0415

    return StorageClient(project, credentials, session, url)


def rest_session(credentials: Credentials, *, is_local: bool) -> AuthorizedSession:
    """Return a session whose requests carry credentials."""
    _import_requests()
    from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415

    from tpuctl.cloud.request_log import log_session  # noqa: PLC0415

    if is_local:  # no token is renewed, and as for gRPC: loopback traffic is not for the user's proxy
        session = AuthorizedSession(credentials, refresh_status_codes=())  # type: ignore[no-untyped-call]
        session.trust_env = False
    else:
        session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
        session.configure_mtls_channel()  # type: ignore[no-untyped-call]  # as Google's clients have theirs
    log_session(session)
    return session


class AccessToken:
    """Returns the access token of credentials, for a service that has no client of Google's."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()

    def __call__(self, renew: bool) -> str:
        """Return a token that has not expired, a new one if `renew`; raises ConfigError."""
        from google.auth.transport.requests import Request  # noqa: PLC0415

        from tpuctl.cloud.error_mapping import translated  # noqa: PLC0415

        with self._lock, translated("The access token"):
            if renew or not self._credentials.valid:
                self._credentials.refresh(Request())  # type: ignore[no-untyped-call]
            return str(self._credentials.token)


def _prepare_grpc() -> None:
    """Have gRPC write no log unless the user wants one: its errors are raised, and shown once.

    Its threads would also write into the terminal that `tpuctl ssh` hands over: they start no others then.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    use_plain_letters()
    _import_requests()  # which Google's clients for gRPC import, too


def _import_requests() -> None:
    """Import requests without what guesses encodings: what is read here is bytes, JSON or UTF-8."""
    with blocked("chardet", "charset_normalizer"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing guesses encodings
        import requests  # noqa: F401, PLC0415


def _read_refusal(response: requests.Response, **_: object) -> None:
    """Read a refused download to its end: the client does not, and then loses the connection, at each try."""
    if response.status_code >= 400:
        response.content  # noqa: B018  reading it is the point


TIMEOUT = 20.0
"""Of one request, in seconds."""
RETRY_TIMEOUT = 20.0
TRANSIENT = (exceptions.ServiceUnavailable, exceptions.InternalServerError, exceptions.TooManyRequests)
MOST_PAGES = 100
CHUNK = 1 << 16
MOST_BYTES = 64 << 20
"""Of one page."""


class Page(Protocol):
    """One page of a list: a record whose field `next_page_token` is empty on the last one."""

    @property
    def next_page_token(self) -> str:
        """What the request for the next page says."""


PageType = TypeVar("PageType", bound=Page)


@dataclass(frozen=True)
class RestApi:
    """One API at a URL; raises tpuctl's errors."""

    session: requests.Session
    """With the credentials."""
    url: str
    service: Service

    def pages(self, path: str, page: type[PageType], subject: str, **query: str) -> Iterator[PageType]:
        """Yield the pages of a list, decoded as records of the type `page`; `subject` names it in errors."""
        token = ""
        for _ in range(MOST_PAGES):
            body = self._get(path, subject, {**query, **({"pageToken": token} if token else {})})
            try:
                decoded = decoder_of(page).decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise _unreadable(subject) from error
            yield decoded
            token = decoded.next_page_token
            if not token:
                return
        raise _unreadable(subject)

    def _get(self, path: str, subject: str, query: Mapping[str, str]) -> bytes:
        def get() -> bytes:
            with self.session.get(
                f"{self.url}{path}", params=query, timeout=TIMEOUT, stream=True, allow_redirects=False
            ) as response:
                body = _read(response)
                if response.status_code != requests.codes.ok:
                    raise _refusal(response, body)
            if len(body) > MOST_BYTES:
                raise _unreadable(subject)
            return body

        with translated(subject, self.service):
            return retry(get, on=TRANSIENT, timeout=RETRY_TIMEOUT)


def _read(response: requests.Response) -> bytes:
    """Return the body, of one too large a beginning."""
    body = bytearray()
    for chunk in response.iter_content(CHUNK):
        body += chunk
        if len(body) > MOST_BYTES:
            break
    return bytes(body)


def _refusal(response: requests.Response, body: bytes) -> exceptions.GoogleAPICallError:
    """Return the service's error, without the method and URL that Google's client puts before its words."""
    read = requests.Response()  # what `from_http_response` looks into
    read.status_code, read.request, read.url = response.status_code, response.request, response.url
    read.raw, read.encoding = io.BytesIO(body), response.encoding
    error: exceptions.GoogleAPICallError = exceptions.from_http_response(read)  # type: ignore[no-untyped-call]
    error.message = str(error.message).removeprefix(f"{response.request.method} {response.url}: ")
    return error


def _unreadable(subject: str) -> DeadlineError:
    return DeadlineError(f"The answer about {subject} is not what this version of tpuctl reads.")
