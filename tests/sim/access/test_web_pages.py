"""A web page that the simulator's user visits can change nothing and read nothing.

The requests are those that browsers send, byte by byte: a page chooses path, body and one of three content
types; the browser adds Host, Origin and Sec-Fetch-Site.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.access.test_other_users import BUCKET, KEYS, NODE, OBJECT, Victim
from tests.sim.live_host import PARENT
from tpuctl.sim.access import is_served

CROSS_SITE = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n"
OLD_BROWSER = "Origin: https://evil.example\r\n"
SANDBOX = "Origin: null\r\n"
NO_CORS_GET = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"
OWN_OBJECT = "Sec-Fetch-Site: same-origin\r\nOrigin: http://{host}\r\n"
"""A page that was stored in a bucket and opened from there."""
PAGES = (CROSS_SITE, OLD_BROWSER, SANDBOX, NO_CORS_GET, OWN_OBJECT)

CREATE = f"/v2/{PARENT}/nodes?nodeId=evil2"
DELETE = f"DELETE /storage/v1/b/{BUCKET}/o/runs%2Fone%2Frun.json HTTP/1.1\r\n\r\n"
FORM = f"--b\r\nContent-Type: application/http\r\n\r\n{DELETE}\r\n--b--\r\n"
UPLOAD = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=evil"
PROJECT = "/compute/v1/projects/sim-project/setCommonInstanceMetadata"
TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
TEXT = "text/plain;charset=UTF-8"

ATTACKS = {
    # what: service, method, path, content type, body
    "create a node": ("tpu_rest", "POST", CREATE, TEXT, NODE),
    "write an object": ("storage", "POST", UPLOAD, TEXT, "data"),
    "delete by a batch": ("storage", "POST", "/batch/storage/v1", "multipart/form-data; boundary=b", FORM),
    "read a listing": ("storage", "GET", f"/storage/v1/b/{BUCKET}/o", "", ""),
    "read an object": ("storage", "GET", f"/{BUCKET}/{OBJECT}", "", ""),
    "add a key": ("compute_rest", "POST", PROJECT, TEXT, KEYS),
    "get a token": ("metadata", "GET", TOKEN, "", ""),
    "get a page of the proxy": ("proxy", "GET", f"http://storage.googleapis.com/{BUCKET}", "", ""),
    "add a fault": ("control", "POST", "/v1/faults", TEXT, '{"faults": []}'),
    "exchange a token": ("tokens", "POST", "/token", "application/x-www-form-urlencoded", "grant_type=a"),
}


@pytest.fixture
def victim(simulator: RunningSimulator, tmp_path: Path) -> Victim:
    return Victim(simulator, tmp_path)


def send(address: str, method: str, path: str, content_type: str, body: str, fields: str) -> tuple[int, str]:
    """Send a request as a browser does, and return status and body of the answer."""
    typed = f"Content-Type: {content_type}\r\n" if content_type else ""
    length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
    head = f"{method} {path} HTTP/1.1\r\n{fields}{typed}{length}Connection: close\r\n\r\n"
    host, _, port = address.rpartition(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall((head + body).encode())
        while data := connection.recv(65536):
            received += data
    answer_head, _, answer = received.decode().partition("\r\n\r\n")
    return int(answer_head.split()[1]), answer


def addresses(victim: Victim) -> Callable[[str], str]:
    """Return where the services listen, those that are not published too."""
    control = json.loads((victim.simulator.folder / "control.json").read_text())["url"]
    key_file = victim.simulator.folder / "workstation" / "credentials.json"
    others = {"control": control, "tokens": json.loads(key_file.read_text())["token_uri"]}
    return lambda name: others[name].split("/")[2] if name in others else victim.address(name)


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_a_page_of_another_site_is_refused_at_every_door(victim: Victim, page: str) -> None:
    address_of = addresses(victim)
    statuses = {}
    for attack, (service, *request) in ATTACKS.items():
        address = address_of(service)
        fields = f"Host: {address}\r\n{page.format(host=address)}"
        statuses[attack] = send(address, *request, fields)[0]  # type: ignore[arg-type,call-arg]
    assert statuses == {**dict.fromkeys(ATTACKS, 403), "get a page of the proxy": 405}
    assert victim.look() == victim.state


def test_a_name_that_resolves_to_this_machine_is_refused(victim: Victim) -> None:
    """DNS rebinding: page and simulator have one origin, so the browser lets the page read the answers."""
    address_of = addresses(victim)
    for service, *request in ATTACKS.values():
        address = address_of(service)
        if service == "proxy":
            continue
        port = address.rpartition(":")[2]
        fields = f"Host: evil.example:{port}\r\nSec-Fetch-Site: same-origin\r\nMetadata-Flavor: Google\r\n"
        assert send(address, *request, fields)[0] == 403  # type: ignore[arg-type,call-arg]
        old = f"Host: evil.example:{port}\r\nMetadata-Flavor: Google\r\n"
        assert send(address, *request, old)[0] == 403  # type: ignore[arg-type,call-arg]
    assert victim.look() == victim.state


def test_a_refused_request_uses_up_no_fault_and_leaves_no_event(victim: Victim) -> None:
    fault = victim.simulator.faults.add("gcs-error", count=1)
    events = len(victim.simulator.events.find())
    address = victim.address("storage")
    fields = f"Host: {address}\r\n{CROSS_SITE}"
    assert send(address, "GET", f"/{BUCKET}/{OBJECT}", "", "", fields)[0] == 403
    assert fault.as_json(0.0)["taken"] == 0
    assert len(victim.simulator.events.find()) == events


def test_a_body_is_not_waited_for(victim: Victim) -> None:
    address = victim.address("storage")
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST {UPLOAD} HTTP/1.1\r\nHost: {address}\r\n{CROSS_SITE}Content-Length: 1000000\r\n\r\n"
        connection.sendall(head.encode())
        assert b" 403 " in connection.recv(4096)


@pytest.mark.parametrize("content_type", [TEXT, "application/x-www-form-urlencoded", "multipart/form-data"])
def test_json_apis_take_no_content_type_of_forms(victim: Victim, content_type: str) -> None:
    """A second line of defence, which is Google's own behaviour."""
    bucket = ("storage", "POST", "/storage/v1/b?project=sim-project", content_type, '{"name": "evil-bucket"}')
    for service, *request in (ATTACKS["create a node"], ATTACKS["add a key"], bucket):
        address = victim.address(service)
        request[2] = content_type
        status, answer = send(address, *request, f"Host: {address}\r\n")  # type: ignore[arg-type]
        assert status == 400
        assert json.loads(answer)["error"]["message"].startswith(("This API does not", "Unsupported content"))
    batch = ("POST", "/batch/storage/v1", "multipart/form-data; boundary=b", FORM)
    status, answer = send(victim.address("storage"), *batch, "Host: localhost\r\n")
    assert status == 400
    assert "multipart/mixed" in answer
    assert victim.look() == victim.state


def test_an_object_may_be_plain_text(victim: Victim) -> None:
    address = victim.address("storage")
    assert send(address, "POST", UPLOAD, TEXT, "data", f"Host: {address}\r\n")[0] == 200


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8080", True),
        ("127.78.0.3:22001", True),
        ("[::1]:8080", True),
        ("localhost", True),
        ("LOCALHOST.:80", True),
        ("acme.localhost:80", True),
        ("storage.googleapis.com", True),
        ("acme-data.storage.googleapis.com:443", True),
        ("metadata.google.internal", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8080", False),
        ("evilgoogleapis.com", False),
        ("evil-localhost", False),
        ("0.0.0.0:8080", False),  # reaches this machine from a browser
        ("169.254.169.254", False),
        ("192.168.1.4:8080", False),
        ("127.0.0.1:8080@evil.example", False),
        ("localhost:80:evil.example", False),
        ("[::1", False),
        ("[::1]evil.example", False),
        ("", False),
    ],
)
def test_which_names_are_served(host: str, served: bool) -> None:
    assert is_served(host) == served
