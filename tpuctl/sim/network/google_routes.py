"""Maps Google's host names to simulated services, for the proxy."""

from __future__ import annotations

from tpuctl.sim.network.ports import LOOPBACK
from tpuctl.sim.network.proxy import Refuse, Route, Serve, Tunnel
from tpuctl.sim.network.web_servers import WebServers
from tpuctl.sim.settings import PASS, REFUSE

TPU_API = "tpu.googleapis.com"

OUTSIDE: dict[str, dict[str, Route]] = {
    PASS: {},
    REFUSE: {"*": Refuse("outside the simulator, which was started with --egress refuse")},
}
"""Egress -> the routes of all other hosts."""


def google_routes(servers: WebServers, tpu_port: int, egress: str) -> dict[str, Route]:
    """Return the routes, once the HTTP servers run, by host name and in order."""
    storage = Serve(servers.protocol("storage"))
    refused = Refuse("the simulator has no such service")
    return {
        "storage.googleapis.com": storage,
        "www.googleapis.com": storage,
        "*.storage.googleapis.com": storage,
        TPU_API: Tunnel(LOOPBACK, tpu_port),
        "compute.googleapis.com": Serve(servers.protocol("compute_rest")),
        "cloudbilling.googleapis.com": Serve(servers.protocol("billing_rest")),
        "cloudquotas.googleapis.com": Serve(servers.protocol("quota_rest")),
        "tunnel.cloudproxy.app": Serve(servers.protocol("iap_relay")),
        "*.cloudproxy.app": refused,
        "*.googleapis.com": refused,
        "metadata.google.internal": refused,
        **OUTSIDE[egress],
    }
