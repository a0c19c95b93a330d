"""Sends requests of the Cloud TPU API, again where that helps, and fetches every page of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Protocol, TypeVar

from google.api_core import exceptions

from tpuctl.cloud.error_mapping import translated
from tpuctl.cloud.error_table import Service
from tpuctl.cloud.request_log import logged
from tpuctl.cloud.tpu.error_mapping import SERVICE, RateLimitError
from tpuctl.polling import Backoff, retry

T = TypeVar("T")


class ListPage(Protocol):
    """A page of a list."""

    next_page_token: str


class ListRequest(Protocol):
    """A request for a page of a list."""

    page_token: str


Page = TypeVar("Page", bound=ListPage, covariant=True)


class Pager(Protocol[Page]):
    """A list that Google's client fetches page by page."""

    @property
    def pages(self) -> Iterator[Page]:
        """Each page; the next one is requested when it is needed."""


TIMEOUT = 60.0
"""Of one request: the client has no default timeout, and no default retry."""
RETRY_TIMEOUT = 20.0
RATE_TIMEOUT = 90.0
"""Seconds for which a request is sent again that is refused for its rate: limits are per minute."""
RATE_PAUSES = Backoff(first=2.0, longest=20.0)
TRANSIENT = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
)


def send(
    subject: str,
    call: Callable[..., T],
    request: object,
    *,
    changes: bool = False,
    service: Service = SERVICE,
) -> T:
    """Return the answer to a request that may be sent twice; `subject` names the resource in errors.

    Of one that changes something, ABORTED means that another change came first: its caller reads again.
    """
    on = TRANSIENT if changes else (*TRANSIENT, exceptions.Aborted)

    def repeated() -> T:
        return retry(lambda: _request(call, request), on=on, timeout=RETRY_TIMEOUT)

    return _answer(subject, repeated, service)


def send_list(subject: str, call: Callable[..., Pager[Page]], request: ListRequest) -> list[Page]:
    """Return every page of a list; each is a request of its own."""

    @wraps(call)
    def first_page(request: object, **options: object) -> Page:
        return next(call(request, **options).pages)

    pages = [send(subject, first_page, request)]
    while token := pages[-1].next_page_token:
        request.page_token = token
        pages.append(send(subject, first_page, request))
    return pages


def send_once(subject: str, call: Callable[..., T], request: object, service: Service = SERVICE) -> T:
    """Return the answer to a request that takes effect once at most: one refused for its rate had none."""
    return _answer(subject, lambda: _request(call, request), service)


def _answer(subject: str, work: Callable[[], T], service: Service) -> T:
    """Return the answer to a request, sent again while it is refused for its rate; raises tpuctl's errors."""

    def attempt() -> T:
        with translated(subject, service):
            return work()

    return retry(attempt, on=RateLimitError, timeout=RATE_TIMEOUT, backoff=RATE_PAUSES)


def _request(call: Callable[..., T], request: object) -> T:
    """Send a request, and log it with the resource that it is about."""
    version = "v2alpha1." if "v2alpha1" in type(request).__module__ else ""
    method = version + getattr(call, "__name__", "").title().replace("_", "")
    return logged(
        "gRPC", f"{method} {_resource(request)}", lambda: call(request, retry=None, timeout=TIMEOUT)
    )


def _resource(request: object) -> str:
    if isinstance(request, Mapping):
        return str(request.get("name", ""))
    node = getattr(request, "node", None)  # what is updated has its name there
    return str(getattr(request, "name", "") or getattr(request, "parent", "") or getattr(node, "name", ""))
