"""Where to connect, and the clients: the only place that knows which target a command runs on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuctl.config.settings import Config, state_folder
from tpuctl.errors import HostError

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket
    from tpuctl.cloud.tpu import TpuApi


@dataclass(frozen=True)
class Endpoints:
    """Addresses of the services; empty ones are Google's own."""

    target: str
    tpu: str = ""
    storage: str = ""
    hosts_file: str = ""
    price: str = "unknown: no price list is read yet"
    """What an hour of any node costs, and how that is known."""


class Cloud:
    """The clients of one command, each built when it is first asked for: their imports are slow."""

    def __init__(self, config: Config, endpoints: Endpoints) -> None:
        self.config = config
        self.endpoints = endpoints
        self._closers: list[Callable[[], None]] = []

    def close(self) -> None:
        """Close the connections of the clients that were built."""
        for closer in self._closers:
            closer()

    @cached_property
    def tpu(self) -> TpuApi:
        """The Cloud TPU API."""
        import grpc  # noqa: PLC0415

        with _unimported("aiohttp"):
            from google.cloud import tpu_v2  # noqa: PLC0415
        from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport  # noqa: PLC0415

        from tpuctl.cloud.tpu import TpuApi  # noqa: PLC0415

        project = self.config.require("project")
        if not self.endpoints.tpu:
            client = tpu_v2.TpuClient(credentials=self.credentials)
        else:
            # Without the option gRPC sends even loopback traffic to a proxy of the user's environment.
            channel = grpc.insecure_channel(self.endpoints.tpu, options=[("grpc.enable_http_proxy", 0)])
            client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        self._closers.append(client.transport.close)
        return TpuApi(client, project)

    @cached_property
    def bucket(self) -> Bucket:
        """The configured bucket, of runs."""
        return self._bucket(self.config.require("bucket"))

    @cached_property
    def data_bucket(self) -> Bucket:
        """The configured bucket of datasets: that of runs unless another one is named."""
        name = self.config.get("data_bucket") or self.config.require("bucket")
        return self.bucket if name == self.config.get("bucket") else self._bucket(name)

    @cached_property
    def ssh(self) -> Ssh:
        """SSH to the hosts."""
        from tpuctl.cloud.ssh import Ssh  # noqa: PLC0415

        key = Path(self.config.require("ssh_key")).expanduser()
        return Ssh(self.config.require("ssh_user"), key, self._dial)

    @cached_property
    def credentials(self) -> Any:
        """Application default credentials, or anonymous ones where nobody asks; raises ConfigError."""
        import google.auth  # noqa: PLC0415
        from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415

        from tpuctl.cloud.error_mapping import translated  # noqa: PLC0415

        if self.endpoints.storage:
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        with translated("Google Cloud"):
            found, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
            return found

    def _bucket(self, name: str) -> Bucket:
        import requests  # noqa: PLC0415

        # Else each client asks for the bucket once more, in a thread of its own, for tracing that is off.
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        with _unimported("aiohttp"):
            from google.cloud import storage  # type: ignore[attr-defined]  # noqa: PLC0415

        from tpuctl.cloud.storage import Bucket  # noqa: PLC0415

        name = name.removeprefix("gs://").rstrip("/")
        options, session = None, None
        if self.endpoints.storage:
            options = {"api_endpoint": self.endpoints.storage}
            session = requests.Session()
            session.trust_env = False  # like gRPC above: loopback traffic is not for the user's proxy
        client = storage.Client(
            project=self.config.require("project"),
            credentials=self.credentials,
            client_options=options,
            _http=session,
        )
        client._http.hooks["response"].append(_take_whole_refusal)
        self._closers.append(client.close)
        return Bucket(client, name)

    def _dial(self, address: str) -> tuple[str, int]:
        """Return host and port behind a node's address: itself and 22, unless a file says otherwise."""
        if not self.endpoints.hosts_file:
            return address, 22
        places = json.loads(Path(self.endpoints.hosts_file).read_text())
        if address not in places:
            raise HostError(f"No host answers at {address}.", hint="'tpuctl ls' shows the state of its node.")
        host, port = places[address]
        return host, port


def connect(config: Config) -> Cloud:
    """Return the clients for the configured target, starting the simulator where it is the target."""
    if config.target == "gcp":
        return Cloud(config, Endpoints("gcp"))
    from tpuctl.cloud.simulator import process as embedded  # noqa: PLC0415

    served = embedded.ensure(simulator_folder())
    price = "nothing: this is the simulator"
    return Cloud(config, Endpoints("sim", served.tpu_grpc, served.storage, served.hosts_file, price))


def simulator_folder() -> Path:
    """Return the folder of the embedded simulator's state."""
    return state_folder() / "sim"


def _take_whole_refusal(response: Any, **_: Any) -> None:
    """Read a refused download to its end: the client does not, and then loses the connection, at each try."""
    if response.status_code >= 400:
        response.content  # noqa: B018  reading it is the point


@contextmanager
def _unimported(name: str) -> Iterator[None]:
    """Let an optional import of `name` inside the block fail, unless it was imported before.

    Google's clients import aiohttp where it is installed, for their asynchronous halves alone: 90 ms of CPU.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        yield
    finally:
        del sys.modules[name]
