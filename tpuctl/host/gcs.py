"""Reads and writes small objects of Cloud Storage with the standard library alone: preconditions, retries."""

from __future__ import annotations

import calendar
import email.utils
import hashlib
import json
import os
import time
import urllib.parse
from typing import IO, Iterator, Mapping, NamedTuple, Sequence, Tuple

from tpuctl.host import timing
from tpuctl.host.wire import Answer, Wire, ask_metadata

HOST = "https://storage.googleapis.com"
EMULATOR = "STORAGE_EMULATOR_HOST"
"""Names an emulator, as for Google's own clients; it gets our token, so it has to be on this host."""
LOOPBACK = "http://127.0.0.1:"
PART = 4 * 1024 * 1024
"""Bytes of a large object that one request fetches: memory is flat, and a cut connection costs no more."""
REFUSED = "the metadata server gives no access token: %s"
RENEW_BEFORE = 120.0
"""Seconds before a token expires at which it is renewed."""
METADATA_TIMEOUT = 20.0
"""Seconds for an answer of the metadata server."""
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses that a later try may not meet."""
FORBIDDEN, MISSING = 403, 404
"""HTTP statuses: what is missing is an object, or its bucket."""
EMPTY = 416
"""HTTP status for a range of an object that has no bytes."""


class PreconditionError(Exception):
    """Another process has written the object."""


class GcsError(Exception):
    """Cloud Storage refused a request, or did not answer in any try."""


class UnreachableError(GcsError):
    """It did not answer in any try, or could not: a later one may succeed."""


class RefusedError(GcsError):
    """The bucket refuses a request, and later ones like it: FORBIDDEN, or the bucket itself is MISSING.

    To overwrite an object, the VM's service account needs the permission to delete it.
    """

    def __init__(self, request: str, status: int, words: str) -> None:
        self.status = status
        self.words = words
        """Those of the service, in one line."""
        self.answer = "%d %s" % (status, words)
        super().__init__("%s: %s" % (request, self.answer))


class Item(NamedTuple):
    """One object in a listing."""

    name: str
    generation: int
    age: float
    """Seconds since it was written, by the service's clock."""
    size: int = 0
    """Bytes."""
    updated: str = ""
    """When it was written, to the second: ISO-8601, UTC."""
    metadata: Mapping[str, str] = {}


class Token:
    """The access token of the VM's service account, from the metadata server, renewed before it expires."""

    def __init__(self) -> None:
        self._value = ""
        self._until = 0.0

    def header(self) -> str:
        """Return the value of the Authorization header."""
        if time.time() > self._until:
            self._value, seconds = _request_token()
            self._until = time.time() + seconds - RENEW_BEFORE
        return "Bearer " + self._value


def _request_token() -> Tuple[str, float]:
    """Return a token and its seconds to live; an error here must not be taken for one of Cloud Storage."""
    try:
        answer = ask_metadata("instance/service-accounts/default/token", METADATA_TIMEOUT)
    except OSError as error:
        raise OSError(REFUSED % (str(error) or type(error).__name__)) from error
    if answer.status == 200:
        token = json.loads(answer.body)
        return token["access_token"], token["expires_in"]
    text = REFUSED % answer.status
    raise (OSError if answer.status in TRANSIENT else GcsError)(text)


