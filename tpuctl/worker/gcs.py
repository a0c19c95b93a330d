"""Cloud Storage with nothing but the standard library: small objects, preconditions, retries."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

HOST = "https://storage.googleapis.com"
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before each try."""


class PreconditionError(Exception):
    """Somebody else has written the object."""


class GcsError(Exception):
    """Cloud Storage did not do what was asked."""


class Token:
    """The access token of the VM's service account, from the metadata server, renewed when it gets old."""

    def __init__(self) -> None:
        self._value = ""
        self._until = 0.0

    def header(self) -> str:
        """Return the value of the Authorization header."""
        if time.time() > self._until:
            host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
            url = "http://%s/computeMetadata/v1/instance/service-accounts/default/token" % host
            request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
            answer = _ask(request)
            self._value = answer["access_token"]
            self._until = time.time() + answer["expires_in"] - 120
        return "Bearer " + self._value


def _ask(request: urllib.request.Request) -> Any:
    """Return the metadata server's answer; its 404 must not be taken for one of Cloud Storage."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=20) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        error.close()
        text = "the metadata server gives no access token: %s" % error
        raise (OSError if error.code in TRANSIENT else GcsError)(text) from None


class Bucket:
    """One bucket, reached as the VM's service account."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._token = Token()

    def put(
        self, name: str, data: bytes, if_generation: int | None = None, content_type: str = "application/json"
    ) -> int:
        """Write an object and return its generation; PreconditionError if it was not `if_generation`."""
        query = {"uploadType": "media", "name": name}
        if if_generation is not None:
            query["ifGenerationMatch"] = str(if_generation)
        url = "%s/upload/storage/v1/b/%s/o?%s" % (HOST, self.name, urllib.parse.urlencode(query))
        answer = self._call("POST", url, data, {"Content-Type": content_type})
        return int(json.loads(answer)["generation"])

    def get(self, name: str) -> bytes:
        """Return an object's bytes."""
        quoted = urllib.parse.quote(name, safe="")
        return self._call("GET", "%s/storage/v1/b/%s/o/%s?alt=media" % (HOST, self.name, quoted))

    def generation(self, name: str) -> int:
        """Return an object's generation, 0 when there is no such object."""
        quoted = urllib.parse.quote(name, safe="")
        try:
            answer = self._call(
                "GET", "%s/storage/v1/b/%s/o/%s?fields=generation" % (HOST, self.name, quoted)
            )
        except FileNotFoundError:
            return 0
        return int(json.loads(answer)["generation"])

    def _call(
        self, method: str, url: str, data: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        """Send one request, again after transient failures."""
        last = ""
        for pause in PAUSES:
            time.sleep(pause)
            try:
                return self._once(method, url, data, headers or {})
            except urllib.error.HTTPError as error:
                text = _body(error)
                if error.code == 412:
                    raise PreconditionError(url) from None
                if error.code == 404:
                    raise FileNotFoundError(url) from None
                last = "%s %s" % (error.code, text[:300])
                if error.code not in TRANSIENT:
                    break
            except (OSError, http.client.HTTPException) as error:  # time-outs, cut connections and answers
                last = str(error) or type(error).__name__
        raise GcsError("%s %s: %s" % (method, url.split("?")[0], last))

    def _once(self, method: str, url: str, data: bytes | None, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        request.add_header("Authorization", self._token.header())
        with urllib.request.urlopen(request, timeout=60) as response:
            return bytes(response.read())


def _body(error: urllib.error.HTTPError) -> str:
    """What an answer says, or as much as that it was cut."""
    with error:
        try:
            return error.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return "(the answer was cut)"
