"""Who is admitted to the simulator, over HTTP and gRPC.

By owner or secret, with no body that a web page may send.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import requests
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.running_simulator import RunningSimulator
from tests.sim.access.grpc_call import Call
from tests.sim.live_host import PARENT, User, tpu_client, wait_until
from tpuctl.sim import simulator as simulator_module
from tpuctl.sim.access import Address, Guard, Secret, json_bodies, page_refusal, refused
from tpuctl.sim.tpu_servers import GrpcGuard

CLIENT, SERVER = ("127.0.0.1", 50000), ("127.0.0.1", 80)
FOREIGN = "The request is refused: the simulator is for the user who started it alone."


class Connection(asyncio.Transport):
    """One end of an open connection, by its addresses."""

    def __init__(self, client: Address | None = CLIENT, server: Address | None = SERVER) -> None:
        super().__init__({"peername": client, "sockname": server})
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing


class Owners:
    """Says who owns a client's end, and counts how often it is asked."""

    def __init__(self, uid: int | None) -> None:
        self.uid = uid
        self.asked: list[tuple[Address, Address]] = []

    def __call__(self, client: Address, server: Address) -> int | None:
        self.asked.append((client, server))
        return self.uid


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path / "secret")


@pytest.mark.parametrize(
    ("uid", "trusted"), [(os.geteuid(), True), (os.getuid(), True), (0, True), (65_534, False), (None, False)]
)
def test_a_connection_of_this_user_or_of_root_is_trusted(
    secret: Secret, uid: int | None, trusted: bool
) -> None:
    guard = Guard(secret, Owners(uid))
    assert guard.knows_users
    assert guard.trusts(Connection()) is trusted
    assert guard.trusts_address(CLIENT, SERVER) is trusted
    assert guard.is_foreign_address(CLIENT, SERVER) is not trusted


def test_the_system_is_asked_once_a_connection(secret: Secret) -> None:
    owners = Owners(0)
    guard, connection = Guard(secret, owners), Connection(("::ffff:127.0.0.1", 50000), SERVER)
    assert guard.trusts(connection)
    assert guard.trusts(connection)
    assert owners.asked == [(CLIENT, SERVER)]


@pytest.mark.parametrize("connection", [None, Connection(None, SERVER), Connection(CLIENT, None)])
def test_a_connection_without_addresses_is_nobodys(secret: Secret, connection: Connection | None) -> None:
    assert not Guard(secret, Owners(0)).trusts(connection)


def test_a_connection_that_has_shown_the_secret_is_trusted(secret: Secret) -> None:
    guard, connection = Guard(secret, Owners(65_534)), Connection()
    assert not guard.trusts(connection)
    guard.trust(connection)
    assert guard.trusts(connection)


def test_where_the_system_does_not_tell_the_simulators_own_hops_are_trusted(secret: Secret) -> None:
    guard = Guard(secret, None)
    assert not guard.knows_users
    assert not guard.trusts(Connection())
    assert not guard.is_foreign_address(CLIENT, SERVER), "nobody knows"
    hop = Connection(SERVER, CLIENT)
    guard.add_hop(hop)
    assert guard.trusts_address(CLIENT, SERVER)
    hop.closing = True
    assert not guard.trusts_address(CLIENT, SERVER)


def test_a_connection_that_has_been_closed_is_foreign(secret: Secret) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert not Guard(secret, Owners(0)).is_foreign(accepted)
            assert Guard(secret, Owners(65_534)).is_foreign(accepted)
        assert Guard(secret, Owners(0)).is_foreign(accepted)


def refusal(guard: Guard, **headers: str) -> str:
    named = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return guard.refusal(make_mocked_request("GET", "/", headers=named, transport=Connection()))


def test_a_request_is_admitted_by_its_connection_or_by_the_secret(secret: Secret) -> None:
    own, other = Guard(secret, Owners(0)), Guard(secret, Owners(65_534))
    basic = base64.b64encode(f"user:{secret.text}".encode()).decode()
    assert (refusal(own), refusal(other)) == ("", FOREIGN)
    assert refusal(other, Authorization=f"Bearer {secret.text}") == ""
    assert refusal(other, Authorization=f"  bearer   {secret.text}  ") == ""
    assert refusal(other, Authorization=f"Basic {basic}") == ""
    wrong = base64.b64encode(f"{secret.text}:x".encode()).decode()
    for text in (
        f"Bearer {secret.text}x",
        secret.text,
        f"Basic {secret.text}",
        f"Basic {wrong}",
        f"Digest {secret.text}",
        "",
    ):
        assert refusal(other, Authorization=text) == FOREIGN


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Origin": "https://evil.example"}, "it comes from a web page (Origin: https://evil.example)"),
        ({"Origin": "null"}, "it comes from a web page (Origin: null)"),
        ({"Origin": "bot:iap-tunneler"}, ""),
        ({"Sec-Fetch-Site": "same-origin"}, "it comes from a web page (Sec-Fetch-Site: same-origin)"),
        ({"Sec-Fetch-Site": "none"}, ""),
        ({"Host": "evil.example"}, "the simulator is not called evil.example"),
        ({"Host": "tunnel.cloudproxy.app"}, ""),
        ({"Host": "www.googleapis.com"}, ""),
    ],
)
def test_a_page_of_the_web_is_refused_whoever_sends_it(
    secret: Secret, headers: dict[str, str], reason: str
) -> None:
    request: Any = make_mocked_request("GET", "/", headers=headers, transport=Connection())
    assert page_refusal(request.headers) == reason
    assert Guard(secret, Owners(0)).refusal(request) == (
        f"The request is refused: {reason}." if reason else ""
    )


