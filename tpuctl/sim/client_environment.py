"""Builds the environment that points Google's clients in a shell to the simulator."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from tpuctl.sim.access.guard import Guard
from tpuctl.sim.accounts import service_account
from tpuctl.sim.host_environment import proxy_variables
from tpuctl.sim.hosts.metadata.identity import Identity, Signer
from tpuctl.sim.hosts.metadata.server import MetadataServer
from tpuctl.sim.hosts.metadata.tree import client_machine_tree
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.state.private_file import write_private
from tpuctl.sim.token_server import TokenServer
from tpuctl.sim.workstation.programs import Programs
from tpuctl.simulator_folder import PROGRAMS

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
