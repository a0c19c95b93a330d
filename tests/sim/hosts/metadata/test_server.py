"""The metadata server of a simulated host, as Google's clients use it.

The tokens of a machine's service account: as Google's, signed by a key of the simulator.
"""

from __future__ import annotations

import json
import math
import socket
import stat
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.auth import jwt

from tests.sim.hosts.site import Site, hosts_of, wait_until
from tpuctl.accelerators import catalogue
from tpuctl.sim.hosts.metadata.identity import Identity, Signer
from tpuctl.sim.hosts.metadata.server import host_bounds
from tpuctl.sim.records import GuestAttribute, Host, Notices
from tpuctl.sim.token_server import project_number

FLAVOR = {"Metadata-Flavor": "Google"}
ATTRIBUTES = "instance/attributes"


class Metadata:
    """urllib against one host's metadata server."""

    def __init__(self, site: Site, host: Host) -> None:
        with site.fabric(host) as connection:
            self.address = connection.run("echo $GCE_METADATA_HOST").stdout.strip()

    def open(
        self, path: str, *, headers: dict[str, str] = FLAVOR, method: str = "GET", data: bytes | None = None
    ) -> Any:
        url = f"http://{self.address}{path}"
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
        return opener.open(request, timeout=60)

    def get(self, path: str) -> str:
        with self.open(f"/computeMetadata/v1/{path}") as answer:
            assert answer.headers["Metadata-Flavor"] == "Google"
            return str(answer.read().decode())

    def refused(self, path: str, **how: Any) -> Any:
        with pytest.raises(urllib.error.HTTPError) as refused:
            self.open(path, **how)
        with refused.value:
            return refused.value


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@pytest.fixture
def hosts(site: Site) -> list[Host]:
    return site.up(hosts_of(4, "v3-32", preemptible=True), {"startup-script": "echo hi"})


@pytest.fixture
def metadata(site: Site, hosts: list[Host]) -> Metadata:
    return Metadata(site, hosts[1])


def test_it_answers_a_ping(metadata: Metadata) -> None:
    with metadata.open("/", headers={}) as answer:
        assert answer.headers["Metadata-Flavor"] == "Google"
        assert answer.read() == b"0.1/\ncomputeMetadata/\n"


@pytest.mark.parametrize("headers", [{}, {"Metadata-Flavor": "x"}, {**FLAVOR, "X-Forwarded-For": "1.2.3.4"}])
def test_a_request_that_may_come_from_a_proxy_is_forbidden(
    metadata: Metadata, headers: dict[str, str]
) -> None:
    assert metadata.refused("/computeMetadata/v1/project/project-id", headers=headers).code == 403


@pytest.mark.contract("metadata.get", client="HTTP")
def test_the_facts_of_the_worker(metadata: Metadata, hosts: list[Host], site: Site) -> None:
    host = hosts[1]
    expected = {
        "project/project-id": "demo",
        "project/numeric-project-id": str(project_number("demo")),
        "instance/zone": f"projects/{project_number('demo')}/zones/europe-west4-a",
        "instance/name": host.hostname,
        "instance/preempted": "FALSE",
        "instance/maintenance-event": "NONE",
        "instance/scheduling/preemptible": "TRUE",
        "instance/network-interfaces/0/ip": host.address,
        "instance/attributes/accelerator-type": "v3-32",
        "instance/attributes/agent-worker-number": "1",
        "instance/attributes/instance-id": "alpha",
        "instance/attributes/ssh-keys": site.key.line(),
        "instance/attributes/startup-script": "echo hi",
        "universe/universe-domain": "googleapis.com",
    }
    assert {path: metadata.get(path) for path in expected} == expected
    endpoints = metadata.get("instance/attributes/worker-network-endpoints").split(",")
    assert [endpoint.split(":")[2] for endpoint in endpoints] == [host.address for host in hosts]


@pytest.mark.contract("metadata.tpu-env", client="HTTP")
def test_tpu_env_has_the_shape_of_the_slice(metadata: Metadata) -> None:
    lines = metadata.get("instance/attributes/tpu-env").splitlines()
    values = dict(line.split(": ") for line in lines)
    assert values["ACCELERATOR_TYPE"] == "'v3-32'"
    assert values["CHIPS_PER_HOST_BOUNDS"] == "'2,2,1'"
    assert values["HOST_BOUNDS"] == "'2,2,1'"
    assert values["WORKER_ID"] == "'1'"
    assert values["ZONE"] == "'europe-west4-a'"