def test_a_refusal_is_googles_json() -> None:
    answer = refused("no")
    assert answer.status == 403
    assert json.loads(answer.text or "") == {
        "error": {"code": 403, "message": "no", "status": "PERMISSION_DENIED"}
    }


def test_the_secret_is_kept_and_private(tmp_path: Path) -> None:
    first = Secret(tmp_path / "secret")
    assert len(first.text) >= 43, "32 bytes"
    assert Secret(tmp_path / "secret").text == first.text != Secret(tmp_path / "other").text
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


BUCKET = "sim-project-tpuctl"


@pytest.fixture
def blind(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningSimulator]:
    """A simulator on a system that tells nothing about connections."""
    monkeypatch.setattr(simulator_module, "system_owner", lambda: None)
    running = RunningSimulator(tmp_path / "state" / "sim")
    yield running
    running.close()


@pytest.fixture
def http() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


def secret_of(running: RunningSimulator) -> str:
    return (running.folder / "secret").read_text()


def test_http_needs_it_as_bearer_or_in_the_url(blind: RunningSimulator, http: requests.Session) -> None:
    storage, secret = blind.simulator.endpoints["storage"], secret_of(blind)
    url = f"{storage}/storage/v1/b/{BUCKET}"
    with_user = url.replace("http://", f"http://sim:{secret}@")
    answers = [
        http.get(url, timeout=60),
        http.get(url, timeout=60, headers={"Authorization": "Bearer wrong"}),
        http.get(url, timeout=60, headers={"Authorization": f"Bearer {secret}"}),
        http.get(with_user, timeout=60),
        http.get(with_user, timeout=60, headers={"Origin": "https://evil.example"}),
        http.get(f"http://{blind.simulator.endpoints['metadata']}/computeMetadata/v1/", timeout=60),
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 200, 200, 403, 403]


def test_a_header_of_any_bytes_is_a_wrong_secret(blind: RunningSimulator) -> None:
    """Else anybody could fill the simulator's log with tracebacks."""
    host, _, port = blind.simulator.endpoints["storage"].removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xc3\xa9\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 403 ")


def test_the_proxy_needs_it_once_and_what_is_inside_is_trusted(
    blind: RunningSimulator, http: requests.Session
) -> None:
    endpoints = blind.simulator.endpoints
    http.verify = endpoints["ca_file"]
    urls = [
        f"https://storage.googleapis.com/storage/v1/b/{BUCKET}",
        f"https://tpu.googleapis.com/v2/{PARENT}/nodes",
    ]
    with pytest.raises(requests.exceptions.ProxyError, match="407"):
        http.get(urls[0], proxies={"https": endpoints["proxy"]}, timeout=60)
    proxy = endpoints["proxy"].replace("http://", f"http://sim:{secret_of(blind)}@")
    assert [http.get(url, proxies={"https": proxy}, timeout=60).status_code for url in urls] == [200, 200]


def test_grpc_needs_it_in_the_metadata_and_ssh_a_key(blind: RunningSimulator, tmp_path: Path) -> None:
    endpoints, user = blind.simulator.endpoints, User(tmp_path)
    with tpu_client(endpoints["tpu_grpc"]) as client, pytest.raises(exceptions.PermissionDenied):
        list(client.list_nodes(parent=PARENT))
    node = tpu_v2.Node(
        accelerator_type="v3-8",
        runtime_version="tpu-ubuntu2204-base",
        network_config={"enable_external_ips": True},
        metadata={"ssh-keys": user.key_line},
    )
    metadata = [("authorization", f"Bearer {secret_of(blind)}")]
    with grpc.insecure_channel(endpoints["tpu_grpc"], options=[("grpc.enable_http_proxy", 0)]) as channel:
        client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        client.create_node(parent=PARENT, node_id="one", node=node, metadata=metadata)
    wait_until(lambda: blind.world.nodes.all()[0].state == "READY")
    address = blind.world.nodes.all()[0].hosts()[0].address
    assert user.run(Path(endpoints["hosts_file"]), address, "echo hello") == "hello\n"


