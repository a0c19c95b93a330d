"""Defines the addresses of a simulator's services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Endpoints:
    """Addresses on loopback, and the names of the project and the bucket that exist from the start."""

    project: str
    """The project that everything belongs to; any other name works too."""
    bucket: str
    """A bucket of it."""
    tpu_grpc: str
    """The Cloud TPU API over gRPC, without TLS: `127.0.0.1:PORT`."""
    tpu_rest: str
    """The Cloud TPU API over REST: `http://127.0.0.1:PORT`, for `client_options={"api_endpoint": ...}`."""
    storage: str
    """Cloud Storage: `http://127.0.0.1:PORT`, for `client_options={"api_endpoint": ...}`."""
    compute_rest: str
    """The Compute Engine API, as far as it is simulated: `http://127.0.0.1:PORT`."""
    metadata: str
    """The metadata server of this machine: `127.0.0.1:PORT`."""
    proxy: str
    """The HTTP proxy that passes https://*.googleapis.com to the simulator."""
    ca_file: Path
    """The certificates that programs behind the proxy must trust."""
    ssh_config: Path
    """OpenSSH's configuration, with the addresses of all hosts that are up: `ssh -F FILE ADDRESS`."""
    hosts_file: Path
    """The same as JSON: address of a host -> host and port to connect to."""

    @classmethod
    def from_published(cls, published: Mapping[str, object]) -> Endpoints:
        """Return the endpoints that a simulator publishes."""
        return cls(
            project=str(published["project"]),
            bucket=str(published["bucket"]),
            tpu_grpc=str(published["tpu_grpc"]),
            tpu_rest=str(published["tpu_rest"]),
            storage=str(published["storage"]),
            compute_rest=str(published["compute_rest"]),
            metadata=str(published["metadata"]),
            proxy=str(published["proxy"]),
            ca_file=Path(str(published["ca_file"])),
            ssh_config=Path(str(published["ssh_config"])),
            hosts_file=Path(str(published["hosts_file"])),
        )
