"""Reads and writes small objects of Cloud Storage with the standard library alone: preconditions, retries."""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Tuple

from tpuctl.worker import timing

HOST = "https://storage.googleapis.com"
RENEW_BEFORE = 120.0
"""Seconds before a token expires at which it is renewed."""
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses that a later try may not meet."""


class PreconditionError(Exception):
    """Another process has written the object."""


class GcsError(Exception):
    """Cloud Storage refused a request, or did not answer in any try."""


class ForbiddenError(GcsError):
    """The VM's service account lacks a permission: to overwrite an object, it needs to delete it."""


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
    """Return a token and its seconds to live; a 404 here must not be taken for one of Cloud Storage."""
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = "http://%s/computeMetadata/v1/instance/service-accounts/default/token" % host
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})  # noqa: S310  always http
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=20) as response:
            token = json.load(response)
            return token["access_token"], token["expires_in"]
    except urllib.error.HTTPError as error:
        error.close()
        text = "the metadata server gives no access token: %s" % error
        raise (OSError if error.code in TRANSIENT else GcsError)(text) from None


class Bucket:
    """One bucket, reached as the VM's service account."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._token = Token()
        self._ahead = 0.0

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
        url = "%s/upload/storage/v1/b/%s/o?%s" % (HOST, self.name, urllib.parse.urlencode(query))
        written = self._call("POST", url, data, {"Content-Type": content_type})
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
        except ForbiddenError:
            if self.stat(name) == (0, 0):
                raise  # it may not be created either
        generation, size = self.stat(name)
        return size == len(data) and generation > 0 and self.get(name, generation) == data

    def get(self, name: str, generation: int | None = None) -> bytes:
        """Return an object's bytes, those of one generation if it is given."""
        query = "" if generation is None else "&generation=%d" % generation
        return self._call("GET", self._url(name) + "?alt=media" + query)

    def stat(self, name: str) -> Tuple[int, int]:
        """Return an object's generation and its size in bytes, zeros if it does not exist."""
        try:
            stored = json.loads(self._call("GET", self._url(name) + "?fields=generation,size"))
        except FileNotFoundError:
            return 0, 0
        return int(stored["generation"]), int(stored["size"])

    def _url(self, name: str) -> str:
        return "%s/storage/v1/b/%s/o/%s" % (HOST, self.name, urllib.parse.quote(name, safe=""))

    def _call(
        self, method: str, url: str, data: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        """Send a request, and again after transient failures; raises FileNotFoundError for a 404."""
        reason = ""
        for _ in timing.tries(timing.REQUEST_PAUSES):
            try:
                return self._send(method, url, data, headers or {})
            except urllib.error.HTTPError as error:
                text = _body(error)
                if error.code == 412:
                    raise PreconditionError(url) from None
                if error.code == 404:
                    raise FileNotFoundError(url) from None
                reason = "%s %s" % (error.code, text[:300])
                if error.code == 403:
                    raise ForbiddenError("%s %s: %s" % (method, url.split("?")[0], reason)) from None
                if error.code not in TRANSIENT:
                    break
            except (OSError, http.client.HTTPException) as error:  # timeouts, cut connections, cut responses
                reason = str(error) or type(error).__name__
        raise GcsError("%s %s: %s" % (method, url.split("?")[0], reason))

    def _send(self, method: str, url: str, data: bytes | None, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310  always http
        request.add_header("Authorization", self._token.header())
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310  always http
            self._note_time(response.headers.get("Date", ""))
            return bytes(response.read())

    def _note_time(self, date: str) -> None:
        try:
            self._ahead = email.utils.parsedate_to_datetime(date).timestamp() - time.time()
        except (TypeError, ValueError):  # an answer without a time changes nothing
            pass


def _body(error: urllib.error.HTTPError) -> str:
    """Return an error response's text, or that it was cut."""
    with error:
        try:
            return error.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return "(the response was cut)"
