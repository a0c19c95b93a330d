"""Reads the metadata server of this VM, which also tells the time, and writes guest attributes."""

from __future__ import annotations

import email.utils
import json
import re
import urllib.parse
from dataclasses import dataclass
from http.client import responses
from typing import Dict, Optional

from tpuctl.host.wire import Answer, ask_metadata

METADATA_TIMEOUT = 10.0
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

    def attributes(self, last: Optional[Metadata] = None, wait: float = 0.0) -> Metadata:
        """Return the attributes; with `last`, once they differ or after `wait` seconds."""
        query = {"recursive": "true", "alt": "json"}
        if last is not None:
            timeout = str(max(1, int(wait)))
            query.update(wait_for_change="true", last_etag=last.etag, timeout_sec=timeout)
        path = "instance/attributes/?" + urllib.parse.urlencode(query)
        answer = self._ask(path, timeout=METADATA_TIMEOUT + wait)
        try:
            date = email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
            return Metadata(dict(json.loads(answer.body)), date, answer.headers.get("ETag", "0"))
        except (ValueError, TypeError) as error:
            raise MetadataError("the metadata server does not answer as Google's does: %s" % error) from None

    def text(self, path: str) -> str:
        """Return one value, such as `instance/zone`."""
        return self._ask(path).body.decode()

    def publish(self, namespace: str, key: str, value: bytes) -> None:
        """Write a guest attribute, which the Cloud TPU API shows."""
        self._ask("instance/guest-attributes/%s/%s" % (namespace, key), value)

    def _ask(self, path: str, data: Optional[bytes] = None, timeout: float = METADATA_TIMEOUT) -> Answer:
        try:
            answer = ask_metadata(path, timeout, data)
        except OSError as error:
            raise MetadataError("the metadata server does not answer: %s" % error) from None
        if answer.status >= 300:
            reason = "HTTP Error %d: %s" % (answer.status, responses.get(answer.status, ""))
            raise MetadataError("the metadata server refused %s: %s" % (path.split("?")[0], reason))
        return answer
