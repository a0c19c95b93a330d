"""What --dry-run shows is what the API's own REST client sends."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuRestTransport
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter

from tests.cloud.tpu.test_client import NODE, REQUEST
from tpuctl.cloud.tpu import api_requests
from tpuctl.nodes import Node, NodeState, SshKey

RUNNING = Node(
    NODE, NodeState.READY, "READY", "v3-8", "base", "", metadata={"ssh-keys": "bob:ssh-rsa B bob", "a": "b"}
)
KEY = SshKey("ada", "ssh-ed25519 AAAA")


class Recorder(BaseAdapter):
    """Answers each request with an operation, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[PreparedRequest] = []

    def send(self, request: PreparedRequest, *_: object, **__: object) -> Response:
        self.requests.append(request)
        response = Response()
        response.status_code, response.request = 200, request
        response._content = b'{"name": "operations/1"}'
        return response

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def rest_client(recorder: Recorder) -> tpu_v2.TpuClient:
    transport = TpuRestTransport(credentials=AnonymousCredentials())
    transport._session.mount("https://", recorder)
    return tpu_v2.TpuClient(transport=transport)


def body_of(request: PreparedRequest) -> object:
    return json.loads(request.body) if request.body else None


MESSAGES = {
    "create_node": api_requests.create(REQUEST),
    "create_node of all options": api_requests.create(
        replace(REQUEST, spot=True, service_account="sa@x", subnetwork="s", external_ips=False)
    ),
    "delete_node": api_requests.delete(NODE),
    "update_node": api_requests.add_ssh_key(RUNNING, KEY),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_the_http_form_is_what_the_rest_client_sends(
    case: str, rest_client: tpu_v2.TpuClient, recorder: Recorder
) -> None:
    message = MESSAGES[case]
    getattr(rest_client, case.split()[0])(message)
    (sent,) = recorder.requests
    preview = api_requests.as_http(message)
    sent_url, preview_url = urlsplit(sent.url), urlsplit(preview.url)
    assert (preview.method, preview_url[:3]) == (sent.method, sent_url[:3])
    system = {"$alt"}  # the client's choice of an encoding, not part of the request
    assert dict(parse_qsl(preview_url.query)) == {
        name: value for name, value in parse_qsl(sent_url.query) if name not in system
    }
    assert preview.body == body_of(sent)


def test_a_create_shows_its_options() -> None:
    preview = api_requests.as_http(api_requests.create(replace(REQUEST, spot=True, service_account="sa@x")))
    assert preview.method == "POST"
    assert preview.url == (
        "https://tpu.googleapis.com/v2/projects/sim-project/locations/europe-west4-a/nodes?nodeId=n1"
    )
    assert isinstance(preview.body, dict)
    assert preview.body["acceleratorType"] == "v3-8"
    assert preview.body["schedulingConfig"] == {"spot": True}
    assert preview.body["networkConfig"] == {"network": "default", "enableExternalIps": True}
    assert preview.body["serviceAccount"]["email"] == "sa@x"


def test_a_delete_shows_the_node() -> None:
    preview = api_requests.as_http(api_requests.delete(NODE))
    assert (preview.method, preview.url, preview.body) == (
        "DELETE",
        "https://tpu.googleapis.com/v2/projects/sim-project/locations/europe-west4-a/nodes/n1",
        None,
    )


def test_a_key_is_added_to_the_metadata_that_is_replaced_as_a_whole() -> None:
    preview = api_requests.as_http(api_requests.add_ssh_key(RUNNING, KEY))
    assert preview.method == "PATCH"
    assert preview.url.endswith("/nodes/n1?updateMask=metadata")
    assert preview.body == {"metadata": {"ssh-keys": "bob:ssh-rsa B bob\nada:ssh-ed25519 AAAA ada", "a": "b"}}
