"""Full resource names of the Cloud TPU API: `projects/P/locations/Z/nodes/N`."""

from __future__ import annotations

import re
import secrets

from tpuctl.sim.world.api_errors import problem

PLACE = re.compile(r"projects/([^/]+)(?:/locations/([^/]+)(?:/.*)?)?", re.DOTALL)
PARENT = re.compile(r"projects/[^/]+/locations/[^/]+")
IDENTIFIER = re.compile(r"[A-Za-z0-9_.~+%-]+")
"""The rule for node ids in the comments of google/cloud/tpu/v2/cloud_tpu.proto."""


def place(name: str) -> tuple[str, str]:
    """Return the project and the zone ('' when there is none) in a name; raises INVALID_ARGUMENT."""
    match = PLACE.fullmatch(name)
    if not match:
        raise problem("bad_name", name=name)
    return match[1], match[2] or ""


def parent(name: str) -> str:
    """Return the place of a full name: `projects/P/locations/Z`."""
    project, zone = place(name)
    return f"projects/{project}/locations/{zone}"


def last(name: str) -> str:
    """Return the last part of a name, its id."""
    return name.rpartition("/")[2]


def require(name: str, collection: str) -> None:
    """Raise INVALID_ARGUMENT unless `name` is a full name in that collection."""
    if not re.fullmatch(rf"projects/[^/]+/locations/[^/]+/{collection}/[^/]+", name):
        raise problem("bad_name", name=name)


def prefix(parent: str) -> str:
    """Return how the names of all in `parent` start; the zone `-` is every zone. Raises INVALID_ARGUMENT."""
    parent = parent.removesuffix("/operations")
    if not PARENT.fullmatch(parent):
        raise problem("bad_name", name=parent)
    return parent.removesuffix("/-") + "/"


def new_operation(parent: str, seconds: float) -> str:
    """Return a fresh name such as Google's: `operation-<ms>-<13 hex>-<8 hex>-<8 hex>`."""
    parts = (secrets.token_hex(7)[:13], secrets.token_hex(4), secrets.token_hex(4))
    return f"{parent}/operations/operation-{int(seconds * 1000)}-{'-'.join(parts)}"


def address(number: int) -> str:
    """Return the loopback address of the host with this number: 1 is 127.77.0.1.

    Addresses run through 127.64.0.0/10, skip .0 and .255, and come round again after 4 million hosts.
    """
    network, last = divmod(number - 1, 254)
    network = (network + (77 - 64) * 256) % (64 * 256)
    return f"127.{64 + network // 256}.{network % 256}.{last + 1}"
