"""Reads and deletes this VM's own TPU through the Cloud TPU API, as the VM's service account."""

from __future__ import annotations

import email.utils
import json
import re
from dataclasses import dataclass
from http.client import HTTPMessage
from typing import Any, Dict, List, Optional, Tuple

from tpuctl.host import gcs
from tpuctl.host.keeper.records import moment
from tpuctl.host.wire import Answer, ask

URL = "https://tpu.googleapis.com"
NODE = "projects/%s/locations/%s/nodes/%s"
QUEUED_RESOURCE = re.compile(r"projects/[^/]+/locations/[^/]+/queuedResources/[^/?#]+")
API_TIMEOUT = 20.0


class ApiError(Exception):
    """The Cloud TPU API did not answer, or refused a request; the text is Google's."""


class RefusedError(ApiError):
    """The service account lacks a permission, which the text names, or the request cannot be done."""


class AbsentError(ApiError):
    """The API says that the resource does not exist."""


@dataclass(frozen=True)
class OwnNode:
    """The node that this VM belongs to, as the API shows it."""

    uid: str
    state: str
    created: float
    addresses: Tuple[str, ...]
    queued_resource: str
    """Full name; empty for a node that was created directly."""
    at: float
    """When the API answered, by its clock."""


class TpuApi:
    """The Cloud TPU API for one node."""

    def __init__(self, project: str, zone: str, node: str) -> None:
        self.name = NODE % (project, zone, node)
        self._token = gcs.Token()

    def node(self) -> OwnNode:
        """Return the node of this name; raises AbsentError only when the API says that there is none."""
        content, headers = self._call("GET", self.name)
        queued = str(content.get("queuedResource", ""))
        return OwnNode(
            uid=str(content["id"]),
            state=str(content.get("state", "")),
            created=moment(str(content["createTime"])),
            addresses=tuple(
                str(endpoint.get("ipAddress", "")) for endpoint in content.get("networkEndpoints", ())
            ),
            queued_resource=queued if QUEUED_RESOURCE.fullmatch(queued) else "",
            at=email.utils.parsedate_to_datetime(headers["Date"]).timestamp(),
        )

    def guest_attributes(self, namespace: str, worker: Optional[int] = None) -> List[Dict[str, str]]:
        """Return the guest attributes of a namespace by key, for each worker or for one alone."""
        body: Dict[str, object] = {"queryPath": namespace + "/"}
        if worker is not None:
            body["workerIds"] = [str(worker)]
        content, _ = self._call("POST", self.name + ":getGuestAttributes", body)
        return [
            {
                str(item.get("key", "")): str(item.get("value", ""))
                for item in worker.get("queryValue", {}).get("items", ())
            }
            for worker in content.get("guestAttributes", ())
        ]

    def delete(self) -> None:
        """Start to delete the node."""
        self._call("DELETE", self.name)

    def delete_queued_resource(self, name: str) -> None:
        """Start to delete a queued resource with its nodes."""
        self._call("DELETE", name + "?force=true")

    def _call(
        self, method: str, path: str, body: Optional[Dict[str, object]] = None
    ) -> Tuple[Dict[str, Any], HTTPMessage]:
        data = None if body is None else json.dumps(body).encode()
        try:
            headers = {"Authorization": self._token.header(), "Content-Type": "application/json"}
            answer = ask(URL, method, "/v2/" + path, data, headers, API_TIMEOUT)
            if answer.status < 300:
                return json.loads(answer.body), answer.headers
        except (OSError, gcs.GcsError, ValueError) as error:
            text = "no answer from the Cloud TPU API: %s" % (str(error) or type(error).__name__)
            raise ApiError(text) from None
        if answer.status == 401:  # a clock that jumped back hides that the token is too old
            self._token = gcs.Token()
        kind = {400: RefusedError, 403: RefusedError, 404: AbsentError}.get(answer.status, ApiError)
        raise kind("%s %s: %s" % (method, path, _message(answer)))


def _message(answer: Answer) -> str:
    """Return Google's own sentence, or the status."""
    try:
        return str(json.loads(answer.body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "HTTP %d" % answer.status
