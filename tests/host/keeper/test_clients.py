"""What a keeper asks of the metadata server and of the Cloud TPU API, and what it makes of their answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.cloud.web_server import QuietServer
from tests.isolation.ports import refusing_port
from tpuctl.host import gcs
from tpuctl.host.keeper import keeper as module
from tpuctl.host.keeper.keeper import (
    AbsentError,
    ApiError,
    Metadata,
    MetadataError,
    MetadataServer,
    RefusedError,
    TpuApi,
)

DATE = "Fri, 15 Jan 2027 08:00:00 GMT"
NODE = "projects/p/locations/z/nodes/n1"
CREATED = {"id": "7", "createTime": "2027-01-15T07:00:00.123Z"}


class Service(QuietServer):
    """Gives some answers, one a request, each a status and a body."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, object]] = []
        self.requests: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.place = f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path, body))
        self.server.headers.append(dict(self.headers.items()))
        status, answer = self.server.answers.pop(0)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response_only(status)
        for name, value in {"Date": DATE, "ETag": "e2", "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_DELETE = do_GET


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class TestMetadata:
    @pytest.fixture
    def server(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> MetadataServer:
        monkeypatch.setenv("GCE_METADATA_HOST", service.place)
        return MetadataServer()

    def test_attributes_come_with_the_time_of_the_server(
        self, service: Service, server: MetadataServer
    ) -> None:
        service.answers = [(200, {"a": "b"})]
        assert server.attributes() == Metadata({"a": "b"}, 1_800_000_000.0, "e2")
        path = "/computeMetadata/v1/instance/attributes/?recursive=true&alt=json"
        assert service.requests == [("GET", path, b"")]
        assert service.headers[0]["Metadata-Flavor"] == "Google"

    @pytest.mark.parametrize(("wait", "seconds"), [(0.5, 1), (1.0, 1), (30.9, 30)])
    def test_a_change_is_awaited(
        self, service: Service, server: MetadataServer, wait: float, seconds: int
    ) -> None:
        service.answers = [(200, {})]
        server.attributes(Metadata({}, 0.0, "e1"), wait)
        assert service.requests[0][1].endswith(
            f"?recursive=true&alt=json&wait_for_change=true&last_etag=e1&timeout_sec={seconds}"
        )

    def test_a_value_is_text(self, service: Service, server: MetadataServer) -> None:
        service.answers = [(200, "projects/7/zones/zürich".encode())]
        assert server.text("instance/zone") == "projects/7/zones/zürich"
        assert service.requests[0][:2] == ("GET", "/computeMetadata/v1/instance/zone")

    def test_a_guest_attribute_is_written(self, service: Service, server: MetadataServer) -> None:
        service.answers = [(200, b"")]
        server.publish("tpuctl", "keeper", b"{}")
        path = "/computeMetadata/v1/instance/guest-attributes/tpuctl/keeper"
        assert service.requests == [("PUT", path, b"{}")]

    def test_a_refusal_names_what_was_asked(self, service: Service, server: MetadataServer) -> None:
        service.answers = [(404, b"no")]
        with pytest.raises(MetadataError, match=r"refused instance/attributes/: HTTP Error 404"):
            server.attributes()

    @pytest.mark.parametrize("body", [b"<html>", b"[1]", b"7"])
    def test_what_is_no_answer_of_googles_is_named(
        self, service: Service, server: MetadataServer, body: bytes
    ) -> None:
        service.answers = [(200, body)]
        with pytest.raises(MetadataError, match="does not answer as Google's does"):
            server.attributes()

    def test_a_server_that_is_not_there_is_named(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with refusing_port() as port:
            monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{port}")
            with pytest.raises(MetadataError, match=r"does not answer: .*refused"):
                MetadataServer().attributes()

    def test_it_is_asked_for_the_slice(self) -> None:
        attributes = {
            "agent-worker-number": "3", "worker-network-endpoints": "a:1,b:2,c:3",
            "tpu-env": "NODE_ID: 'n1'\nZONE: 'z'\nEMPTY: ''\n",
        }  # fmt: skip
        metadata = Metadata(attributes, 0.0, "")
        assert (metadata.worker, metadata.hosts) == (3, 3)
        assert metadata.environment == {"NODE_ID": "n1", "ZONE": "z", "EMPTY": ""}

    def test_a_single_host_says_nothing_of_a_slice(self) -> None:
        metadata = Metadata({}, 0.0, "")
        assert (metadata.worker, metadata.hosts, metadata.environment) == (0, 1, {})


class TestApi:
    @pytest.fixture
    def api(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> TpuApi:
        monkeypatch.setattr(module, "URL", f"http://{service.place}/v2/")
        monkeypatch.setattr(gcs, "_request_token", lambda: ("t", 3600))  # the metadata server's
        return TpuApi("p", "z", "n1")

    def test_the_node_is_as_the_api_shows_it(self, service: Service, api: TpuApi) -> None:
        queued = "projects/p/locations/z/queuedResources/q1"
        endpoints = [{"ipAddress": "10.0.0.1"}, {}]
        service.answers = [
            (200, {**CREATED, "state": "READY", "networkEndpoints": endpoints, "queuedResource": queued})
        ]
        node = api.node()
        assert (node.uid, node.state, node.addresses) == ("7", "READY", ("10.0.0.1", ""))
        assert (node.created, node.at) == (1_800_000_000 - 3600, 1_800_000_000)
        assert node.queued_resource == queued
        assert service.requests == [("GET", f"/v2/{NODE}", b"")]
        assert service.headers[0]["Authorization"] == "Bearer t"
        assert service.headers[0]["Content-Type"] == "application/json"

    def test_a_node_may_have_little(self, service: Service, api: TpuApi) -> None:
        service.answers = [(200, CREATED)]
        node = api.node()
        assert (node.state, node.addresses, node.queued_resource) == ("", (), "")

    @pytest.mark.parametrize("name", ["q1", "projects/p/locations/z/queuedResources/q1?force=false"])
    def test_a_queued_resource_has_a_full_name(self, service: Service, api: TpuApi, name: str) -> None:
        service.answers = [(200, {**CREATED, "queuedResource": name})]
        assert api.node().queued_resource == ""

    def test_guest_attributes_are_those_of_each_worker(self, service: Service, api: TpuApi) -> None:
        items = [{"key": "keeper", "value": "note"}, {"key": "k"}, {"value": "v"}]
        service.answers = [
            (200, {"guestAttributes": [{"queryValue": {"items": items}}, {}]}),
            (200, {}),
            (200, {}),
        ]
        assert api.guest_attributes("tpuctl") == [{"keeper": "note", "k": "", "": "v"}, {}]
        assert api.guest_attributes("tpuctl") == []
        assert api.guest_attributes("tpuctl", 3) == []
        assert {(method, path) for method, path, _ in service.requests} == {
            ("POST", f"/v2/{NODE}:getGuestAttributes")
        }
        assert [json.loads(body) for *_, body in service.requests[1:]] == [
            {"queryPath": "tpuctl/"}, {"queryPath": "tpuctl/", "workerIds": ["3"]},
        ]  # fmt: skip

    def test_node_and_queued_resource_are_deleted(self, service: Service, api: TpuApi) -> None:
        service.answers = [(200, {}), (200, {})]
        api.delete()
        api.delete_queued_resource("projects/p/locations/z/queuedResources/q1")
        assert service.requests == [
            ("DELETE", f"/v2/{NODE}", b""),
            ("DELETE", "/v2/projects/p/locations/z/queuedResources/q1?force=true", b""),
        ]

    @pytest.mark.parametrize(
        ("status", "kind"),
        [(400, RefusedError), (401, ApiError), (403, RefusedError), (404, AbsentError), (503, ApiError)],
    )
    def test_a_refusal_has_googles_sentence(
        self, service: Service, api: TpuApi, status: int, kind: type[ApiError]
    ) -> None:
        service.answers = [(status, {"error": {"message": "Not today."}})]
        with pytest.raises(ApiError) as caught:
            api.delete()
        assert type(caught.value) is kind
        assert str(caught.value) == f"DELETE {NODE}: Not today."

    @pytest.mark.parametrize("body", [b"no json", b"[]", b'{"error": 3}', b"{}"])
    def test_a_refusal_without_a_sentence_has_its_status(
        self, service: Service, api: TpuApi, body: bytes
    ) -> None:
        service.answers = [(404, body)]
        with pytest.raises(AbsentError, match=f"^GET {NODE}: HTTP 404$"):
            api.node()

    @pytest.mark.parametrize(("status", "is_renewed"), [(401, True), (403, False)])
    def test_a_token_that_is_refused_is_renewed(
        self, service: Service, api: TpuApi, monkeypatch: pytest.MonkeyPatch, status: int, is_renewed: bool
    ) -> None:
        service.answers = [(200, {}), (status, {}), (200, {})]
        api.delete()
        monkeypatch.setattr(gcs, "_request_token", lambda: ("t2", 3600))
        with pytest.raises(ApiError):
            api.delete()
        api.delete()
        assert [headers["Authorization"] for headers in service.headers] == [
            "Bearer t", "Bearer t", "Bearer t2" if is_renewed else "Bearer t",
        ]  # fmt: skip

    def test_an_answer_that_is_none_is_named(self, service: Service, api: TpuApi) -> None:
        service.answers = [(200, b"<html>")]
        with pytest.raises(ApiError, match=r"^no answer from the Cloud TPU API: .*Expecting value"):
            api.node()

    def test_an_api_that_is_not_there_is_named(self, api: TpuApi, monkeypatch: pytest.MonkeyPatch) -> None:
        with refusing_port() as port:
            monkeypatch.setattr(module, "URL", f"http://127.0.0.1:{port}/v2/")
            with pytest.raises(ApiError, match=r"^no answer from the Cloud TPU API: .*refused"):
                api.node()
