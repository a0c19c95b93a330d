"""Writes the host keys that a node has published into a file for OpenSSH, apart from the user's own."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from tpuctl.atomic_files import PRIVATE, swap_file
from tpuctl.errors import ConfigError, HostError
from tpuctl.flows.remote.ssh_entries import HOST_SUFFIX, SIM_SUFFIX, host_names
from tpuctl.flows.remote.targets import Hosts
from tpuctl.local.private_folder import make_private_folder
from tpuctl.nodes import Node, NodeId

BLOB_START = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
BLOB_SIZE = len(BLOB_START) + 32
"""Bytes of an ed25519 public key (RFC 8709, section 4)."""


def key_alias(node: Node, worker: int) -> str:
    """Return the name under which a worker's key is known: another one for each node that is made."""
    return f"tpuctl.{_plain(node.id.uid or node.name)}.{worker}"


def _entry_names(node: NodeId, worker: int) -> list[str]:
    """Return a worker's names in entries of `ssh-config`: the same for its successor."""
    name, zone = _plain(node.name), _plain(node.zone)
    names = [*host_names(name, worker, ""), *host_names(name, worker, zone)]
    return [f"{name}{suffix}{HOST_SUFFIX}" for suffix in ("", SIM_SUFFIX) for name in names]


def known_hosts_file(folder: Path, node: NodeId, zone: str = "") -> Path:
    """Return the path of a node's file; its successor has the same, in any zone or in this one."""
    return folder / ".".join(map(_plain, (node.project, *filter(None, [zone]), node.name)))


def write_known_hosts(folder: Path, hosts: Hosts, zone: str = "") -> Path:
    """Write the published keys of a node and return the file's path; only a node's own keys are in it.

    Without `zone` it is the file of who asks for a node of this name in any zone. Raises HostError for a
    worker of `hosts` without a valid key, and ConfigError when it cannot be written.
    """
    node = hosts.node
    for worker in hosts.workers:
        if not _is_key(hosts.host_key(worker)):
            raise HostError(
                f"worker {worker} of '{node.name}': its published host key is not valid.",
                hint=f"Somebody has changed its guest attributes. Delete the node: {node.deletion}",
                host_key="invalid",
            )
    valid = {worker: key for worker, key in sorted(hosts.host_keys.items()) if _is_key(key)}
    lines = [f"{_names(node, worker)} ssh-ed25519 {key}\n" for worker, key in valid.items()]
    path = known_hosts_file(folder, node.id, zone)
    try:
        _replace_known(path, "".join(lines).encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", hint="Is the disk full?") from error
    return path


def _names(node: Node, worker: int) -> str:
    return ",".join([key_alias(node, worker), *_entry_names(node.id, worker)])


def _replace_known(path: Path, content: bytes) -> None:
    """Replace a file as a whole, also while another process does, unless it has the content."""
    make_private_folder(path.parent)
    if path.is_file() and path.read_bytes() == content:
        return
    swap_file(path, content, mode=PRIVATE)


def _is_key(published: str) -> bool:
    """Whether a text is a key and nothing more: a line of it would be trusted."""
    try:
        blob = base64.b64decode(published, validate=True)
    except (binascii.Error, ValueError):
        return False
    return published.isascii() and blob.startswith(BLOB_START) and len(blob) == BLOB_SIZE


def _plain(text: str) -> str:
    """Return a text without what would be a pattern in a known_hosts file or a path."""
    return re.sub(r"[^A-Za-z0-9-]", "-", text)