def test_slices_of_one_request_find_each_other_in_tpu_env(site: Site) -> None:
    first, second = hosts_of(2, "v4-16"), hosts_of(2, "v4-16")
    slices = (first[0].address, second[0].address)
    for number, hosts in enumerate((first, second)):
        up = site.up([replace(host, slices=slices) for host in hosts])
        values = dict(
            line.split(": ") for line in Metadata(site, up[1]).get(f"{ATTRIBUTES}/tpu-env").splitlines()
        )
        assert {name: value for name, value in values.items() if name.startswith("MEGASCALE")} == {
            "MEGASCALE_COORDINATOR_ADDRESS": f"'{slices[0]}'",
            "MEGASCALE_NUM_SLICES": "'2'",
            "MEGASCALE_SLICE_ID": f"'{number}'",
        }


def test_a_slice_alone_has_no_megascale(metadata: Metadata) -> None:
    assert "MEGASCALE" not in metadata.get(f"{ATTRIBUTES}/tpu-env")


def test_types_of_content_are_googles_to_the_letter(metadata: Metadata) -> None:
    """oauth2client reads nothing but `application/json`, without a charset, as JSON."""
    types = {}
    for path in ("instance/name", "instance/service-accounts/default/?recursive=true"):
        with metadata.open(f"/computeMetadata/v1/{path}") as answer:
            types[path.partition("/")[2]] = answer.headers["Content-Type"]
    assert types == {
        "name": "application/text",
        "service-accounts/default/?recursive=true": "application/json",
    }


def test_the_hosts_of_every_type_make_up_its_topology() -> None:
    products = {name: math.prod(host_bounds(each)) for name, each in catalogue().items()}
    assert products == {name: each.hosts for name, each in catalogue().items()}


def test_a_directory_without_its_slash_is_redirected(metadata: Metadata) -> None:
    moved = metadata.refused("/computeMetadata/v1/instance/attributes")
    assert moved.code == 301
    assert moved.headers["Location"] == "/computeMetadata/v1/instance/attributes/"
    assert "network-interfaces/\n" in metadata.get("instance/")
    assert metadata.get("instance/network-interfaces/") == "0/\n"


def test_what_is_not_there_is_404(metadata: Metadata) -> None:
    for path in ("instance/attributes/nothing", "instance/zone/below", "instance/network-interfaces/1/ip"):
        assert metadata.refused(f"/computeMetadata/v1/{path}").code == 404


@pytest.mark.contract("metadata.recursive", client="HTTP")
def test_a_whole_directory_as_json_and_as_text(metadata: Metadata) -> None:
    tree = json.loads(metadata.get("instance/?recursive=true"))
    assert tree["attributes"]["agent-worker-number"] == "1", "the user's names stay"
    assert tree["networkInterfaces"][0]["accessConfigs"][0]["type"] == "ONE_TO_ONE_NAT"
    assert tree["serviceAccounts"]["default"]["aliases"] == ["default"]
    assert "0/type ONE_TO_ONE_NAT\n" in metadata.get(
        "instance/network-interfaces/0/access-configs/?recursive=true&alt=text"
    )
    assert json.loads(metadata.get("instance/name?alt=json")) == tree["name"]


def test_changed_metadata_shows_at_once_with_another_etag(
    site: Site, hosts: list[Host], metadata: Metadata
) -> None:
    path = "/computeMetadata/v1/instance/attributes/?recursive=true"
    with metadata.open(path) as before:
        tag = before.headers["ETag"]
    site.loop.run(site.pool.update_metadata(hosts, {"colour": "red"}))
    with metadata.open(path) as after:
        assert after.headers["ETag"] != tag
        assert json.loads(after.read())["colour"] == "red"


@pytest.mark.contract("metadata.wait_for_change", client="HTTP")
def test_a_client_that_waits_for_a_change_gets_it(site: Site, hosts: list[Host], metadata: Metadata) -> None:
    wait = "instance/preempted?wait_for_change=true"
    with metadata.open("/computeMetadata/v1/instance/preempted") as now, ThreadPoolExecutor() as threads:
        waiting = threads.submit(metadata.get, f"{wait}&last_etag={now.headers['ETag']}")
        site.loop.run(site.pool.update_metadata(hosts, {"unrelated": "change"}))
        site.loop.run(site.pool.announce(hosts, Notices(preempted=True, maintenance_event="NONE")))
        assert waiting.result(60) == "TRUE"
    assert metadata.get("instance/preempted?wait_for_change=true&last_etag=0") == "TRUE"
    assert metadata.get("instance/preempted?wait_for_change=true&timeout_sec=0.01") == "TRUE"


def test_a_host_that_ends_cuts_off_who_waits(site: Site, hosts: list[Host], metadata: Metadata) -> None:
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(metadata.get, "instance/preempted?wait_for_change=true")
        metadata.get("instance/name")
        site.stop(hosts)
        assert isinstance(waiting.exception(20), OSError | ConnectionError)