class Bucket:
    """One bucket, reached as the VM's service account."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._listing = "/storage/v1/b/%s/o?" % name
        self._token = Token()
        emulator = os.environ.get(EMULATOR, "")
        self._wire = Wire(emulator if emulator.startswith(LOOPBACK) else HOST)
        self._ahead = 0.0

    def close(self) -> None:
        """Close the connections that are idle; a later request opens another one."""
        self._wire.close()

    def now(self) -> float:
        """Return the time by the service's last answer, since 1970: a host's clock may be wrong."""
        return time.time() + self._ahead

    def put(
        self, name: str, data: bytes, if_generation: int | None = None, content_type: str = "application/json"
    ) -> int:
        """Write an object and return its generation; PreconditionError if it was not `if_generation`."""
        query = {"uploadType": "media", "name": name}
        if if_generation is not None:
            query["ifGenerationMatch"] = str(if_generation)
        target = "/upload/storage/v1/b/%s/o?%s" % (self.name, urllib.parse.urlencode(query))
        try:
            written = self._call("POST", target, data, {"Content-Type": content_type})
        except FileNotFoundError:
            next(self.list(name, most=1), None)  # raises RefusedError where the bucket itself is missing
            raise
        return int(json.loads(written)["generation"])

    def create(self, name: str, data: bytes, content_type: str) -> bool:
        """Create an object once; True if it holds these bytes, also from an earlier try, False if others.

        Needs no right to overwrite. Raises GcsError.
        """
        try:
            self.put(name, data, 0, content_type)
            return True
        except PreconditionError:
            pass
        except RefusedError:
            if self.stat(name) == (0, 0):
                raise  # it may not be created either
        generation, size = self.stat(name)
        return size == len(data) and generation > 0 and self.get(name, generation) == data

    def get(self, name: str, generation: int | None = None) -> bytes:
        """Return an object's bytes, those of one generation if it is given."""
        query = "" if generation is None else "&generation=%d" % generation
        return self._call("GET", self._target(name) + "?alt=media" + query)

    def stat(self, name: str) -> Tuple[int, int]:
        """Return an object's generation and its size in bytes, zeros if it does not exist."""
        try:
            stored = json.loads(self._call("GET", self._target(name) + "?fields=generation,size"))
        except FileNotFoundError:
            return 0, 0
        return int(stored["generation"]), int(stored["size"])

    def read(self, name: str, most: int) -> Tuple[int, bytes]:
        """Return an object's generation and its first `most` bytes, by one request; 0 without the object."""
        headers = {"Range": "bytes=0-%d" % (most - 1)}
        try:
            answer = self._answer("GET", self._target(name) + "?alt=media", None, headers)
        except FileNotFoundError:
            return 0, b""
        if answer.status == EMPTY:
            return self.stat(name)[0], b""
        return int(answer.headers.get("x-goog-generation", 0)), answer.body

    def part(self, name: str, generation: int, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end` of one generation of an object."""
        headers = {"Range": "bytes=%d-%d" % (start, end - 1)}
        return self._call("GET", self._target(name) + "?alt=media&generation=%d" % generation, None, headers)

    def copy(self, name: str, generation: int, size: int, stream: IO[bytes]) -> str:
        """Write an object's bytes to a stream, and return their SHA-256 in hexadecimal."""
        digest = hashlib.sha256()
        for start in range(0, size, PART):
            data = self.part(name, generation, start, min(start + PART, size))
            digest.update(data)
            stream.write(data)
        return digest.hexdigest()

    def compose(self, sources: Sequence[Item], content_type: str, metadata: Mapping[str, str]) -> None:
        """Make one object of at most 32, in their order, over the first; the others stay.

        PreconditionError if one of them has changed, FileNotFoundError if one is gone.
        """
        target = "%s/compose?ifGenerationMatch=%d" % (self._target(sources[0].name), sources[0].generation)
        parts = [
            {"name": item.name, "objectPreconditions": {"ifGenerationMatch": str(item.generation)}}
            for item in sources
        ]
        made = {"contentType": content_type, "metadata": dict(metadata)}
        body = json.dumps({"sourceObjects": parts, "destination": made}).encode()
        self._call("POST", target, body, {"Content-Type": "application/json"})

    def delete(self, item: Item) -> None:
        """Delete an object, unless it is gone or has another generation."""
        try:
            self._call("DELETE", "%s?ifGenerationMatch=%d" % (self._target(item.name), item.generation))
        except (FileNotFoundError, PreconditionError):
            pass

    def list(self, prefix: str, glob: str = "", most: int = 1_000_000, start: str = "") -> Iterator[Item]:
        """Yield the objects whose names begin with `prefix`, in order; one request for each 1,000."""
        query = {"prefix": prefix, "fields": "items(name,generation,updated,size,metadata),nextPageToken"}
        if glob:
            query["matchGlob"] = glob
        if start:
            query["startOffset"] = start
        while most > 0:
            page = json.loads(self._call("GET", self._listing + urllib.parse.urlencode(query)))
            now = self.now()
            for item in page.get("items", ()):
                most -= 1
                age = max(0.0, now - _moment(item["updated"]))
                written, more = item["updated"][:19] + "Z", item.get("metadata", {})
                yield Item(item["name"], int(item["generation"]), age, int(item["size"]), written, more)
            query["pageToken"] = page.get("nextPageToken", "")
            if not query["pageToken"]:
                return

    def _target(self, name: str) -> str:
        return "/storage/v1/b/%s/o/%s" % (self.name, urllib.parse.quote(name, safe=""))

    def _call(
        self, method: str, target: str, data: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        """Return the body of the answer to a request that is sent again after transient failures.

        Raises FileNotFoundError for a 404, but of a listing, which only a missing bucket does not have.
        """
        return self._answer(method, target, data, headers or {}).body

    def _answer(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> Answer:
        url = HOST + target.split("?")[0]
        reason = ""
        for _ in timing.tries(timing.REQUEST_PAUSES):
            try:
                answer = self._send(method, target, data, headers)
            except OSError as error:  # timeouts, cut connections, cut responses
                reason = str(error) or type(error).__name__
                continue
            if answer.status < 300 or answer.status == EMPTY:
                return answer
            if answer.status == 412:
                raise PreconditionError(url)
            if answer.status == MISSING and not target.startswith(self._listing):
                raise FileNotFoundError(url)
            words = _words(answer.text)
            reason = "%d %s" % (answer.status, words)
            if answer.status in (FORBIDDEN, MISSING):
                raise RefusedError("%s %s" % (method, url), answer.status, words)
            if answer.status not in TRANSIENT:
                raise GcsError("%s %s: %s" % (method, url, reason))
        raise UnreachableError("%s %s: %s" % (method, url, reason))

    def _send(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> Answer:
        answer = self._wire.request(method, target, data, {**headers, "Authorization": self._token.header()})
        self._note_time(answer.headers.get("date", ""))
        return answer

    def _note_time(self, date: str) -> None:
        try:
            self._ahead = email.utils.parsedate_to_datetime(date).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):  # an answer without a time changes nothing
            pass


def _words(text: str) -> str:
    """Return the service's sentence of an error in one line, or the beginning of another answer."""
    try:
        text = str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):  # such as the page of a proxy
        pass
    return " ".join(text.split())[:300]


def _moment(text: str) -> float:
    """Return a time of the service, as 2026-01-31T23:59:59.123Z, in seconds since 1970."""
    return float(calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")))
