"""The rules of Google Cloud for what a request names, checked before it is sent.

- Builds and parses resource names of the Cloud TPU API.

  The only such code of the client; the simulator has its own, `tpuctl/sim/resource_names.py`.
- The rules of the names of nodes, reservations and network tags.
- The rules of metadata:
  https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations.
- The rules of data disks: persistent disks of Compute Engine, in the zone of the TPU.
- The OAuth scopes of a service account: full URLs, or the aliases of gcloud.
- Checks a request for a node or a queued resource as a whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from tpuctl.accelerators import accelerator
from tpuctl.errors import UsageError, nearest
from tpuctl.nodes import CLOUD_TPU, CreateNode, Creation, DataDisk, NodeId, NodeRequest, QueuedResourceId

EVERY_ZONE = "-"
RESERVATION = re.compile(
    r"-|[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
    r"|(projects|folders|organizations)/[a-z0-9.:-]+/locations/(?P<zone>[a-z0-9-]+)/reservations/[-a-z0-9]+"
)
"""A reservation, alone or in full; `-` is any that fits."""
RESERVATION_FORM = "projects/PROJECT/locations/ZONE/reservations/NAME"


def project_name(project: str) -> str:
    """Return `projects/P`."""
    return f"projects/{project}"


def location(project: str, zone: str) -> str:
    """Return `projects/P/locations/Z`."""
    return f"projects/{project}/locations/{zone}"


def node_name(node: NodeId) -> str:
    """Return `projects/P/locations/Z/nodes/N`."""
    return f"{location(node.project, node.zone)}/nodes/{node.name}"


def parse_node_name(name: str, uid: str) -> NodeId:
    """Return the identity of the node called `projects/P/locations/Z/nodes/N`; raises ValueError."""
    match name.split("/"):
        case ["projects", project, "locations", zone, "nodes", node]:
            return NodeId(CLOUD_TPU, project, zone, node, uid)
    raise ValueError(f"'{name}' is not the name of a node.")


def queued_resource_name(queued_resource: QueuedResourceId) -> str:
    """Return `projects/P/locations/Z/queuedResources/Q`."""
    parent = location(queued_resource.project, queued_resource.zone)
    return f"{parent}/queuedResources/{queued_resource.name}"


def parse_queued_resource_name(name: str) -> QueuedResourceId:
    """Return the identity of what is called `projects/P/locations/Z/queuedResources/Q`; raises ValueError."""
    match name.split("/"):
        case ["projects", project, "locations", zone, "queuedResources", queued_resource]:
            return QueuedResourceId(CLOUD_TPU, project, zone, queued_resource)
    raise ValueError(f"'{name}' is not the name of a queued resource.")


def reservation_name(reservation: str, project: str, zone: str) -> str:
    """Return `projects/P/locations/Z/reservations/R` for R or for the full name."""
    return reservation if "/" in reservation else f"{location(project, zone)}/reservations/{reservation}"


def zone_of(location: str) -> str:
    """Return the zone of `projects/P/locations/Z`."""
    return location.rpartition("/")[2]


NODE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""Of nodes, queued resources and tags (RFC 1035)."""
LONGEST = 63
MOST_TAGS = 64


def check_node_name(name: str, slices: int) -> None:
    """Raise UsageError for a name that a node, or the last one of several slices, cannot have."""
    last = f"{name}-{slices - 1}" if slices > 1 else name
    if not NODE_NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a node.",
            hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
        )
    if len(last) > LONGEST:
        raise UsageError(
            f"'{name}' is too long: its slices are called '{name}-0' to '{last}'.",
            hint=f"Names have {LONGEST} characters at most.",
        )


def check_reservation(reservation: str, zone: str) -> None:
    """Raise UsageError for a name that no reservation in the zone has; '' stands for none."""
    match = RESERVATION.fullmatch(reservation)
    if reservation and match is None:
        raise UsageError(
            f"'{reservation}' cannot name a reservation.",
            hint=f"It is NAME, or {RESERVATION_FORM}.",
        )
    if match and match["zone"] not in (None, zone):
        raise UsageError(
            f"The reservation is in {match['zone']}, not in {zone}.",
            hint=f"Pass --zone {match['zone']}.",
            zone=zone,
        )


def check_tags(tags: Sequence[str]) -> None:
    """Raise UsageError for what cannot be a network tag, and for too many."""
    for tag in tags:
        if not NODE_NAME.fullmatch(tag):
            raise UsageError(
                f"'{tag}' cannot be a network tag.",
                hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
            )
    if len(set(tags)) > MOST_TAGS:
        raise UsageError(
            f"{len(set(tags))} network tags are too many.", hint=f"A VM has {MOST_TAGS} at most."
        )


KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")
LARGEST = 256 << 10
"""Bytes of a value."""
MOST_METADATA = 512 << 10
"""Bytes of all keys and values."""
SSH_KEYS = "ssh-keys"
"""The metadata key that the hosts read, a line `USER:KEY` for each key."""
STARTUP_SCRIPT = "startup-script"
"""The metadata key whose value the hosts run at each boot."""
RESERVED = {
    SSH_KEYS: "tpuctl sets it to your key; add others on the host, or by their own 'tpuctl up'",
    "sshKeys": "it is the former name of ssh-keys, which tpuctl sets",
    STARTUP_SCRIPT: "pass the script by --startup-script FILE",
    "accelerator-type": "Google sets it",
    "agent-worker-number": "Google sets it",
    "instance-id": "Google sets it",
    "tpu-env": "Google sets it",
    "worker-network-endpoints": "Google sets it",
}
"""Key that a user cannot set -> why."""


def check_metadata(request: NodeRequest) -> None:
    """Raise UsageError for metadata that Google refuses, or that would replace what a host needs."""
    for key, value in request.metadata.items():
        if not KEY.fullmatch(key):
            raise UsageError(
                f"'{key}' cannot be a key of metadata.",
                hint="Use letters, digits, - and _, 128 at most.",
                metadata=key,
            )
        if key in RESERVED:
            raise UsageError(
                f"The metadata key '{key}' is reserved.", hint=f"{RESERVED[key].capitalize()}.", metadata=key
            )
        _check_value(f"The metadata value '{key}'", value)
    _check_value("The startup script", request.startup_script)
    _check_total(request)


def _check_value(subject: str, value: str) -> None:
    if _bytes(value) > LARGEST:
        raise UsageError(
            f"{subject} has {_bytes(value):,} bytes.",
            hint=f"A value has {LARGEST:,} at most: put the rest in the bucket, and read it from there.",
        )


def _check_total(request: NodeRequest) -> None:
    key = request.ssh_key
    items = {**request.metadata, SSH_KEYS: f"{key.user}:{key.public_key} {key.user}"}
    if request.startup_script:
        items[STARTUP_SCRIPT] = request.startup_script
    total = sum(_bytes(name) + _bytes(value) for name, value in items.items())
    if total > MOST_METADATA:
        raise UsageError(
            f"The metadata has {total:,} bytes in all.",
            hint=f"A TPU has {MOST_METADATA:,} at most, the SSH key and the startup script included.",
        )


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


DISK_URL = re.compile(r"https://(www|compute)\.googleapis\.com/compute/[a-z0-9]+/")
DISK_NAME = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
SOURCE = re.compile(
    rf"projects/[a-z0-9.:-]+/zones/(?P<zone>[a-z0-9-]+)/disks/{DISK_NAME}|(?P<name>{DISK_NAME})"
)


def disk_name(source: str, project: str, zone: str) -> str:
    """Return `projects/P/zones/Z/disks/D` for D, for the full name, or for its URL."""
    source = DISK_URL.sub("", source)
    return source if "/" in source else f"projects/{project}/zones/{zone}/disks/{source}"


def check_disks(disks: Sequence[DataDisk], zone: str, *, hosts: int, slices: int) -> None:
    """Raise UsageError for disks that the hosts of a TPU in `zone` cannot have."""
    sources = [disk_name(disk.source, "", zone) for disk in disks]
    for disk, source in zip(disks, sources, strict=True):
        _check_place(disk, zone)
        if sources.count(source) > 1:
            raise UsageError(f"Disk '{disk.source}' is named twice.", disk=disk.source)
        if hosts * slices > 1 and not disk.read_only:
            raise UsageError(
                f"{hosts * slices} hosts can share disk '{disk.source}' only if nobody writes to it.",
                hint=f"Attach it read-only: --data-disk {disk.source}:ro",
                disk=disk.source,
            )


def _check_place(disk: DataDisk, zone: str) -> None:
    match = SOURCE.fullmatch(DISK_URL.sub("", disk.source))
    if match is None:
        raise UsageError(
            f"'{disk.source}' cannot name a disk.",
            hint="It is NAME or projects/PROJECT/zones/ZONE/disks/NAME; for read-only with :ro behind it.",
            disk=disk.source,
        )
    if match["zone"] not in (None, zone):
        raise UsageError(
            f"Disk '{disk.source}' is in {match['zone']}, not in {zone}.",
            hint=f"Pass --zone {match['zone']}: a disk is attached in its own zone only.",
            zone=zone,
        )