@pytest.mark.contract("metadata.guest-attributes", client="HTTP")
def test_guest_attributes_are_written_read_and_deleted(
    site: Site, hosts: list[Host], metadata: Metadata
) -> None:
    path = "/computeMetadata/v1/instance/guest-attributes/run/state"
    assert metadata.refused(path).code == 404
    metadata.open(path, method="PUT", data=b"busy").close()
    assert metadata.get("instance/guest-attributes/run/state") == "busy"
    assert GuestAttribute("run", "state", "busy") in site.pool.guest_attributes(hosts[1])
    assert GuestAttribute("run", "state", "busy") not in site.pool.guest_attributes(hosts[0])
    metadata.open(path, method="DELETE").close()
    assert metadata.refused(path).code == 404
    assert metadata.refused("/computeMetadata/v1/instance/name", method="PUT", data=b"x").code == 404


@pytest.mark.parametrize(
    "query",
    [
        "wait_for_change=true&timeout_sec=soon",
        "wait_for_change=true&timeout_sec=-1",
        "wait_for_change=true&timeout_sec=nan",
        "wait_for_change=true&timeout_sec=1e999",
        "timeout_sec=soon",
        "wait_for_change=maybe",
        "recursive=%ff",
        "alt=xml",
    ],
)
def test_parameters_that_make_no_sense_are_a_bad_request(metadata: Metadata, query: str) -> None:
    assert metadata.refused(f"/computeMetadata/v1/instance/?{query}").code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/%",
        "/%00",
        "/..",
        "//",
        "/instance//name",
        "/instance/%2e%2e/name",
        "/\u2603",
        "/instance/" + 6000 * "a",
    ],
)
def test_a_path_that_makes_no_sense_is_no_failure_of_the_server(metadata: Metadata, path: str) -> None:
    host, port = metadata.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        request = (
            f"GET /computeMetadata/v1{path} HTTP/1.1\r\nHost: localhost\r\nMetadata-Flavor: Google\r\n\r\n"
        )
        connection.sendall(request.encode())
        status = int(connection.recv(4096).split()[1])
    assert status in (200, 301, 400, 404), status


@pytest.mark.contract("metadata.project attributes", client="HTTP")
def test_a_project_wide_attribute_shows_on_the_hosts_of_the_project(
    site: Site, hosts: list[Host], metadata: Metadata
) -> None:
    path = "project/attributes/?recursive=true"
    with metadata.open(f"/computeMetadata/v1/{path}") as now, ThreadPoolExecutor() as threads:
        assert now.read() == b"{}"
        wait = f"{path}&wait_for_change=true&last_etag={now.headers['ETag']}"
        waiting = threads.submit(metadata.get, wait)
        site.set_project("other", {"colour": "red"})
        site.set_project("demo", {"colour": "blue"})
        assert json.loads(waiting.result(60)) == {"colour": "blue"}
    assert metadata.get("project/attributes/colour") == "blue"
    metadata.refused("/computeMetadata/v1/instance/attributes/colour")


@pytest.mark.contract("metadata.identity", client="HTTP")
def test_an_identity_token_is_for_its_audience_and_signed_by_this_world(
    site: Site, hosts: list[Host], metadata: Metadata
) -> None:
    path = "instance/service-accounts/default/identity"
    assert metadata.refused(f"/computeMetadata/v1/{path}").code == 400
    token = metadata.get(f"{path}?audience=https://service.example&format=full")
    key = Signer(site.folder.with_name("hosts-identity.pem")).public_key()
    claims = jwt.decode(token, certs=key, audience="https://service.example")
    assert claims["email"] == metadata.get("instance/service-accounts/default/email")
    assert claims["google"]["compute_engine"]["instance_name"] == hosts[1].hostname
    assert claims["google"]["compute_engine"]["zone"] == "europe-west4-a"
    short = jwt.decode(metadata.get(f"{path}?audience=a"), certs=key, audience="a")
    assert "google" not in short


def test_a_value_that_is_no_text_or_too_long_is_refused(metadata: Metadata) -> None:
    path = "/computeMetadata/v1/instance/guest-attributes/run/state"
    assert metadata.refused(path, method="PUT", data=b"\xff").code == 400
    assert metadata.refused(path, method="PUT", data=b"x" * (2 << 20)).code == 413


def test_jax_learns_its_slice_from_the_metadata_alone(metadata: Metadata, hosts: list[Host]) -> None:
    """What jax/_src/clusters/cloud_tpu_cluster.py (0.10) reads, taken apart as it does."""
    attributes = {}
    for key in ("agent-worker-number", "worker-network-endpoints", "tpu-env"):
        with metadata.open(f"/computeMetadata/v1/instance/attributes/{key}") as answer:
            attributes[key] = answer.read().decode()
    assert int(attributes["agent-worker-number"]) == 1
    endpoints = [endpoint.split(":")[2] for endpoint in attributes["worker-network-endpoints"].split(",")]
    assert endpoints == [host.address for host in hosts]
    assert metadata.refused("/computeMetadata/v1/instance/attributes/megascale-num-slices").code == 404
    line = next(line for line in attributes["tpu-env"].splitlines() if line.startswith("ACCELERATOR_TYPE"))
    assert line.split(": ")[1].strip("'") == "v3-32"


