"""Reads JSON from Google's REST APIs that have no small client: authorised, page by page, bounded."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
import requests
from google.api_core import exceptions

from tpuctl.bucket_objects import decoder_of
from tpuctl.cloud.error_mapping import Service, translated
from tpuctl.errors import DeadlineError
from tpuctl.polling import retry

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