def test_it_is_private_and_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    first = Secret(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Secret(path).text == first.text
    basic = base64.b64encode(f"sim:{first.text}".encode()).decode()
    allowed = ["Bearer " + first.text, "bearer " + first.text, "Basic " + basic]
    refused = ["", "Bearer", "Bearer ", first.text, f"Bearer {first.text}x", "Basic ####", "Basic c2ltOg=="]
    assert [first.allows(text) for text in allowed] == [True] * len(allowed)
    assert [first.allows(text) for text in refused] == [False] * len(refused)


GRPC_SERVER = ("127.0.0.1", 80)
OWNERS = {("127.0.0.1", 5000): os.geteuid(), ("::1", 5000): os.geteuid(), ("127.0.0.1", 6000): 65_534}


class Aborted(Exception):
    """A call was ended with a status."""


class Context(Call):
    """A call that can be ended."""

    async def abort(self, code: grpc.StatusCode, message: str) -> None:
        raise Aborted(code, message)


async def echo(request: Any, context: Any) -> Any:
    return f"answer to {request}"


class Door:
    """A guarded method, and how often a call was admitted to it."""

    def __init__(self, folder: Path) -> None:
        self.secret = Secret(folder / "secret")
        self.calls = 0
        self._guard = GrpcGuard(Guard(self.secret, self._owner), lambda: GRPC_SERVER, self._note)

    def _owner(self, client: Address, server: Address) -> int | None:
        assert server == GRPC_SERVER
        return OWNERS.get(client)

    def _note(self) -> None:
        self.calls += 1

    def intercept(self, handler: Any) -> Any:
        async def find(_: object) -> Any:
            return handler

        details: Any = SimpleNamespace(method="/tpu/GetNode")
        return asyncio.run(self._guard.intercept_service(find, details))

    def call(self, context: Context) -> Any:
        handler = self.intercept(grpc.unary_unary_rpc_method_handler(echo))
        return asyncio.run(handler.unary_unary("hello", context))


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


@pytest.mark.parametrize(
    "peer", ["ipv4:127.0.0.1:5000", "ipv6:%5B::1%5D:5000", "ipv6:[::ffff:127.0.0.1]:5000"]
)
def test_a_call_of_this_user_is_answered(door: Door, peer: str) -> None:
    assert (door.call(Context(peer)), door.calls) == ("answer to hello", 1)


@pytest.mark.parametrize(
    "peer", ["ipv4:127.0.0.1:6000", "ipv4:127.0.0.1:7000", "unix:/tmp/socket", "ipv4:x:1", ""]
)
def test_another_call_needs_the_secret(door: Door, peer: str) -> None:
    for metadata in ({}, {"authorization": "Bearer wrong"}, {"other": f"Bearer {door.secret.text}"}):
        with pytest.raises(Aborted) as aborted:
            door.call(Context(peer, **metadata))
        assert aborted.value.args == (
            grpc.StatusCode.PERMISSION_DENIED,
            "The call is refused: the simulator is for the user who started it alone.",
        )
    assert door.calls == 0
    context = Context(peer, authorization=f"Bearer {door.secret.text}")
    assert (door.call(context), door.calls) == ("answer to hello", 1)


def test_a_method_keeps_its_messages(door: Door) -> None:
    handler = door.intercept(grpc.unary_unary_rpc_method_handler(echo, bytes.decode, str.encode))
    assert (handler.request_deserializer, handler.response_serializer) == (bytes.decode, str.encode)


def test_an_unknown_method_stays_unknown_and_a_stream_is_none(door: Door) -> None:
    assert door.intercept(None) is None
    with pytest.raises(TypeError, match="GetNode streams, and would have no guard"):
        door.intercept(grpc.unary_stream_rpc_method_handler(echo))


def answered(body: bytes, content_type: str | None) -> tuple[int, object]:
    """Post a body to an API behind the middleware; return its status and JSON."""

    async def echo(request: web.Request) -> web.Response:
        return web.json_response(len(await request.read()))

    async def run() -> tuple[int, object]:
        application = web.Application(middlewares=[json_bodies])
        application.router.add_post("/", echo)
        headers = {"Content-Type": content_type} if content_type else {}
        skipped = [] if content_type else ["Content-Type"]
        async with (
            TestClient(TestServer(application), skip_auto_headers=skipped) as client,
            client.post("/", data=body, headers=headers) as answer,
        ):
            return answer.status, await answer.json()

    return asyncio.run(run())


FORM = "This API does not support parsing form-encoded input."


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        ("application/x-www-form-urlencoded", FORM),
        ("multipart/form-data; boundary=b", FORM),
        ("text/plain;charset=UTF-8", "Unsupported content with type: text/plain"),
    ],
)
def test_a_body_of_a_page_is_refused_and_an_empty_one_is_not(content_type: str, message: str) -> None:
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    assert answered(b"{}", content_type) == (400, {"error": error})
    assert answered(b"", content_type) == (200, 0)


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=UTF-8", "text/x", None]
)
def test_another_body_is_taken(content_type: str | None) -> None:
    assert answered(b"{}", content_type) == (200, 2)