NOTICED = """
import os, pathlib, signal, sys, time, urllib.request
home = pathlib.Path(os.environ["HOME"])
def note(text):
    with open(home / "diary", "a") as diary:
        diary.write(text + "\\n")
def told(*_):
    note("SIGTERM")
signal.signal(signal.SIGTERM, told)
url = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/preempted"
def ask(query=""):
    return urllib.request.urlopen(urllib.request.Request(url + query, headers={"Metadata-Flavor": "Google"}))
tag = ask().headers["ETag"]
(home / "begun").touch()
note(f"preempted {ask(f'?wait_for_change=true&last_etag={tag}').read().decode()}")
while True:
    time.sleep(0.01)
    (home / "alive").touch()
"""


@pytest.mark.contract("metadata.preempted", client="HTTP")
def test_a_preemption_is_noticed_before_the_signal_and_the_end(site: Site) -> None:
    hosts = site.up(hosts_of(preemptible=True))
    home = site.folder / hosts[0].node_uid / "w0" / "home"
    with site.fabric(hosts[0]) as connection:
        connection.put(_file(NOTICED), "train.py")
        connection.run("nohup python3 train.py >out 2>&1 & echo $! > pid")
        wait_until((home / "begun").exists)
        site.loop.run(site.pool.announce(hosts, Notices(preempted=True)))
        wait_until((home / "alive").exists)
        assert (home / "diary").read_text() == "preempted TRUE\n"
        site.stop(hosts, keep_disk=True, grace=2)
    assert (home / "diary").read_text() == "preempted TRUE\nSIGTERM\n"
    (home / "alive").unlink()
    site.up(hosts)
    assert not (home / "alive").exists(), "it was killed after the grace"


@pytest.mark.contract("metadata.get", "metadata.token", client="google-auth")
def test_google_auth_finds_its_credentials_on_a_host(site: Site, hosts: list[Host]) -> None:
    script = (
        "import google.auth, google.auth.transport.requests as t\n"
        "c, project = google.auth.default()\n"
        "c.refresh(t.Request())\n"
        "print(project, c.service_account_email, c.token)\n"
    )
    tokens = set()
    for host in hosts[:2]:
        with site.fabric(host) as connection:
            connection.put(_file(script), "who.py")
            connection.run("python3 -m pip install google-auth")
            project, account, token = connection.run("python3 who.py").stdout.split()
        assert (project, account) == (
            "demo",
            f"{project_number('demo')}-compute@developer.gserviceaccount.com",
        )
        tokens.add(token)
    assert len(tokens) == 2, "each host has a token of its own"


def _file(text: str) -> Any:
    import io

    return io.BytesIO(text.encode())


EMAIL = "123456-compute@developer.gserviceaccount.com"


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "identity.pem")


def test_an_access_token_is_made_once_and_is_private(tmp_path: Path, signer: Signer) -> None:
    file = tmp_path / "access_token"
    token = Identity(file, signer).access_token()
    assert token.startswith("ya29.")
    assert len(token) == len("ya29.") + 43, "32 bytes in base64"
    assert Identity(file, signer).access_token() == token == file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Identity(tmp_path / "other", signer).access_token() != token


def test_an_identity_token_has_googles_claims(tmp_path: Path, signer: Signer) -> None:
    before = int(time.time())
    token = Identity(tmp_path / "t", signer).token("https://a.example", EMAIL, None)
    claims = dict(jwt.decode(token, verify=False))
    issued, subject = claims["iat"], claims["sub"]
    assert before <= issued <= time.time()
    assert subject.isdecimal()
    assert claims == {
        "aud": "https://a.example",
        "azp": subject,
        "email": EMAIL,
        "email_verified": True,
        "exp": issued + 3600,
        "iat": issued,
        "iss": "https://accounts.google.com",
        "sub": subject,
    }
    assert jwt.decode_header(token) == {"alg": "RS256", "kid": "simulator", "typ": "JWT"}


def test_a_full_token_has_the_facts_of_the_instance(tmp_path: Path, signer: Signer) -> None:
    token = Identity(tmp_path / "t", signer).token("a", EMAIL, {"zone": "z"})
    assert jwt.decode(token, verify=False)["google"] == {"compute_engine": {"zone": "z"}}


def test_a_key_is_made_once(tmp_path: Path, signer: Signer) -> None:
    public = signer.public_key()
    assert Signer(tmp_path / "identity.pem").public_key() == public
    assert stat.S_IMODE((tmp_path / "identity.pem").stat().st_mode) == 0o600
    assert public.startswith(b"-----BEGIN PUBLIC KEY-----")
