"""Builds the environment of programs on a host, by which unmodified clients use the simulator.

What a login adds (USER, SHELL, PATH ...) is in `hosts/programs/login.py` and `hosts/host.py`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tpuctl.sim import guest
from tpuctl.sim.records import Host
from tpuctl.sim.settings import PASS, REFUSE

NO_PROXY = "127.0.0.0/8,127.0.0.1,localhost,metadata.google.internal,169.254.169.254"
INHERITED = ("PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
"""Variables of the simulator's own process that hosts share: where this machine's pip finds packages."""

TORCH = {"PJRT_DEVICE": "CPU"}
"""The device that torch_xla uses; without it, torch_xla looks for a TPU."""

CA_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
    "TENSORSTORE_CA_BUNDLE",
)
"""Where OpenSSL, requests, curl, gRPC and tensorstore read which certificates to trust."""


@dataclass(frozen=True)
class HostEnvironment:
    """The variables that the simulator sets on hosts: proxy, certificates, Cloud Storage, TPU."""

    proxy: str
    """URL"""
    storage: str
    """URL"""
    ca_file: Path
    own_ca_file: Path
    egress: str = PASS
    chip_look: float = 120.0
    """Seconds after the start of a script until its host looks whether it holds a chip."""

    def of(self, host: Host) -> dict[str, str]:
        """Return the variables of one host."""
        return {
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
            **proxy_variables(self.proxy, self.ca_file, self.own_ca_file),
            # for clients that ignore proxies, such as gcsfs; google-cloud-storage then takes its project from
            # the environment instead of the metadata server
            "STORAGE_EMULATOR_HOST": self.storage,
            "CLOUD_STORAGE_EMULATOR_ENDPOINT": self.storage,  # google-cloud-cpp, as in ArrayRecord
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # else gcsfs asks a gRPC service for a minute
            **(self._http_proxy(host.address) if self.egress == REFUSE else {}),
            **self._tpu(host),
            "TPUCTL_SIM_ADDRESS": host.address,
            "TPUCTL_SIM_CHIP_LOOK": os.environ.get("TPUCTL_SIM_CHIP_LOOK") or str(self.chip_look),
            "GOOGLE_CLOUD_PROJECT": host.project,
            **TORCH,
        }

    def _tpu(self, host: Host) -> dict[str, str]:
        cores = os.environ.get("TPUCTL_SIM_CORES")
        return guest.environment(
            host.accelerator_type,
            node=host.node_id,
            cores=int(cores) if cores else None,
            checks=os.environ.get("TPUCTL_SIM_CHECKS", ""),
            slices=len(host.slices),
        )

    def _http_proxy(self, address: str) -> dict[str, str]:
        """Send http through the proxy, too, which refuses it.

        NO_PROXY gets the host's address, where its metadata server is: urllib knows no ranges.
        """
        no_proxy = f"{NO_PROXY},{address}"
        return {
            "http_proxy": self.proxy,
            "HTTP_PROXY": self.proxy,
            "no_proxy": no_proxy,
            "NO_PROXY": no_proxy,
        }


def proxy_variables(proxy: str, ca_file: Path, own_ca_file: Path) -> dict[str, str]:
    """Return the variables that send https through the proxy, and have programs trust its certificates.

    httplib2 ignores the proxy where PySocks is not installed. It trusts the simulator alone, so that it then
    sends nothing to a real server: there it ends with an error.
    """
    return {
        "https_proxy": proxy,
        "HTTPS_PROXY": proxy,
        "no_proxy": NO_PROXY,
        "NO_PROXY": NO_PROXY,
        **{name: str(ca_file) for name in CA_VARIABLES},
        "HTTPLIB2_CA_CERTS": str(own_ca_file),
    }
