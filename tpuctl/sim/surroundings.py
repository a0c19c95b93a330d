"""What programs on a simulated host find in their environment, to meet the simulator as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tpuctl.sim import guest
from tpuctl.sim.records import Host

NO_PROXY = "127.0.0.0/8,localhost,metadata.google.internal,169.254.169.254"
PASSED_ON = ("PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
"""Variables of the simulator's own that hosts share: where this machine's pip finds packages."""


TRUSTED = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")
"""Where OpenSSL, requests, curl and gRPC are told which certificates to trust."""


def surroundings(proxy: str, storage: str, ca_file: Path) -> Callable[[Host], Mapping[str, str]]:
    """Return what the hosts' environments add to that of a login: proxy, certificates, Cloud Storage, TPU."""
    network = {
        **_network(proxy, ca_file),
        "STORAGE_EMULATOR_HOST": storage,  # for clients that ignore proxies, such as gcsfs
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # else gcsfs asks a gRPC service for a minute
    }
    shared = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    cores = os.environ.get("TPUCTL_SIM_CORES")

    def of_host(host: Host) -> Mapping[str, str]:
        tpu = guest.environment(host.accelerator_type, node=host.node_id, cores=int(cores) if cores else None)
        return {**shared, **network, **tpu}

    return of_host


def outside(proxy: str, ca_file: Path, metadata: str, project: str) -> dict[str, str]:
    """Return what makes unmodified Google clients anywhere else on this machine meet the simulator."""
    return {
        **_network(proxy, ca_file),
        "GCE_METADATA_HOST": metadata,
        "GCE_METADATA_IP": metadata,
        "GOOGLE_CLOUD_PROJECT": project,
    }


def _network(proxy: str, ca_file: Path) -> dict[str, str]:
    return {
        "https_proxy": proxy,
        "HTTPS_PROXY": proxy,
        "no_proxy": NO_PROXY,
        "NO_PROXY": NO_PROXY,
        **{name: str(ca_file) for name in TRUSTED},
    }
