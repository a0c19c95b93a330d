"""Reads the addresses that a simulator publishes in its folder."""

from __future__ import annotations

import msgspec

from tpuctl.simulator_folder import SimulatorFolder


class PublishedEndpoints(msgspec.Struct, frozen=True):
    """The content of endpoints.json, as far as clients use it."""

    pid: int
    project: str
    bucket: str
    tpu_grpc: str
    tpu_rest: str
    storage: str
    proxy: str
    hosts_file: str
    ca_file: str
    billing_rest: str = ""
    quota_rest: str = ""
    compute_rest: str = ""
    iap_relay: str = ""
    """URL of the relay of Identity-Aware Proxy, over plain HTTP: `/v4/connect`."""
    egress: str = "pass"
    """`pass` or `refuse`: the treatment of traffic from hosts to addresses that are not simulated."""
    external_ips: bool = True
    """Whether nodes get the external addresses that they ask for."""
    iam: str = ""
    """The member as whom programs outside its hosts call, if roles are enforced; '' if they are not."""
    default_account: str = "editor"
    """`editor` or `none`: the role of a project's default service account."""
    firewall: str = "open"
    """`open` or `closed`: whether the network `default` has its rule for SSH."""
    python: str = "machine"
    """`machine` or `image`: whose Python hosts run."""
    environment: dict[str, str] = {}
    """Variables that point unmodified clients outside of its hosts to the simulator."""
    schema: int = 1


def read_endpoints(folder: SimulatorFolder) -> PublishedEndpoints | None:
    """Return what the simulator of `folder` publishes; None while it has not started completely."""
    try:
        return msgspec.json.decode(folder.endpoints.read_bytes(), type=PublishedEndpoints)
    except (OSError, msgspec.DecodeError):
        return None
