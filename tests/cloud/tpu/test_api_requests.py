"""What --dry-run shows is what the API's own REST client sends.

Requests of the Cloud TPU API that may be sent twice: which failures are tried again, and for how long.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args
from urllib.parse import parse_qsl, urlsplit

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuRestTransport
from google.protobuf import json_format
from msgspec import structs
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter

from tests.cloud.tpu.test_client import NODE, REQUEST
from tpuctl.cloud.tpu import api_requests
from tpuctl.cloud.tpu.api_requests import TIMEOUT, send, send_once
from tpuctl.cloud.tpu.error_mapping import RateLimitError
from tpuctl.errors import TpuctlError
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    DataDisk,
    DeleteNode,
    DeleteQueuedResource,
    LastingChange,
    Node,
    NodeState,
    QueuedResourceId,
    QueuedResourceRequest,
    SshKey,
    StartNode,
    StopNode,
    UpdateNode,
)
from tpuctl.polling import retry

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


BODIES = {
    "create_node": tpu_v2.Node,
    "update_node": tpu_v2.Node,
    "create_queued_resource": tpu_v2.QueuedResource,
}


def body_of(request: PreparedRequest, method: str) -> object:
    """Return the body of a request with the names of enums, for which the client sends numbers."""
    if not request.body or method not in BODIES:
        return json.loads(request.body) if request.body else None
    message = BODIES[method].pb(BODIES[method]())
    return json_format.MessageToDict(json_format.Parse(request.body, message))


EVERY_OPTION = structs.replace(
    REQUEST,
    spot=True,
    service_account="sa@x",
    subnetwork="s",
    external_ips=False,
    reserved=True,
    scopes=("https://www.googleapis.com/auth/devstorage.read_write",),
    tags=("tpu", "lab"),
    data_disks=(
        DataDisk("projects/p/zones/z/disks/d"),
        DataDisk("projects/p/zones/z/disks/e", read_only=True),
    ),
    startup_script="#!/bin/sh\necho ready\n",
    metadata={"colour": "red & blue"},
    secure_boot=True,
)
QUEUED = QueuedResourceRequest(QueuedResourceId("cloud-tpu", "sim-project", NODE.zone, "q1"), REQUEST)
CHANGES = {
    "create_node": CreateNode(REQUEST),
    "create_node of all options": CreateNode(EVERY_OPTION),
    "create_node of a topology": CreateNode(structs.replace(REQUEST, accelerator="v4-32", topology="2x2x4")),
    "delete_node": DeleteNode(NODE),
    "stop_node": StopNode(NODE),
    "start_node": StartNode(NODE),
    "update_node": UpdateNode(RUNNING, metadata={"a": "b"}),
    "update_node of labels": UpdateNode(RUNNING, labels={"team": "vision"}),
    "update_node of both": UpdateNode(RUNNING, labels={"team": "vision"}, metadata={}),
    "create_queued_resource": CreateQueuedResource(QUEUED),
    "create_queued_resource of all options": CreateQueuedResource(
        replace(
            QUEUED,
            node=EVERY_OPTION,
            slices=3,
            reservation="r1",
            valid_until="2026-01-31T12:00:00Z",
            request_id="6d2f5c2e-7a4d-4a1e-9d0e-5f3b6a8c9e10",
        )
    ),
    "delete_queued_resource": DeleteQueuedResource(QUEUED.id, force=False),
    "delete_queued_resource with its nodes": DeleteQueuedResource(QUEUED.id),
}


@pytest.mark.parametrize("case", CHANGES)
def test_the_http_form_is_what_the_rest_client_sends(
    case: str, rest_client: tpu_v2.TpuClient, recorder: Recorder
) -> None:
    message = api_requests.message(CHANGES[case])
    getattr(rest_client, case.split()[0])(message)
    (sent,) = recorder.requests
    preview = api_requests.as_http(message)
    sent_url, preview_url = urlsplit(sent.url), urlsplit(preview.url)
    assert (preview.method, preview_url[:3]) == (sent.method, sent_url[:3])
    system = {"$alt"}  # the client's choice of an encoding, not part of the request
    assert dict(parse_qsl(preview_url.query)) == {
        name: value for name, value in parse_qsl(sent_url.query) if name not in system
    }
    assert preview.body == body_of(sent, case.split()[0])


def test_a_create_shows_its_options() -> None:
    preview = api_requests.as_http(
        api_requests.message(CreateNode(structs.replace(REQUEST, spot=True, service_account="sa@x")))
    )
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
    preview = api_requests.as_http(api_requests.message(DeleteNode(NODE)))
    assert (preview.method, preview.url, preview.body) == (
        "DELETE",
        "https://tpu.googleapis.com/v2/projects/sim-project/locations/europe-west4-a/nodes/n1",
        None,
    )


def test_a_key_is_added_to_the_metadata_that_is_replaced_as_a_whole() -> None:
    change = api_requests.ssh_key_change(RUNNING, KEY)
    assert change is not None
    preview = api_requests.as_http(api_requests.message(change))
    assert preview.method == "PATCH"
    assert preview.url.endswith("/nodes/n1?updateMask=metadata")
    assert preview.body == {"metadata": {"ssh-keys": "bob:ssh-rsa B bob\nada:ssh-ed25519 AAAA ada", "a": "b"}}


def test_every_change_has_a_message_and_its_http_form() -> None:
    assert {type(change) for change in CHANGES.values()} == set(get_args(LastingChange))
    messages = [api_requests.message(change) for change in CHANGES.values()]
    assert {type(message) for message in messages} == set(api_requests.HTTP_RULES)


def test_a_queued_resource_shows_what_it_waits_for() -> None:
    preview = api_requests.as_http(api_requests.message(CHANGES["create_queued_resource of all options"]))
    assert isinstance(preview.body, dict)
    assert preview.body["reservationName"] == (
        "projects/sim-project/locations/europe-west4-a/reservations/r1"
    )
    assert preview.body["queueingPolicy"] == {"validUntilTime": "2026-01-31T12:00:00Z"}
    assert preview.body["spot"] == {}
    (spec,) = preview.body["tpu"]["nodeSpec"]
    assert spec["multisliceParams"] == {"nodeCount": 3, "nodeIdPrefix": "n1"}
    assert "nodeId" not in spec


def test_a_create_has_every_option_in_the_form_of_the_api() -> None:
    body = api_requests.as_http(api_requests.message(CreateNode(EVERY_OPTION))).body
    assert isinstance(body, dict)
    metadata = body.pop("metadata")
    assert metadata["colour"] == "red & blue"
    assert metadata["startup-script"] == "#!/bin/sh\necho ready\n"
    assert metadata.keys() == {"colour", "startup-script", "ssh-keys"}
    assert body == {
        "acceleratorType": "v3-8",
        "runtimeVersion": EVERY_OPTION.runtime,
        "labels": dict(EVERY_OPTION.labels),
        "networkConfig": {"network": "default", "subnetwork": "s"},
        "schedulingConfig": {"spot": True, "reserved": True},
        "serviceAccount": {
            "email": "sa@x", "scope": ["https://www.googleapis.com/auth/devstorage.read_write"],
        },
        "shieldedInstanceConfig": {"enableSecureBoot": True},
        "tags": ["tpu", "lab"],
        "dataDisks": [
            {"sourceDisk": "projects/p/zones/z/disks/d", "mode": "READ_WRITE"},
            {"sourceDisk": "projects/p/zones/z/disks/e", "mode": "READ_ONLY"},
        ],
    }  # fmt: skip


def test_scopes_without_an_account_and_an_account_without_scopes_are_completed() -> None:
    of_account = api_requests.message(CreateNode(structs.replace(REQUEST, service_account="sa@x")))
    scope = "https://www.googleapis.com/auth/devstorage.read_only"
    of_scopes = api_requests.message(CreateNode(structs.replace(REQUEST, scopes=(scope,))))
    plain = api_requests.message(CreateNode(REQUEST))
    bodies = [api_requests.as_http(message).body for message in (of_account, of_scopes, plain)]
    assert [body.get("serviceAccount") for body in bodies if isinstance(body, dict)] == [
        {"email": "sa@x", "scope": ["https://www.googleapis.com/auth/cloud-platform"]},
        {"scope": [scope]},
        None,
    ]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between requests, which pass no time."""
    pauses: list[float] = []
    clock = lambda: 1000.0 + sum(pauses)  # noqa: E731
    monkeypatch.setattr(api_requests, "retry", partial(retry, sleep=pauses.append, clock=clock))
    return pauses


