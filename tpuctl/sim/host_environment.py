"""What programs on a simulated host find in their environment, to meet the simulator as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tpuctl.sim import guest
from tpuctl.sim.records import Host
from tpuctl.sim.settings import PASS, REFUSE

NO_PROXY = "127.0.0.0/8,127.0.0.1,localhost,metadata.google.internal,169.254.169.254"
PASSED_ON = ("PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
"""Variables of the simulator's own that hosts share: where this machine's pip finds packages."""

TORCH = {"PJRT_DEVICE": "CPU"}
"""What tells torch_xla which device to use: a TPU that it asks for by itself is not there."""

TRUSTED = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
    *("HTTPLIB2_CA_CERTS", "TENSORSTORE_CA_BUNDLE"),
)
"""Where OpenSSL, requests, curl, gRPC, httplib2 and tensorstore are told which certificates to trust."""


def surroundings(
    proxy: str, storage: str, ca_file: Path, egress: str = PASS
) -> Callable[[Host], Mapping[str, str]]:
    """Return what the hosts' environments add to that of a login: proxy, certificates, Cloud Storage, TPU."""
    around = {
        **network(proxy, ca_file),
        # for clients that ignore proxies, such as gcsfs; google-cloud-storage then takes its project from the
        # environment instead of the metadata server
        "STORAGE_EMULATOR_HOST": storage,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # else gcsfs asks a gRPC service for a minute
    }
    shared = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    cores = os.environ.get("TPUCTL_SIM_CORES")
    checks = os.environ.get("TPUCTL_SIM_CHECKS", "")

    def of_host(host: Host) -> Mapping[str, str]:
        tpu = guest.environment(
            host.accelerator_type, node=host.node_id, cores=int(cores) if cores else None, checks=checks
        )
        plain = _plain_network(proxy, host.address) if egress == REFUSE else {}
        own = {"TPUCTL_SIM_ADDRESS": host.address, "GOOGLE_CLOUD_PROJECT": host.project, **TORCH}
        return {**shared, **around, **plain, **tpu, **own}

    return of_host


def network(proxy: str, ca_file: Path) -> dict[str, str]:
    """Return what leads programs to the proxy, and lets them trust it."""
    return {
        "https_proxy": proxy,
        "HTTPS_PROXY": proxy,
        "no_proxy": NO_PROXY,
        "NO_PROXY": NO_PROXY,
        **{name: str(ca_file) for name in TRUSTED},
    }


def _plain_network(proxy: str, address: str) -> dict[str, str]:
    """Return what leads http to the proxy, too, to be refused there.

    The host's own address is spelt out: its metadata server speaks http, and urllib knows no address ranges.
    """
    kept = f"{NO_PROXY},{address}"
    return {"http_proxy": proxy, "HTTP_PROXY": proxy, "no_proxy": kept, "NO_PROXY": kept}
