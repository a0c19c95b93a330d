"""Google's clients as they are, without an argument: only the environment leads them to the simulator.

Clients on httplib2, such as SkyPilot's: through the proxy with PySocks, and never past it without.
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import shlex
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, User
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.token_server import project_number, service_account

CREATE = """
import sys
from google.cloud import tpu_v2
client = tpu_v2.TpuClient()
parent = "projects/sim-project/locations/europe-west4-a"
node = tpu_v2.Node(
    accelerator_type="v3-8",
    runtime_version="tpu-ubuntu2204-base",
    network_config={"enable_external_ips": True},
    metadata={"ssh-keys": sys.argv[1]},
)
created = client.create_node(parent=parent, node_id="one", node=node).result(timeout=60)
print(client.api_endpoint, created.state.name, len(list(client.list_nodes(parent=parent))))
"""
STORE = """
from google.cloud import storage
client = storage.Client()
bucket = client.bucket("sim-project-tpuctl")
bucket.blob("from/outside").upload_from_string(b"hello")
print(client.project, [blob.name for blob in client.list_blobs(bucket)])
"""
RUST = """
import obstore
from obstore.store import GCSStore
store = GCSStore("sim-project-tpuctl")
data = bytes(range(256)) * 24_000
obstore.put(store, "rust/big", data, chunk_size=5 << 20)
obstore.put(store, "rust/small", b"small", mode="create")
print(obstore.get(store, "rust/big").bytes() == data)
print(bytes(obstore.get_range(store, "rust/big", start=10, end=12)).hex())
print(obstore.head(store, "rust/small")["size"])
try:
    obstore.put(store, "rust/small", b"other", mode="create")
except obstore.exceptions.AlreadyExistsError:
    print("exists")
obstore.rename(store, "rust/small", "rust/moved")
print(sorted(meta["path"] for page in obstore.list(store, "rust") for meta in page))
obstore.delete(store, ["rust/moved", "rust/big"])
"""
REFUSED = """
import google.auth, google.auth.exceptions, google.auth.transport.requests, google.oauth2.credentials
user = google.oauth2.credentials.Credentials(
    None, refresh_token="x", client_id="x", client_secret="x", token_uri="https://oauth2.googleapis.com/token"
)
try:
    user.refresh(google.auth.transport.requests.Request())
except google.auth.exceptions.TransportError as error:
    print("refused", "403" in str(error))
"""
ON_HOST = """
import urllib.request
from google.cloud import storage, tpu_v2
from google.oauth2 import id_token
import google.auth.transport.requests
import os
def metadata(path):
    url = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/{path}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    return urllib.request.urlopen(request).read().decode()
