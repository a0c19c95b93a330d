"""Builds the environment by which unmodified clients use the simulator: of a host, and of a shell.

What a login adds (USER, SHELL, PATH ...) is in `hosts/programs/login.py` and `hosts/host.py`.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import asyncssh
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from tpuctl.atomic_files import replace_file
from tpuctl.sim import guest
from tpuctl.sim.access import Guard
from tpuctl.sim.hosts.metadata.identity import Identity, Signer
from tpuctl.sim.hosts.metadata.server import MetadataServer, client_machine_tree
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.records import Host
from tpuctl.sim.settings import PASS, REFUSE
from tpuctl.sim.state import write_private
from tpuctl.sim.token_server import TokenServer, service_account
from tpuctl.simulator_folder import PROGRAMS

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


EXECUTABLE = 0o700
KEY = "google_compute_engine"
"""What gcloud calls its key."""

PROGRAM = """\
#!/bin/sh
# Runs the next {name} in PATH{purpose}. Written by tpuctl's simulator.
found=
rest=$PATH:
while [ -n "$rest" ]; do
    program=${{rest%%:*}}/{name}
    rest=${{rest#*:}}
    if [ "$program" -ef "$0" ]; then
        found=  # what comes before could lead back here
    elif [ -z "$found" ] && [ -f "$program" ] && [ -x "$program" ]; then
        found=$program
    fi
done
if [ -z "$found" ]; then
    echo "{name}: not found" >&2
    exit 127
fi
{setting}exec "$found" {options}"$@"
"""
SSH_PROGRAMS = ("ssh", "scp", "sftp")

SSH_CONFIG = """\
# Read first: the simulated hosts that are up. Written by tpuctl's simulator.
Include {hosts}

Host {addresses}
  ProxyCommand sh -c 'echo "No simulated host answers at %h." >&2; exit 1'

Host *
Include ~/.ssh/config
Include /etc/ssh/ssh_config
"""
SIMULATED = " ".join(f"127.{number}.*" for number in range(64, 128))
"""Addresses that only simulated hosts have; where none is up, this machine's own SSH server would answer."""


class Programs:
    """The programs, in a folder of their own below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self._home = folder / "home"
        self._ssh_config = folder / "ssh_config"

    def write(self, hosts: Path) -> None:
        """Write every program; `hosts` is the OpenSSH configuration of the hosts that are up."""
        for part in (self.folder, self._home, self._home / ".ssh"):
            part.mkdir(mode=0o700, exist_ok=True)
        config = SSH_CONFIG.format(hosts=_quoted(hosts), addresses=SIMULATED)
        write_private(self._ssh_config, config.encode())
        for name in SSH_PROGRAMS:
            options = f"-F {shlex.quote(str(self._ssh_config))} "
            self._write(name, purpose=", with simulated hosts in its configuration", options=options)
        home = f"HOME={shlex.quote(str(self._home))} "
        self._write("gcloud", purpose=", with a home in which it keeps its SSH keys", setting=home)
        self._write_key()

    def _write(self, name: str, *, purpose: str, setting: str = "", options: str = "") -> None:
        text = PROGRAM.format(name=name, purpose=purpose, setting=setting, options=options)
        replace_file(self.folder / name, [text.encode()], mode=EXECUTABLE)

    def _write_key(self) -> None:
        """Make gcloud's key, for which it would else ask a passphrase."""
        private = self._home / ".ssh" / KEY
        if not private.exists():
            key = asyncssh.generate_private_key("ssh-ed25519", comment="simulator")
            write_private(private.with_name(f"{KEY}.pub"), key.export_public_key())
            write_private(private, key.export_private_key())


def _quoted(path: Path) -> str:
    """Return a path as one word of OpenSSH's configuration."""
    return f'"{path}"'


TOKEN = "access_token"  # noqa: S105  the name of a file
ZONE = "europe-west4-a"
BOTO = """\
[Boto]
proxy = {host}
proxy_port = {port}
ca_certificates_file = {ca_file}

[Credentials]
gs_service_key_file = {key_file}

[OAuth2]
provider_token_uri = {token_uri}

[GSUtil]
state_dir = {folder}/gsutil
default_project_id = {project}
software_update_check_period = 0
"""
"""gsutil's configuration, as gsutil reads neither proxy nor certificates from the environment.

It asks for canned ACLs by the XML API, for which it needs credentials.
"""


class ClientEnvironment:
    """The variables, and the metadata and token servers that they name; `folder` keeps their files."""

    def __init__(self, folder: Path, project: str, guard: Guard) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._project = project
        identity = Identity(folder / TOKEN, Signer(folder / "identity.pem"))
        self._identity = identity
        self._metadata = MetadataServer(client_machine_tree(project), identity, None, guard)
        email, key_file = service_account(project), folder / "credentials.json"
        self._programs = Programs(folder)
        self._tokens = TokenServer(key_file, email, project, identity, guard)
        self._metadata_address = ""

    async def open(self, listen: Callable[[str], socket.socket]) -> str:
        """Serve on the sockets that `listen` returns by name; returns the metadata server's address."""
        metadata = listen("metadata")
        host, port = metadata.getsockname()[:2]
        self._metadata_address = f"{host}:{port}"
        await self._metadata.open(metadata)
        await self._tokens.open(listen("tokens"))
        return self._metadata_address

    async def close(self) -> None:
        """Stop serving."""
        await self._metadata.close()
        await self._tokens.close()

    def public_key(self, email: str) -> RSAPublicKey | None:
        """Return the public key of the service account of these clients; None for any other account."""
        return self._tokens.public_key(email)

    def environment(
        self, proxy: str, storage: str, authority: CertificateAuthority, ssh_config: Path
    ) -> dict[str, str]:
        """Return the variables with which unmodified clients on this machine use the simulator alone.

        Clients do not see their own files of credentials and configuration. The folder of programs has to
        come first in PATH.
        """
        ca_file = authority.ca_file
        self._programs.write(ssh_config)
        write_private(self._folder / "boto", self._boto(proxy, ca_file).encode())
        return {
            **proxy_variables(proxy, ca_file, authority.own_file),
            **self._google_clients(storage),
            **self._gcloud(ca_file),
            "BOTO_CONFIG": str(self._folder / "boto"),
            "TENSORSTORE_GCS_HTTP_URL": storage,
            PROGRAMS: str(self._programs.folder),
        }

    def _google_clients(self, storage: str) -> dict[str, str]:
        token = self._identity.access_token()
        return {
            "GCE_METADATA_HOST": self._metadata_address,
            "GCE_METADATA_IP": self._metadata_address,
            "GOOGLE_CLOUD_PROJECT": self._project,
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._tokens.key_file),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": token,  # TensorFlow's and tensorstore's own C++ clients
            "STORAGE_EMULATOR_HOST": storage,  # gcsfs ignores proxies
            "CLOUD_STORAGE_EMULATOR_ENDPOINT": storage,  # google-cloud-cpp, as in ArrayRecord
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # else gcsfs asks a gRPC service for a minute
        }

    def _gcloud(self, ca_file: Path) -> dict[str, str]:
        return {
            "CLOUDSDK_CONFIG": str(self._folder / "gcloud"),
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(self._folder / TOKEN),  # tunnels of IAP need a token
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "false",
            "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "false",
            "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": str(ca_file),
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_CORE_PROJECT": self._project,
            "CLOUDSDK_COMPUTE_ZONE": ZONE,
        }

    def _boto(self, proxy: str, ca_file: Path) -> str:
        host, port = proxy.removeprefix("http://").split(":")
        return BOTO.format(
            host=host,
            port=port,
            ca_file=ca_file,
            key_file=self._tokens.key_file,
            token_uri=self._tokens.uri,
            folder=self._folder,
            project=self._project,
        )