class Api:
    """Answers with these errors, one after the other, the last one for ever; with its request after them."""

    def __init__(self, *errors: Exception, recovers: bool) -> None:
        self._errors = list(errors)
        self._recovers = recovers
        self.timeouts: list[float] = []

    def __call__(self, request: object, *, retry: object, timeout: float) -> object:
        self.timeouts.append(timeout)
        if self._errors:
            raise self._errors.pop(0) if self._recovers else self._errors[0]
        return request


TRANSIENT = (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded, exceptions.InternalServerError)


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("error", TRANSIENT)
def test_a_service_that_stays_down_is_given_up_after_twenty_seconds(
    slept: list[float], error: type[Exception], changes: bool
) -> None:
    api = Api(error("down"), recovers=False)
    with pytest.raises(TpuctlError):
        send("node 'n1'", api, "request", changes=changes)
    assert len(api.timeouts) == len(slept) + 1 > 3
    assert 10 < sum(slept) <= 20
    assert set(api.timeouts) == {TIMEOUT} == {60.0}


@pytest.mark.parametrize("error", [*TRANSIENT, exceptions.Aborted])
def test_a_failure_that_passes_is_not_noticed(slept: list[float], error: type[Exception]) -> None:
    assert send("node 'n1'", Api(error("down"), error("down"), recovers=True), "request") == "request"
    assert len(slept) == 2


@pytest.mark.parametrize(
    ("error", "changes"),
    [(exceptions.Aborted, True), (exceptions.NotFound, False), (exceptions.NotFound, True)],
)
def test_an_answer_that_another_request_would_not_change_is_an_error_at_once(
    slept: list[float], error: type[Exception], changes: bool
) -> None:
    with pytest.raises(TpuctlError):
        send("node 'n1'", Api(error("no"), recovers=True), "request", changes=changes)
    assert slept == []


RATE = exceptions.ResourceExhausted("Quota exceeded for ... limit 'Read requests per minute' of service ...")


@pytest.mark.parametrize("sender", [send, partial(send, changes=True), send_once])
def test_a_request_that_is_refused_for_its_rate_is_sent_again_for_more_than_a_minute(
    slept: list[float], sender: Callable[..., object]
) -> None:
    assert sender("node 'n1'", Api(RATE, RATE, recovers=True), "request") == "request"
    assert len(slept) == 2
    slept.clear()
    with pytest.raises(RateLimitError):
        sender("node 'n1'", Api(RATE, recovers=False), "request")
    assert 60 < sum(slept) <= 90


def test_a_request_that_takes_effect_once_is_not_sent_again_after_a_lost_answer(slept: list[float]) -> None:
    for error in (*TRANSIENT, exceptions.Aborted):
        api = Api(error("lost"), recovers=True)
        with pytest.raises(TpuctlError):
            send_once("node 'n1'", api, "request")
        assert (len(api.timeouts), slept) == (1, [])
