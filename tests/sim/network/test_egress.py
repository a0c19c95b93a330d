"""What programs on hosts reach beyond the simulator: everything, or nothing, as its profile says.

Where the proxy sends the names of Google, and all others.
"""

from __future__ import annotations

import http.server
import shlex
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.guards import guard_of
from tests.sim.live_host import User
from tpuctl.errors import UsageError
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.network.proxy import ConnectProxy, Refuse, Route, Serve, Tunnel, google_routes
from tpuctl.sim.settings import profile

WHEEL = "tiny-1.0-py3-none-any.whl"
INSTALL = (
    # loopback is not for the proxy, but the index stands for one on the internet
    "env -u no_proxy -u NO_PROXY PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 "
    "python3 -m pip install --retries 1 --no-deps --target packages -i {} tiny 2>&1 || true; "
    "PYTHONPATH=packages:$PYTHONPATH python3 -c 'import tiny; print(tiny.word)' 2>&1 || true"
)
HTTP = """
import os, urllib.error, urllib.request
try:
    urllib.request.urlopen("http://packages.example/")
except urllib.error.HTTPError as error:
    print(error.code, error.reason)
url = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/attributes/instance-id"
request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
print(urllib.request.urlopen(request).read().decode())
from google.cloud import storage
storage.Client().bucket("sim-project-tpuctl").blob("a").upload_from_string("b")
"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def package_index(folder: Path, authority: CertificateAuthority) -> Iterator[str]:
    """Serve one package over https, as a package index does; its certificate is of `authority`."""
    place = folder / "index" / "tiny"
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / WHEEL, "w") as wheel:
        wheel.writestr("tiny.py", "word = 'tiny is here'\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    (place / "index.html").write_text(f'<a href="{WHEEL}">{WHEEL}</a>')
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Quiet, directory=str(folder / "index"))
    ) as server:
        context = authority.server_context(["127.0.0.1"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def host(folder: Path, egress: str) -> Iterator[Callable[[str], str]]:
    """A host of a simulator with this setting: runs commands on it."""
    running = RunningSimulator(_state(folder), egress=egress)
    try:
        endpoints = running.simulator.endpoints
        user = User(folder)
        node = user.create(endpoints["tpu_grpc"])
        yield partial(user.run, Path(endpoints["hosts_file"]), node.network_endpoints[0].ip_address)
    finally:
        running.close()


def _state(folder: Path) -> Path:
    return folder / "state" / "sim"


def install(folder: Path, egress: str) -> str:
    """Install a package on a host and use it; returns its output."""
    authority = CertificateAuthority(_state(folder) / "tls")
    with host(folder, egress) as run, package_index(folder, authority) as index:
        return run(INSTALL.format(index))


def test_pip_on_a_host_installs_from_an_index_of_the_real_network(home: Path, tmp_path: Path) -> None:
    assert install(tmp_path, "pass").endswith("tiny is here\n")


def test_pip_on_a_host_is_told_that_egress_is_refused(home: Path, tmp_path: Path) -> None:
    output = install(tmp_path, "refuse")
    assert "403 127.0.0.1: outside the simulator, which was started with --egress refuse" in output
    assert "tiny is here" not in output


def test_where_egress_is_refused_http_is_too_and_the_simulated_services_are_not(
    home: Path, tmp_path: Path
) -> None:
    with host(tmp_path, "refuse") as run:
        run("python3 -m pip install google-cloud-storage")
        output = run(f"python3 -c {shlex.quote(HTTP)}").splitlines()
    refusal = "403 packages.example: outside the simulator, which was started with --egress refuse"
    assert output == [refusal, "one"]


def test_the_setting_is_one_of_two() -> None:
    with pytest.raises(UsageError, match="no egress 'maybe'"):
        profile("instant", egress="maybe")


class Servers:
    """Stands for servers that run: the protocol of each is its name."""

    def protocol(self, name: str) -> Any:
        return name


def route(folder: Path, host: str, egress: str) -> Route | None:
    servers: Any = Servers()
    routes = google_routes(servers, 4711, egress)
    return ConnectProxy(routes, CertificateAuthority(folder), guard_of(folder)).route(host)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("storage.googleapis.com", Serve("storage")),  # type: ignore[arg-type]  # as `Servers` names it
        ("www.googleapis.com", Serve("storage")),  # type: ignore[arg-type]
        ("my-bucket.storage.googleapis.com", Serve("storage")),  # type: ignore[arg-type]
        ("tpu.googleapis.com", Tunnel("127.0.0.1", 4711)),
        ("compute.googleapis.com", Serve("compute_rest")),  # type: ignore[arg-type]
        ("cloudbilling.googleapis.com", Serve("billing_rest")),  # type: ignore[arg-type]
        ("cloudquotas.googleapis.com", Serve("quota_rest")),  # type: ignore[arg-type]
        ("tunnel.cloudproxy.app", Serve("iap_relay")),  # type: ignore[arg-type]
        ("mtls.tunnel.cloudproxy.app", Refuse("the simulator has no such service")),
        ("bigquery.googleapis.com", Refuse("the simulator has no such service")),
        ("metadata.google.internal", Refuse("the simulator has no such service")),
    ],
)
@pytest.mark.parametrize("egress", ["pass", "refuse"])
def test_a_name_of_google_is_a_simulated_service_or_none(
    tmp_path: Path, host: str, expected: Route, egress: str
) -> None:
    assert route(tmp_path, host, egress) == expected


@pytest.mark.parametrize("host", ["pypi.org", "googleapis.com.example.com", "10.0.0.1"])
def test_another_host_is_reached_unless_that_is_refused(tmp_path: Path, host: str) -> None:
    assert route(tmp_path, host, "pass") is None
    assert route(tmp_path, host, "refuse") == Refuse(
        "outside the simulator, which was started with --egress refuse"
    )
