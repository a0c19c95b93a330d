"""Builds the clients of each target, with its endpoints and credentials.

The only place that knows which target a command runs on.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.cloud import google_clients
from tpuctl.config import Config
from tpuctl.config.files import state_folder
from tpuctl.errors import ConfigError, HostError, UsageError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

    from tpuctl.catalogue.prices import RateList
    from tpuctl.catalogue.quotas import Address, Disk, QuotaList, Usage
    from tpuctl.catalogue.regions import BucketLocation
    from tpuctl.cloud.bulk import BulkObjects
    from tpuctl.cloud.error_mapping import Service
    from tpuctl.cloud.iap import Relay
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.rest import RestApi
    from tpuctl.cloud.ssh import ByteStream, Ssh
    from tpuctl.cloud.storage import Bucket, StorageClient
    from tpuctl.cloud.tpu.billing import BillingCatalog
    from tpuctl.nodes import Node, NodeId

SSH_PORT = 22
SIM_SETUP = 'eval "$(tpuctl sim env)"'
SIM_PRICES = "made up by the simulator"


@dataclass(frozen=True)
class Endpoints:
    """Addresses of the services; empty ones are Google's own."""

    target: str
    tpu: str = ""
    """`HOST:PORT` of the Cloud TPU API over gRPC."""
    storage: str = ""
    """URL of Cloud Storage."""
    time: str = ""
    """URL of a server that tells the time; empty for the Cloud TPU API."""
    hosts_file: str = ""
    """JSON file: address of a host -> host and port to connect to."""
    shell_setup: str = ""
    """What points gcloud in a shell at these services."""
    billing: str = ""
    """URL of the Cloud Billing Catalog."""
    quotas: str = ""
    """URL of the Cloud Quotas API."""
    price_source: str = "Cloud Billing Catalog"
    """Where prices are from, as messages name it."""
    compute: str = ""
    """URL of Compute Engine."""
    iap: str = ""
    """URL of Identity-Aware Proxy's TCP relay."""
    is_default_account_editor: bool = False
    """Whether it is known that the default service account of the project may do everything."""
    python: str = ""
    """Version of python3 that hosts have in the place of their image's; empty for the image's."""


