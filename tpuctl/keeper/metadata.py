"""Reads the metadata server of this VM, which also tells the time, and writes guest attributes."""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Dict, Optional

TIMEOUT = 10.0
ROOT = "http://%s/computeMetadata/v1/"
_ENVIRONMENT_LINE = re.compile(r"(?<![A-Z_])([A-Z_]+): '([^']*)'")


class MetadataError(Exception):
    """The metadata server did not answer, or not as Google's does."""


@dataclass(frozen=True)
class Metadata:
    """The attributes of this VM at one moment."""

    attributes: Dict[str, str]
    at: float
    """Seconds since 1970 by the server's clock: the VM's own may be wrong."""
    etag: str

    @property
    def worker(self) -> int:
        """Which worker of the slice this VM is."""
        return int(self.attributes.get("agent-worker-number", "0"))

    @property
    def hosts(self) -> int:
        """How many VMs the slice has."""
        return len(self.attributes.get("worker-network-endpoints", "").split(","))

    @property
    def environment(self) -> Dict[str, str]:
        """The variables in which libtpu finds its slice: NODE_ID, ZONE, CONSUMER_PROJECT_ID ..."""
        return dict(_ENVIRONMENT_LINE.findall(self.attributes.get("tpu-env", "")))


class MetadataServer:
    """The server of the VM that this program runs on."""

    def __init__(self) -> None:
        self._root = ROOT % os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def attributes(self, last: Optional[Metadata] = None, wait: float = 0.0) -> Metadata:
        """Return the attributes; with `last`, once they differ or after `wait` seconds."""
        query = {"recursive": "true", "alt": "json"}
        if last is not None:
            timeout = str(max(1, int(wait)))
            query.update(wait_for_change="true", last_etag=last.etag, timeout_sec=timeout)
        path = "instance/attributes/?" + urllib.parse.urlencode(query)
        content, headers = self._request(path, timeout=TIMEOUT + wait)
        try:
            date = email.utils.parsedate_to_datetime(headers["Date"]).timestamp()
            return Metadata(dict(json.loads(content)), date, headers.get("ETag", "0"))
        except (ValueError, TypeError) as error:
            raise MetadataError("the metadata server does not answer as Google's does: %s" % error) from None

    def text(self, path: str) -> str:
        """Return one value, such as `instance/zone`."""
        return self._request(path)[0].decode()

    def publish(self, namespace: str, key: str, value: bytes) -> None:
        """Write a guest attribute, which the Cloud TPU API shows."""
        self._request("instance/guest-attributes/%s/%s" % (namespace, key), value)

    def _request(
        self, path: str, data: "bytes | None" = None, timeout: float = TIMEOUT
    ) -> "tuple[bytes, http.client.HTTPMessage]":
        method = "GET" if data is None else "PUT"
        headers = {"Metadata-Flavor": "Google"}
        request = urllib.request.Request(self._root + path, data, headers, method=method)  # noqa: S310  http
        try:
            with self._open(request, timeout=timeout) as response:
                return response.read(), response.headers
        except urllib.error.HTTPError as error:
            error.close()
            raise MetadataError("the metadata server refused %s: %s" % (path.split("?")[0], error)) from None
        except (OSError, http.client.HTTPException) as error:
            raise MetadataError("the metadata server does not answer: %s" % error) from None