AUTH = "https://www.googleapis.com/auth/"
SCOPE_URL = re.compile(r"https://(www\.googleapis\.com/auth/[\w./-]+|mail\.google\.com/)", re.ASCII)
CLOUD_PLATFORM = f"{AUTH}cloud-platform"
"""All that the roles of the account allow."""
ALIASES = {
    # gcloud's names (googlecloudsdk/api_lib/compute/constants.py): the ends of their URLs
    "bigquery": ("bigquery",),
    "cloud-platform": ("cloud-platform",),
    "cloud-source-repos": ("source.full_control",),
    "cloud-source-repos-ro": ("source.read_only",),
    "compute-ro": ("compute.readonly",),
    "compute-rw": ("compute",),
    "datastore": ("datastore",),
    "default": (
        "devstorage.read_only", "logging.write", "monitoring.write", "pubsub",
        "service.management.readonly", "servicecontrol", "trace.append",
    ),
    "gke-default": (
        "devstorage.read_only", "logging.write", "monitoring", "service.management.readonly",
        "servicecontrol", "trace.append",
    ),
    "logging-write": ("logging.write",),
    "monitoring": ("monitoring",),
    "monitoring-read": ("monitoring.read",),
    "monitoring-write": ("monitoring.write",),
    "pubsub": ("pubsub",),
    "service-control": ("servicecontrol",),
    "service-management": ("service.management.readonly",),
    "sql": ("sqlservice",),
    "sql-admin": ("sqlservice.admin",),
    "storage-full": ("devstorage.full_control",),
    "storage-ro": ("devstorage.read_only",),
    "storage-rw": ("devstorage.read_write",),
    "taskqueue": ("taskqueue",),
    "trace": ("trace.append",),
    "userinfo-email": ("userinfo.email",),
}  # fmt: skip


def scope_urls(scopes: Sequence[str]) -> tuple[str, ...]:
    """Return the URLs of scopes, each once; raises UsageError for what is neither URL nor alias."""
    urls: dict[str, None] = {}
    for scope in scopes:
        if SCOPE_URL.fullmatch(scope):
            urls[scope] = None
        elif scope in ALIASES:
            urls |= dict.fromkeys(AUTH + end for end in ALIASES[scope])
        else:
            close = nearest(scope, sorted(ALIASES))
            hint = (
                f"Did you mean {close[0]}?" if close else f"Give {AUTH}NAME or {', '.join(sorted(ALIASES))}."
            )
            raise UsageError(f"'{scope}' is no OAuth scope.", hint=hint, scope=scope)
    return tuple(urls)


MOST_LABELS = 64
MOST_BYTES = 128
"""UTF-8 bytes of a key or a value."""
CATEGORIES = frozenset({"Ll", "Lo", "Nd", "Nl", "No"})
"""Of Unicode: lower-case letters, letters without case, numbers; Google's `[\\p{Ll}\\p{Lo}\\p{N}_-]`."""
FIRST = frozenset({"Ll", "Lo"})
RULE = "Labels have lower-case letters of any language, digits, - and _; 63 characters, 128 bytes at most."


def check_creation(creation: Creation) -> None:
    """Raise UsageError for what the Cloud TPU API, or Compute Engine behind it, would refuse."""
    if isinstance(creation, CreateNode):
        _check_node(creation.request, slices=1)
        return
    request = creation.request
    check_reservation(request.reservation, request.id.zone)
    _check_tier(request.node, is_reserved=bool(request.reservation))
    _check_node(request.node, request.slices)


def _check_node(request: NodeRequest, slices: int) -> None:
    check_node_name(request.id.name, slices)
    _check_tier(request, is_reserved=False)
    check_labels(request.labels)
    check_metadata(request)
    check_tags(request.tags)
    check_disks(
        request.data_disks, request.id.zone, hosts=accelerator(request.accelerator).hosts, slices=slices
    )
    scope_urls(request.scopes)


def _check_tier(request: NodeRequest, *, is_reserved: bool) -> None:
    if request.spot and (request.reserved or is_reserved):
        raise UsageError(
            "A TPU is spot or uses reserved capacity, not both.",
            hint="Leave out --spot, or --reserved and --reservation.",
        )


# The rules of labels: https://cloud.google.com/resource-manager/docs/labels-overview#requirements.


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise UsageError for labels that Google Cloud refuses."""
    for key, value in labels.items():
        if not key or unicodedata.category(key[0]) not in FIRST or not _is_allowed(key):
            raise UsageError(
                f"'{key}' cannot be the key of a label.", hint=f"It begins with a letter. {RULE}", label=key
            )
        if not _is_allowed(value):
            raise UsageError(f"'{value}' cannot be the value of label '{key}'.", hint=RULE, label=key)
    if len(labels) > MOST_LABELS:
        raise UsageError(
            f"{len(labels)} labels are too many.",
            hint=f"A TPU has {MOST_LABELS} at most, tpuctl's own among them.",
            labels=len(labels),
        )


def _is_allowed(text: str) -> bool:
    return (
        len(text) <= LONGEST
        and len(text.encode(errors="surrogatepass")) <= MOST_BYTES
        and all(character in "-_" or unicodedata.category(character) in CATEGORIES for character in text)
    )
