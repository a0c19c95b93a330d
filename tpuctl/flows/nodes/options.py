"""Defines the options of `up`, and turns them into the request for one zone."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from msgspec import field

from tpuctl import durations
from tpuctl.accelerators import Accelerator, accelerator
from tpuctl.cloud.provider import Provider
from tpuctl.config.subnetworks import subnetwork_in
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.nodes import (
    LABEL,
    LABEL_VALUE,
    OWNER_LABEL,
    OWNER_METADATA,
    RESTART_LABEL,
    RUN_LABEL,
    CreateNode,
    CreateQueuedResource,
    Creation,
    NodeRequest,
    NodeSpec,
    QueuedResourceRequest,
    SshKey,
    owner_label,
)

OWN_PREFIX = "tpuctl-"
"""Of the keys of tpuctl's own labels and metadata."""
ANY_RESERVATION = "-"
"""Any reservation of the project that fits."""


class UpOptions(NodeSpec, frozen=True):
    """The options of `up`, configuration included: the same for every zone.

    tpuctl's own labels and metadata are added to these; their keys are refused.
    """

    accelerator: str
    name: str
    owner: str
    """The account whose node it will be."""
    runtime: str | None = None
    """None for the one that the framework needs."""
    framework: str = ""
    """Empty where nothing says it."""
    spot: bool = False
    subnetworks: Mapping[str, str] = {}
    """Region -> subnetwork, in the place of `subnetwork`; other regions are not used."""
    queued: bool | None = None
    """Whether to wait in the queue; None for where a node cannot be created directly."""
    reservation: str = ""
    slices: int = 1
    valid_until: str = ""
    """ISO-8601, UTC; empty for no limit."""
    labels: Mapping[str, str] = {}
    lifetime: Lifetime = field(default_factory=Lifetime)
    typed: tuple[str, ...] = ()
    """The words of the command line, but those that only say how it is shown; for hints."""
    bucket: str | None = None
    """Where the end of its lifetime is recorded."""
    run: str = ""
    """The run that it is made for; empty for a node that is made for itself."""
    restart: str = ""
    """The run for whose restart it is made, and with which it is deleted."""

    @property
    def type(self) -> Accelerator:
        """The accelerator type in the catalogue."""
        return accelerator(self.accelerator)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `up` that ask for it, where nobody has typed them; without what may be a secret."""
        values = {
            "--name": [self.name],
            "--runtime": [self.runtime] if self.runtime else [],
            "--framework": [self.framework] if self.framework else [],
            "--reservation": [self.reservation] if self.reservation else [],
            "--slices": [str(self.slices)] if self.slices > 1 else [],
            "--valid-until": [self.valid_until] if self.valid_until else [],
            "--topology": [self.topology] if self.topology else [],
            "--label": [f"{key}={value}" for key, value in self.labels.items()],
            "--tag": self.tags,
            "--scopes": self.scopes,
            "--ttl": [durations.text(self.lifetime.ttl)] if self.lifetime.ttl else [],
            "--idle": [durations.text(self.lifetime.idle)] if self.lifetime.idle else [],
        }
        flags = {
            "--spot": self.spot,
            "--queued": self.queued is True,
            "--no-queued": self.queued is False,
            "--reserved": self.reserved,
            "--internal-ips": not self.external_ips,
            "--secure-boot": self.secure_boot,
        }
        options = (word for name, each in values.items() for value in each for word in (name, value))
        return ("up", self.accelerator, *options, *(name for name, is_set in flags.items() if is_set))

    @property
    def is_queued(self) -> bool:
        """Whether a queued resource is created, not a node.

        A plain create answers at once: the node, or a stockout, and nothing is left that may bill days
        later. Only a queued resource has several slices, a named reservation, and an end of its waiting.
        """
        return bool(self.needs_queue) if self.queued is None else self.queued

    @property
    def needs_queue(self) -> tuple[str, ...]:
        """The options that only a queued resource has."""
        options = {
            "--slices": self.slices > 1,
            "--reservation": self.reservation,
            "--valid-until": self.valid_until,
        }
        return tuple(name for name, value in options.items() if value)


def obstacle_to_spanning(accelerator: Accelerator, framework: str) -> str:
    """Return why one program cannot span several slices, as a clause; empty where it can.

    Multislice is for v4 and later (Cloud TPU documentation, Cloud TPU Multislice Overview), and for JAX and
    PyTorch (Google Kubernetes Engine documentation, Deploy TPU Multislices).
    """
    if framework == "tensorflow":
        return "Google supports Multislice for JAX and PyTorch only"
    if accelerator.generation in ("v2", "v3"):
        return f"Google offers Multislice on v4 and later, and they are {accelerator.type}"
    return ""


def creation(
    provider: Provider, options: UpOptions, zone: str, runtime: str, ssh_key: SshKey, request_id: str = ""
) -> Creation:
    """Return the change that creates what the options request in a zone; sends nothing.

    `request_id` is a UUID by which the provider knows a repeated request; empty for a new one. Raises
    UsageError for options that exclude each other, and for what the provider would refuse.
    """
    _check(options)
    node = _node_request(provider, options, zone, runtime, ssh_key)
    request: Creation = CreateNode(node)
    if options.is_queued:
        request = CreateQueuedResource(
            QueuedResourceRequest(
                id=provider.queued_resource_id(zone, options.name),
                node=node,
                slices=options.slices,
                reservation=options.reservation or (ANY_RESERVATION if options.reserved else ""),
                valid_until=options.valid_until,
                request_id=request_id or str(uuid.uuid4()),
            )
        )
    provider.check(request)
    return request


def _check(options: UpOptions) -> None:
    """Raise UsageError for options of the queue without the queue, and for keys that are tpuctl's own."""
    if options.needs_queue and not options.is_queued:
        raise UsageError(
            f"{' and '.join(options.needs_queue)} exist only in the queue.", hint="Leave out --no-queued."
        )
    own = [key for key in (*options.labels, *options.metadata) if is_own(key)]
    if own:
        raise UsageError(
            f"'{own[0]}' is reserved: by such labels and metadata tpuctl finds its TPUs again.",
            hint=f"Choose a key that is not {LABEL} and does not begin with {OWN_PREFIX}",
        )


def is_own(key: str) -> bool:
    """Whether a label or metadata with this key is tpuctl's."""
    return key == LABEL or key.startswith(OWN_PREFIX)


def _node_request(
    provider: Provider, options: UpOptions, zone: str, runtime: str, ssh_key: SshKey
) -> NodeRequest:
    spec = {
        **options.chosen,
        "subnetwork": subnetwork_in(zone, options.subnetwork, options.subnetworks),
        "metadata": {
            **options.metadata,
            OWNER_METADATA: options.owner,
            **options.lifetime.metadata(options.bucket),
        },
        "startup_script": options.lifetime.startup_script(options.startup_script),
    }
    return NodeRequest(
        id=provider.node_id(zone, options.name),
        accelerator=options.type.type,
        runtime=runtime,
        spot=options.spot,
        labels={
            **options.labels,
            LABEL: LABEL_VALUE,
            OWNER_LABEL: owner_label(options.owner),
            **({RUN_LABEL: options.run} if options.run else {}),
            **({RESTART_LABEL: options.restart} if options.restart else {}),
            **options.lifetime.marks,
        },
        ssh_key=ssh_key,
        **spec,
    )