class Cloud:
    """The clients of one command, each built at its first use: their imports are slow."""

    def __init__(
        self, config: Config, endpoints: Endpoints, warn: Callable[[str], None] | None = None
    ) -> None:
        """Take what is told that this machine's clock is off."""
        self.config = config
        self.endpoints = endpoints
        self._warn = warn
        self._closers: list[Callable[[], None]] = []
        self._sources: dict[str, BulkObjects] = {}

    def close(self) -> None:
        """Close the connections of the clients that were built."""
        for close in self._closers:
            close()

    @cached_property
    def provider(self) -> Provider:
        """Where nodes come from: the Cloud TPU API. Raises ConfigError without a project or credentials."""
        project = self.config.require("project")
        if self.endpoints.tpu:
            client = google_clients.local_tpu_client(self.endpoints.tpu)
        else:
            client = google_clients.tpu_client(self.credentials)
        self._closers.append(client.transport.close)
        from tpuctl.cloud.tpu.client import CloudTpu  # after Google's client, see there

        is_first_contact = self.config.get("host_keys") == "first-contact"
        return CloudTpu(
            client, project, self._read_project_metadata, self._contacted if is_first_contact else None
        )

    def _contacted(self, node: Node) -> Mapping[int, str]:
        """Return the host keys of first contact with a node."""
        from tpuctl.cloud.ssh.dialing import FirstContact  # only where it is asked for

        return FirstContact(state_folder() / "host-keys", self._dial).keys(node)

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
        from tpuctl.cloud.ssh import Ssh

        key = Path(self.config.require("ssh_key")).expanduser()
        return Ssh(self.config.require("ssh_user"), key, self._dial)

    @cached_property
    def credentials(self) -> Credentials:
        """Application default credentials, or anonymous ones on the simulator; raises ConfigError."""
        if self.endpoints.storage:
            return google_clients.anonymous_credentials()
        return google_clients.default_credentials(self.config.get("project"))

    def server_time(self) -> datetime:
        """Return the time by which nodes are dated, which is not this machine's; raises DeadlineError."""
        from tpuctl.cloud.server_time import server_time

        # The simulator's clock can be set ahead for a test, which does not make this machine's wrong.
        return server_time(
            self.endpoints.time, self._clock_warning if self.endpoints.target == "gcp" else None
        )

    @property
    def _clock_warning(self) -> Callable[[str], None] | None:
        """What says once that this machine's clock is off; None where that is said, or nobody hears it."""

        def warn(line: str) -> None:
            tell, self._warn = self._warn, None
            if tell:
                tell(line)

        return warn if self._warn else None

    def read_rates(self, generation: str) -> RateList:
        """Return the price list that has the rates of a generation; raises tpuctl's errors."""
        return self._price_list.rates(generation)

    def kept_rates(self, generation: str) -> RateList | None:
        """Return the price list that this machine has kept, without asking the service; None without one."""
        return self._price_list.kept(generation)

    @cached_property
    def _price_list(self) -> BillingCatalog:
        from tpuctl.cloud.tpu import billing

        endpoints = self.endpoints
        return billing.BillingCatalog(
            lambda: self._rest_api(billing.SERVICE, endpoints.billing, billing.URL),
            state_folder() / "prices" / endpoints.target,
            endpoints.price_source,
        )

    def read_quotas(self) -> QuotaList:
        """Return the project's quotas of TPUs; raises tpuctl's errors."""
        from tpuctl.cloud.tpu import quotas

        api = self._rest_api(quotas.SERVICE, self.endpoints.quotas, quotas.URL)
        return quotas.read_quotas(api, self.config.require("project"))

    def read_disks(self) -> tuple[list[Disk], list[str]]:
        """Return the project's disks, and places that did not answer; raises tpuctl's errors."""
        from tpuctl.cloud.tpu import project_metadata

        return project_metadata.read_disks(self._compute_api(), self.config.require("project"))

    def read_addresses(self) -> tuple[list[Address], list[str]]:
        """Return the project's static external addresses, and places that did not answer."""
        from tpuctl.cloud.tpu import project_metadata

        return project_metadata.read_addresses(self._compute_api(), self.config.require("project"))

    def bucket_names(self) -> list[str]:
        """Return the names of the project's buckets; raises ConfigError without storage.buckets.list."""
        client = self._storage_client()
        from tpuctl.cloud.storage import list_buckets  # after Google's client

        return list_buckets(client, self.config.require("project"))

    def bucket_usage(self, name: str, most: int) -> tuple[str, Usage]:
        """Return where any bucket is and how much is in it, by at most so many objects."""
        bucket = self._bucket(name)
        return bucket.location().name, bucket.usage(most)

    def _read_project_metadata(self) -> Mapping[str, str]:
        from tpuctl.cloud.tpu import project_metadata

        return project_metadata.read_project_metadata(self._compute_api(), self.config.require("project"))

    def default_account(self) -> str:
        """Return the service account of TPUs for which none is named. Raises tpuctl's errors."""
        from tpuctl.cloud.tpu import project_metadata

        return project_metadata.read_default_account(self._compute_api(), self.config.require("project"))

    def _compute_api(self) -> RestApi:
        from tpuctl.cloud.tpu import project_metadata

        return self._rest_api(project_metadata.SERVICE, self.endpoints.compute, project_metadata.URL)

    def _rest_api(self, service: Service, url: str, googles: str) -> RestApi:
        """Return an API of Google's, or the service at a `url` on loopback."""
        from tpuctl.cloud.rest import RestApi

        if self.endpoints.storage:
            self._require_simulated(url, service.api)
        self.config.require("project")
        session = google_clients.rest_session(self.credentials, is_local=bool(url))
        self._closers.append(session.close)
        return RestApi(session, url or googles, service)

    def require_simulator(self) -> None:
        """Raise UsageError where nodes cannot be preempted on request."""
        if self.endpoints.target != "sim":
            raise UsageError(
                "Google has no request that preempts a TPU.",
                hint="Leave --preempt out to simulate a maintenance; '--target sim' has both.",
            )

    def preempt(self, node: NodeId, notice: float) -> None:
        """Preempt a node after a notice of so many seconds; raises UsageError but on the simulator."""
        self._strike("preemption", node, notice)

    def reboot(self, node: NodeId, notice: float) -> None:
        """Have a node's hosts reboot, as in a maintenance; raises UsageError but on the simulator."""
        self._strike("maintenance", node, notice)

    def _strike(self, kind: str, node: NodeId, notice: float) -> None:
        self.require_simulator()
        from tpuctl import faults  # only on the simulator
        from tpuctl.cloud.simulator.process import ControlClient

        options = {"node": node.name, "zone": node.zone, "notice": notice}
        ControlClient(simulator_folder()).add([faults.request(kind, options)])

    def source_objects(self, bucket: str) -> BulkObjects:
        """Return the objects of a bucket that holds sources of datasets."""
        if bucket not in self._sources:
            client = self._storage_client()
            from tpuctl.cloud.bulk import BulkObjects  # after Google's client

            self._sources[bucket] = BulkObjects(client, bucket, shell_setup=self.endpoints.shell_setup)
        return self._sources[bucket]

    def bucket_location(self, name: str) -> BucketLocation:
        """Return where any bucket is; raises ConfigError without storage.buckets.get."""
        own = [self.data_bucket] if name == self.data_bucket.name else []
        return (*own, self._bucket(name))[0].location()

    def _storage_client(self) -> StorageClient:
        project = self.config.require("project")
        client = google_clients.storage_client(project, self.credentials, self.endpoints.storage)
        self._closers.append(client.close)
        return client

    def _bucket(self, name: str) -> Bucket:
        client = self._storage_client()
        from tpuctl.cloud.storage import Bucket  # after Google's client, which is imported there

        return Bucket(client, name, shell_setup=self.endpoints.shell_setup, warn=self._clock_warning)

    def _dial(self, node: Node, worker: int) -> ByteStream:
        """Return a stream to a worker's SSH server; raises HostError, ConfigError or OSError."""
        from tpuctl.cloud.ssh import dial_address

        if self.uses_iap(node, worker):
            return self._tunnel(node, worker)
        return dial_address(*self._endpoint(node, worker))

    def ssh_address(self, node: Node, worker: int) -> tuple[str, int] | None:
        """Return host and port of a worker's SSH server, for another program; None where only `_dial` does.

        Raises HostError.
        """
        if self.uses_iap(node, worker):
            return None
        return self._endpoint(node, worker)

    def uses_iap(self, node: Node, worker: int) -> bool:
        """Whether a worker is reached through IAP: as configured, else if it has no external address."""
        setting = self.config.get("iap")
        if setting is not None:
            return setting == "yes"
        return not all(node.external[worker : worker + 1])

    def _tunnel(self, node: Node, worker: int) -> ByteStream:
        from tpuctl.cloud import iap

        subject = f"Worker {worker} of '{node.name}'" if node.addresses[1:] else f"'{node.name}'"
        name = self.provider.hostname(node.id, worker)
        if name is None:
            raise HostError(
                f"{subject} has not published its hostname, by which IAP finds it.",
                hint="It may still boot; inside of its network, pass --no-iap.",
            )
        return iap.open_tunnel(self._relay, iap.Instance(node.id.project, node.zone, name), subject)

    @cached_property
    def _relay(self) -> Relay:
        """IAP's relay, or that of the simulator."""
        from tpuctl.cloud import iap

        if self.endpoints.storage:
            url = self._require_simulated(self.endpoints.iap, "IAP relay")
            return iap.Relay(lambda _: "simulator", f"{url.replace('http', 'ws', 1)}/v4", is_local=True)
        return iap.Relay(google_clients.AccessToken(self.credentials))

    def check_relay(self, zone: str = "") -> None:
        """Ask IAP's relay for an instance that does not exist; raises ConfigError if it refuses us."""
        from tpuctl.cloud import iap

        instance = iap.Instance(
            self.config.require("project"), zone or self.config.require("zone"), "tpuctl-doctor"
        )
        try:
            iap.open_tunnel(self._relay, instance, "Hosts without external addresses").close()
        except HostError as error:
            if error.facts.get("iap") not in iap.NO_INSTANCE:
                raise

    def iap_firewall_rule(self, network: str = "") -> str | None:
        """Return a firewall rule that lets IAP reach port 22 of a network, by default the configured one.

        Raises tpuctl's errors.
        """
        from tpuctl.cloud.iap.firewall import ssh_rule

        return ssh_rule(
            self._compute_api(), self.config.require("project"), network or self.config.require("network")
        )

    def is_ssh_open(self, network: str, tags: Sequence[str], account: str) -> bool:
        """Whether a firewall rule lets machines outside of a network reach port 22 of hosts of this kind.

        `account` is their service account. Raises tpuctl's errors.
        """
        from tpuctl.cloud.iap.firewall import is_ssh_open

        return is_ssh_open(self._compute_api(), self.config.require("project"), network, tags, account)

    def _require_simulated(self, url: str, service: str) -> str:
        """Return a service's URL; raises ConfigError for a simulator that does not have it."""
        if url:
            return url
        raise ConfigError(
            f"The simulator that runs has no {service}: another version of tpuctl started it.",
            hint="Stop it, and the next command starts its own: tpuctl sim stop",
        )

    def _endpoint(self, node: Node, worker: int) -> tuple[str, int]:
        """Return the host and port to connect to for a worker; raises HostError."""
        if node.missing_hosts:  # an address may be another worker's, and an empty one is this machine's
            raise HostError(
                f"Worker {worker} of '{node.name}' cannot be reached: {node.missing_hosts}.",
                hint=f"Wait for all: tpuctl wait {node.name}",
            )
        address = node.addresses[worker]
        if not self.endpoints.hosts_file:
            return address, SSH_PORT
        hosts = json.loads(Path(self.endpoints.hosts_file).read_text())
        if address not in hosts:
            raise HostError(f"No host answers at {address}.", hint="'tpuctl ls' shows the state of its node.")
        host, port = hosts[address]
        return host, port


def connect(config: Config, warn: Callable[[str], None] | None = None) -> Cloud:
    """Return the clients for the configured target; starts the simulator if that is the target.

    `warn` is told if this machine's clock is off.
    """
    if config.target == "gcp":
        return Cloud(config, Endpoints("gcp"), warn)
    from tpuctl.cloud import simulator

    served = simulator.ensure(simulator_folder())
    endpoints = Endpoints(
        target="sim",
        tpu=served.tpu_grpc,
        storage=served.storage,
        time=served.tpu_rest,
        hosts_file=served.hosts_file,
        shell_setup=SIM_SETUP,
        billing=served.billing_rest,
        quotas=served.quota_rest,
        price_source=SIM_PRICES,
        compute=served.compute_rest,
        iap=served.iap_relay,
        is_default_account_editor=served.default_account == "editor",
        python=platform.python_version() if served.python == "machine" else "",
    )
    return Cloud(config, endpoints, warn)


def simulator_folder() -> Path:
    """Return the folder of this user's simulator."""
    return state_folder() / "sim"