project, zone = metadata("project/project-id"), metadata("instance/zone").rpartition("/")[2]
node_id = metadata("instance/attributes/instance-id")
client = tpu_v2.TpuClient()
node = client.get_node(name=f"projects/{project}/locations/{zone}/nodes/{node_id}")
print(client.api_endpoint, node.state.name, node.metadata["colour"])
url = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/guest-attributes/run/state"
headers = {"Metadata-Flavor": "Google"}
urllib.request.urlopen(urllib.request.Request(url, data=b"busy", headers=headers, method="PUT"))
(found,) = client.get_guest_attributes(
    tpu_v2.GetGuestAttributesRequest(name=node.name, query_path="run/state", worker_ids=["0"])
).guest_attributes
print(found.query_value.items[0].value)
storage.Client().bucket("sim-project-tpuctl").blob("from/host").upload_from_string(b"hello")
del os.environ["STORAGE_EMULATOR_HOST"]
own = storage.Client()
print(own.project, own.bucket("sim-project-tpuctl").blob("from/host").download_as_text())
print(id_token.fetch_id_token(google.auth.transport.requests.Request(), "https://service.example"))
"""


@pytest.fixture
def environment(simulator: RunningSimulator) -> dict[str, str]:
    """What the simulator says to put into the environment of a program outside of it."""
    return dict(simulator.simulator.endpoints["environment"])


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def run(script: str, *arguments: str, environment: dict[str, str]) -> list[str]:
    """Run a program that has nothing but these variables; returns the words it prints."""
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.split()


def test_a_tpu_client_without_arguments_creates_a_node(environment: dict[str, str], user: User) -> None:
    assert run(CREATE, user.key_line, environment=environment) == ["tpu.googleapis.com", "READY", "1"]


def test_a_storage_client_without_arguments_writes_an_object(environment: dict[str, str]) -> None:
    assert run(STORE, environment=environment) == ["sim-project", "['from/outside']"]


def test_a_client_in_rust_signs_with_the_key_of_the_service_account(environment: dict[str, str]) -> None:
    printed = run(RUST, environment=environment)
    assert printed == ["True", "0a0b", "5", "exists", "['rust/big',", "'rust/moved']"]


def test_what_is_not_simulated_is_refused_at_once(environment: dict[str, str]) -> None:
    assert run(REFUSED, environment=environment) == ["refused", "True"]


def test_a_program_on_a_host_needs_no_argument_either(simulator: RunningSimulator, user: User) -> None:
    endpoints = simulator.simulator.endpoints
    metadata = {"ssh-keys": user.key_line, "colour": "red"}
    node = user.create(endpoints["tpu_grpc"], metadata=metadata)
    hosts, address = Path(endpoints["hosts_file"]), node.network_endpoints[0].ip_address
    user.install(hosts, address, "google-cloud-storage", "google-cloud-tpu")
    lines = user.run(hosts, address, f"python3 -c {shlex.quote(ON_HOST)}").splitlines()
    assert lines[:3] == ["tpu.googleapis.com READY red", "busy", "sim-project hello"]
    assert lines[3].count(".") == 2, "a signed token"


def secure(environment: dict[str, str], *, protocols: list[str] | None = None) -> http.client.HTTPSConnection:
    """Return an HTTPS connection to tpu.googleapis.com through the proxy."""
    context = ssl.create_default_context(cafile=environment["SSL_CERT_FILE"])
    if protocols:
        context.set_alpn_protocols(protocols)
    host, port = environment["https_proxy"].removeprefix("http://").split(":")
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
    connection.set_tunnel("tpu.googleapis.com", 443)
    return connection


@pytest.mark.parametrize("protocols", [None, ["http/1.1"], ["h2", "http/1.1"]])
def test_rest_is_at_the_same_name_as_grpc(
    simulator: RunningSimulator, environment: dict[str, str], user: User, protocols: list[str] | None
) -> None:
    user.create(simulator.simulator.endpoints["tpu_grpc"])
    connection = secure(environment, protocols=protocols)
    try:
        for path in (f"/v2/{PARENT}/nodes/one", f"/v2/{PARENT}/nodes/none"):
            connection.request("GET", path)
            answer = connection.getresponse()
            body = json.loads(answer.read())
            if answer.status == 200:
                assert body["state"] == "READY"
        assert body["error"]["status"] == "NOT_FOUND"
    finally:
        connection.close()


def test_an_empty_connection_to_the_api_does_no_harm(environment: dict[str, str]) -> None:
    connection = secure(environment)
    connection.connect()
    connection.close()
    connection = secure(environment)
    connection.request("GET", f"/v1/{PARENT}/acceleratorTypes")
    assert connection.getresponse().status == 200
    connection.close()


def test_urllib_reads_the_compute_api_under_its_own_name(environment: dict[str, str]) -> None:
    context = ssl.create_default_context(cafile=environment["SSL_CERT_FILE"])
    proxy = urllib.request.ProxyHandler({"https": environment["https_proxy"]})
    opener = urllib.request.build_opener(proxy, urllib.request.HTTPSHandler(context=context))
    with opener.open("https://compute.googleapis.com/compute/v1/projects/sim-project") as answer:
        project = json.load(answer)
    assert project["defaultServiceAccount"] == service_account("sim-project")
    assert project["selfLink"] == "https://compute.googleapis.com/compute/v1/projects/sim-project"


def test_every_service_shows_the_same_project_number(simulator: RunningSimulator) -> None:
    endpoints, number = simulator.simulator.endpoints, str(project_number("sim-project"))
    with urllib.request.urlopen(f"{endpoints['storage']}/storage/v1/b/{endpoints['bucket']}") as answer:
        assert json.load(answer)["projectNumber"] == number
    url = f"http://{endpoints['metadata']}/computeMetadata/v1/project/numeric-project-id"
    asking = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(asking) as answer:
        assert answer.read().decode() == number


URL = "https://tpu.googleapis.com/v2/projects/sim-project/locations/europe-west4-a/nodes"
PROGRAM = """
import socket, sys
port, url, lacks_socks = int(sys.argv[1]), sys.argv[2], len(sys.argv) > 3
if lacks_socks:
    sys.modules["socks"] = None  # as where PySocks is not installed
addresses = socket.getaddrinfo
def real_network(host, at, *rest, **options):  # where the names of Google are those of another server
    is_google = host.endswith("googleapis.com")
    return addresses("127.0.0.1" if is_google else host, port if is_google else at, *rest, **options)
socket.getaddrinfo = real_network
connect = socket.socket.connect
socket.socket.connect = lambda own, to: connect(
    own, ("127.0.0.1", port) if to[0].endswith("googleapis.com") else to
)
import httplib2
try:
    token = {"Authorization": "Bearer of the simulator"}
    answer, body = httplib2.Http(timeout=60).request(url, headers=token)
    print(answer.status, body.decode())
except Exception as error:
    print(type(error).__name__)
"""


class RealService:
    """Stands for Google's own server: its certificate is good for what trusts this machine's authorities."""

    def __init__(self, authority: CertificateAuthority) -> None:
        requests: list[str] = []
        self.requests = requests

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.headers.get("Authorization", ""))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"the real one")

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = authority.server_context(["tpu.googleapis.com"])
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who hangs up is expected
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealService]:
    """A server that this machine's own bundle of authorities, which the simulator takes over, trusts."""
    authority = CertificateAuthority(tmp_path / "roots")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    service = RealService(authority)
    yield service
    service.close()


@pytest.mark.parametrize(
    ("lacks", "printed"),
    [((), "200 {}"), (("PySocks",), "SSLCertVerificationError")],
    ids=["with", "without"],
)
def test_nothing_reaches_the_real_service(
    real: RealService, tmp_path: Path, lacks: tuple[str, ...], printed: str
) -> None:
    simulator = RunningSimulator(tmp_path / "sim")
    try:
        completed = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(real.port), URL, *lacks],
            env={"PATH": os.environ["PATH"], **simulator.simulator.endpoints["environment"]},
            capture_output=True,
            text=True,
            timeout=100,
        )
    finally:
        simulator.close()
    assert completed.stdout.strip() == printed, completed.stderr
    assert real.requests == []
