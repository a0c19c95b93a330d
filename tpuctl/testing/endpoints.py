"""Where the services of a simulator are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

PATHS = ("ca_file", "ssh_config", "hosts_file")


@dataclass(frozen=True)
class Endpoints:
    """Addresses on loopback, and names that there are from the start."""

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
    """What there is of the Compute Engine API."""
    metadata: str
    """The metadata server of this machine: `127.0.0.1:PORT`."""
    proxy: str
    """The proxy behind which https://*.googleapis.com is the simulator."""
    ca_file: Path
    """The certificates that programs behind the proxy have to trust."""
    ssh_config: Path
    """OpenSSH's configuration, with the addresses of all hosts that are up: `ssh -F FILE ADDRESS`."""
    hosts_file: Path
    """The same as JSON: address of a host -> host and port to connect to."""

    @classmethod
    def of(cls, served: Mapping[str, Any]) -> Endpoints:
        """Read what a simulator says about itself."""
        known = {one.name: served[one.name] for one in fields(cls)}
        return cls(**{**known, **{name: Path(known[name]) for name in PATHS}})
