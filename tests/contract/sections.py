"""The rows and columns of the tables: every method of each API, and its clients."""

from __future__ import annotations

from dataclasses import dataclass

from tests.contract.storage_methods import JSON_METHODS, MEDIA, XML_REQUESTS

STORAGE_CLIENTS = (
    "REST", "gcloud", "gsutil", "google-cloud-storage", "transfer_manager", "gcsfs", "tensorstore",
    "obstore", "tf.io.gfile",
)  # fmt: skip

COMPUTE = (
    "compute.instances.list",
    "compute.instances.aggregatedList",
    "compute.firewalls.list",
    "compute.firewalls.get",
    "compute.firewalls.insert",
    "compute.firewalls.update",
    "compute.firewalls.patch",
    "compute.firewalls.delete",
    *(
        f"compute.{collection}.{method}"
        for collection in ("disks", "addresses")
        for method in ("aggregatedList", "list", "get", "insert", "delete")
    ),
    "compute.projects.get",
    "compute.projects.setCommonInstanceMetadata",
    "compute.globalOperations.get",
    "compute.globalOperations.wait",
)
"""What gcloud's `tpu-vm ssh`, SkyPilot and `tpuctl cost --now` need of Compute Engine."""

METADATA = (
    "metadata.get", "metadata.recursive", "metadata.wait_for_change", "metadata.tpu-env",
    "metadata.guest-attributes", "metadata.preempted", "metadata.token", "metadata.identity",
    "metadata.project attributes",
)  # fmt: skip

SSH = (
    "ssh.command", "ssh.exit status", "ssh.exit signal", "ssh.standard input", "ssh.terminal",
    "ssh.terminal size", "ssh.login shell", "ssh.locale variables", "ssh.sftp", "ssh.scp", "ssh.rsync",
    "ssh.public key",
    "ssh.published host key", "ssh.forward to the host (-L)", "ssh.forward to the user (-R)",
    "ssh.many sessions on a connection", "ssh.commands that outlive their connection", "ssh.password",
    "ssh.agent forwarding", "ssh.X11",
)  # fmt: skip


@dataclass(frozen=True)
class Section:
    """One table."""

    title: str
    methods: tuple[str, ...]
    clients: tuple[str, ...]


def sections() -> list[Section]:
    """Return the tables; the Cloud TPU API's methods are read off the official client."""
    tpu = ("gRPC", "REST", "gcloud")
    return [
        Section("Cloud TPU API v2", _of_version("v2"), tpu),
        Section("Cloud TPU API v2alpha1", _of_version("v2alpha1"), tpu),
        Section("Cloud TPU API v1", _of_version("v1"), ("gRPC",)),
        Section("Operations and locations of the Cloud TPU API", _mixins(), tpu),
        Section("Cloud Storage, JSON API", _json(), STORAGE_CLIENTS),
        Section(
            "Cloud Storage, XML API", tuple(f"xml {request}" for request in XML_REQUESTS), STORAGE_CLIENTS
        ),
        Section("Compute Engine API", COMPUTE, ("REST", "gcloud")),
        Section("Metadata server", METADATA, ("HTTP", "google-auth")),
        Section("SSH to the hosts", SSH, ("OpenSSH", "fabric", "gcloud")),
    ]


def absent_json() -> list[tuple[str, str, str]]:
    """Return method, HTTP method and path of the methods that the simulator's JSON API does not have."""
    import re

    from tpuctl.sim.gcs.json_api.routes import ROUTES

    served = {(verb, re.sub(r"\{\w+\}", "{}", path)) for verb, path, _ in ROUTES} | {("POST", "b/{}/o")}
    return [
        (method, verb, path)
        for method, verb, path in JSON_METHODS
        if (verb, re.sub(r"\{\w+\}", "{}", path)) not in served
    ]


def absent_xml() -> list[str]:
    """Return the requests that the simulator's XML API does not have."""
    from tpuctl.sim.gcs.xml_api.routes import ROUTES

    served = {f"{verb} {kind}{f' ?{sub}' if sub else ''}" for kind, verb, sub in ROUTES}
    served |= {"POST object x-goog-resumable", "PUT object ?upload_id"}
    return [request for request in XML_REQUESTS if request not in served]


def _json() -> tuple[str, ...]:
    """The methods of the JSON API; uploads have a line for each kind."""
    return (*(method for method, *_ in JSON_METHODS if method != "storage.objects.insert"), *MEDIA)


def _of_version(version: str) -> tuple[str, ...]:
    from tpuctl.sim.tpu.grpc_api import rpcs

    return tuple(sorted(f"{version}.{rpc.name}" for rpc in rpcs(version)))


def absent_v1() -> set[str]:
    """Return the methods of v1 that the simulator refuses: those that change something."""
    return {method for method in _of_version("v1") if not method.startswith(("v1.Get", "v1.List"))}


def _mixins() -> tuple[str, ...]:
    from tpuctl.sim.tpu.grpc_api import MIXINS

    return tuple(f"{rpc.service.rpartition('.')[2]}.{rpc.name}" for rpc in MIXINS)
