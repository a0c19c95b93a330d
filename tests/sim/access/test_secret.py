"""Where the system does not tell whose a connection is, the secret alone opens the doors."""

from __future__ import annotations

import base64
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import requests
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, User, tpu_client, wait_until
from tpuctl.sim import simulator as simulator_module
from tpuctl.sim.access import Secret

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
