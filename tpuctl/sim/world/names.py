"""Parses, checks and makes resource names in requests; a bad name is INVALID_ARGUMENT."""

from __future__ import annotations

import os
import re
import secrets
import zlib
from pathlib import Path

from tpuctl.sim import resource_names
from tpuctl.sim.resource_names import ResourceName
from tpuctl.sim.world.api_errors import api_error

PARENT = re.compile(r"projects/[^/]+/locations/[^/]+")
IDENTIFIER = re.compile(r"[a-z]([-_a-z0-9]{0,61}[a-z0-9])?")
"""Compute Engine's rule for names, with the underscores that the Cloud TPU API is known to take."""

ADDRESSES = "address"
"""The counter of hosts' addresses."""
NETWORKS = 64 * 256
HOSTS_OF_A_NETWORK = 254


def parse(name: str) -> ResourceName:
    """Return the parts of a name; raises INVALID_ARGUMENT."""
    try:
        return resource_names.parse(name)
    except ValueError:
        raise api_error("bad_name", name=name) from None


def id_of(name: str) -> str:
    """Return the last part of a full name; an id alone is returned as it is."""
    return name.rpartition("/")[2]


def require_identifier(identifier: str, what: str = "node") -> None:
    """Raise INVALID_ARGUMENT unless a new resource can have this id; `what` is the kind of it."""
    if not IDENTIFIER.fullmatch(identifier):
        raise api_error("bad_id", id=identifier, what=what)


def require_collection(name: str, collection: str) -> None:
    """Raise INVALID_ARGUMENT unless `name` is a full name in that collection."""
    if not re.fullmatch(rf"projects/[^/]+/locations/[^/]+/{collection}/[^/]+", name):
        raise api_error("bad_name", name=name)


def list_prefix(parent: str) -> str:
    """Return the prefix of the names that a list of `parent` shows; raises INVALID_ARGUMENT.

    The zone `-` stands for every zone.
    """
    parent = parent.removesuffix("/operations")
    if not PARENT.fullmatch(parent):
        raise api_error("bad_name", name=parent)
    return parent.removesuffix("/-") + "/"


def new_operation(parent: str, seconds: float) -> str:
    """Return a fresh name in Google's form: `operation-<ms>-<13 hex>-<8 hex>-<8 hex>`."""
    parts = (secrets.token_hex(7)[:13], secrets.token_hex(4), secrets.token_hex(4))
    return f"{parent}/operations/operation-{int(seconds * 1000)}-{'-'.join(parts)}"


def address(number: int) -> str:
    """Return the loopback address of the host with this number: 1 is 127.77.0.1.

    Addresses run through 127.64.0.0/10, skip .0 and .255, and repeat after 4 million hosts.
    """
    network, last = divmod(number - 1, HOSTS_OF_A_NETWORK)
    network = (network + (77 - 64) * 256) % NETWORKS
    return f"127.{64 + network // 256}.{network % 256}.{last + 1}"


def addresses_before(folder: Path) -> int:
    """Return the number after which the hosts of the simulator in `folder` are numbered.

    Simulators share the machine's loopback, where the programs of one would reach those of another at the
    same address. Each folder has one of 16,384 networks, so that two have the same once in as many pairs.
    """
    return zlib.crc32(os.fsencode(folder)) % NETWORKS * HOSTS_OF_A_NETWORK
