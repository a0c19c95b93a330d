"""Lists and reads the objects of a bucket that is a source, by requests that take little CPU time."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
from google.cloud.storage.exceptions import DataCorruption
from requests.adapters import HTTPAdapter

from tpuctl.bucket_layout import gs
from tpuctl.bucket_objects import UNKNOWN, ListedObject, ObjectPage
from tpuctl.cloud.downloads import BACKOFF, PATIENCE, given_up
from tpuctl.cloud.request_log import BrokenOffError, MediaRequests
from tpuctl.cloud.storage import CHECK_BUCKET, StorageClient, naming_bucket
from tpuctl.errors import BucketMissingError, DeadlineError, NotFoundError
from tpuctl.object_content import crc32c
from tpuctl.polling import retry

T = TypeVar("T")
CONNECTIONS = 32
"""Connections that are kept."""
_FIELDS = "name,size,generation,crc32c,contentEncoding"
_ATTEMPTS = 3
"""How often an object is fetched that arrives damaged."""


class BulkObjects:
    """The objects of one bucket, from any thread; raises tpuctl's errors. Failures that pass are retried."""

    def __init__(self, client: StorageClient, name: str, *, shell_setup: str = "") -> None:
        adapter = HTTPAdapter(pool_maxsize=CONNECTIONS)
        for scheme in ("https://", "http://"):
            client.session.mount(scheme, adapter)
        self._requests = MediaRequests(client, name)
        self._shell_setup = shell_setup
        self.bucket = name

    def page(self, prefix: str, token: str = "", most: int = 0) -> ObjectPage:
        """Return the objects directly under a prefix, and the folders there, a page at a time."""
        query = {
            "prefix": prefix,
            "delimiter": "/",
            "fields": f"items({_FIELDS}),prefixes,nextPageToken",
            "pageToken": token,
            "maxResults": str(most or ""),
        }
        path = f"/o?{urlencode({key: value for key, value in query.items() if value})}"
        answer = self._call(prefix, lambda: _PAGES.decode(self._requests.read_json(path)))
        return ObjectPage([_item(listed) for listed in answer.items], answer.prefixes, answer.nextPageToken)

    def find(self, name: str) -> ListedObject | None:
        """Return an object as it is now; None where there is none."""
        path = f"/o/{quote(name, safe='')}?{urlencode({'fields': _FIELDS})}"
        try:
            return _item(self._call(name, lambda: _ITEMS.decode(self._requests.read_json(path))))
        except BucketMissingError:
            raise
        except NotFoundError:
            return None

    def read(self, item: ListedObject, start: int, end: int) -> bytes:
        """Return the stored bytes from `start` to before `end` of the generation that was listed.

        All of an object is verified by its checksum. Raises NotFoundError when the generation is gone.
        """
        if start >= end:
            return b""
        is_whole = (start, end) == (0, item.size) and item.crc32c != UNKNOWN

        def fetch() -> bytes:
            data = self._call(item.name, lambda: self._requests.fetch(item, start, end))
            if is_whole and crc32c(data) != item.crc32c:
                raise DataCorruption(None, item.name)
            return data

        try:
            return retry(fetch, on=DataCorruption, attempts=_ATTEMPTS, backoff=BACKOFF)
        except DataCorruption as error:
            raise DeadlineError(
                f"{gs(self.bucket, item.name)} arrived damaged {_ATTEMPTS} times.",
                hint="Run the command again: nothing was published.",
            ) from error

    def _call(self, name: str, call: Callable[[], T]) -> T:
        with self._translated(name):
            try:
                return retry(call, on=BrokenOffError, timeout=PATIENCE, backoff=BACKOFF)
            except BrokenOffError as error:
                raise given_up(error) from error

    def _translated(self, name: str) -> AbstractContextManager[None]:
        return naming_bucket(self.bucket, name, CHECK_BUCKET, self._shell_setup)


class _Listed(msgspec.Struct):
    name: str
    size: str = "0"
    generation: str = "0"
    crc32c: str = ""
    contentEncoding: str = ""


class _Answer(msgspec.Struct):
    items: list[_Listed] = []
    prefixes: list[str] = []
    nextPageToken: str = ""


_PAGES = msgspec.json.Decoder(_Answer)
_ITEMS = msgspec.json.Decoder(_Listed)


def _item(listed: _Listed) -> ListedObject:
    try:
        checksum = int.from_bytes(base64.b64decode(listed.crc32c), "big") if listed.crc32c else UNKNOWN
    except binascii.Error:
        checksum = UNKNOWN
    return ListedObject(
        listed.name, int(listed.size), int(listed.generation), checksum, listed.contentEncoding
    )
