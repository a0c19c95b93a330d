"""Builds Google's own clients; each is imported only when it is used."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tpuctl.config.files import use_plain_letters

if TYPE_CHECKING:
    import grpc
    import requests
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
    import google.auth
    from google.oauth2.credentials import Credentials as UserCredentials

    from tpuctl.cloud.error_mapping import translated
    from tpuctl.cloud.request_log import is_on

    with translated("Google Cloud"):
        credentials, _ = google.auth.default(scopes=SCOPES)
    if project and isinstance(credentials, UserCredentials) and not credentials.quota_project_id:
        credentials = credentials.with_quota_project(project)
    if is_on():
        _log_refreshes(credentials)
    return credentials


def _log_refreshes(credentials: Credentials) -> None:
    """Have credentials, and their copies, log each request for a token, whichever client needs it."""
    from tpuctl.cloud.request_log import logged

    kind: Any = type(credentials)
    status: Callable[[Any], object] = attrgetter("status")

    def refresh(self: Credentials, request: Callable[..., object]) -> None:
        def logging_request(url: str, method: str = "GET", *rest: object, **options: object) -> object:
            return logged(method, url, lambda: request(url, method, *rest, **options), status)

        kind.refresh(self, logging_request)

    credentials.__class__ = type(kind.__name__, (kind,), {"refresh": refresh})


def anonymous_credentials() -> Credentials:
    """Return the credentials of a service that checks none."""
    from google.auth.credentials import AnonymousCredentials

    return AnonymousCredentials()  # type: ignore[no-untyped-call]


def tpu_client(credentials: Credentials) -> TpuClient:
    """Return a client of Google's Cloud TPU API."""
    _prepare_grpc()
    with blocked(*UNUSED):
        from google.cloud import tpu_v2

    return tpu_v2.TpuClient(credentials=credentials)


def local_tpu_client(address: str) -> TpuClient:
    """Return a client of the Cloud TPU API at `HOST:PORT` on loopback, without TLS or credentials."""
    _prepare_grpc()
    import grpc

    with blocked(*UNUSED):
        from google.cloud import tpu_v2
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

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
        from tpuctl.cloud.storage import StorageClient

    return StorageClient(project, credentials, session, url)


def rest_session(credentials: Credentials, *, is_local: bool) -> AuthorizedSession:
    """Return a session whose requests carry credentials."""
    _import_requests()
    from google.auth.transport.requests import AuthorizedSession

    from tpuctl.cloud.request_log import log_session

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
        from google.auth.transport.requests import Request

        from tpuctl.cloud.error_mapping import translated

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
        import requests  # noqa: F401


def _read_refusal(response: requests.Response, **_: object) -> None:
    """Read a refused download to its end: the client does not, and then loses the connection, at each try."""
    if response.status_code >= 400:
        response.content  # noqa: B018  reading it is the point
