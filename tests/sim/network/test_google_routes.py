"""Where the proxy sends the names of Google, and all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.guards import guard_of
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.network.proxy import ConnectProxy, Refuse, Route, Serve, Tunnel, google_routes


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
