"""Keeps the host keys of first contact, for projects whose policy forbids hosts to publish theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import paramiko

from tpuctl.atomic_files import PRIVATE, create_file
from tpuctl.cloud.ssh.dialing import Dial
from tpuctl.cloud.ssh.handshake import presented_key
from tpuctl.errors import HostError
from tpuctl.local.private_folder import make_private_folder
from tpuctl.nodes import Node
from tpuctl.parallel import fanout


class FirstContact:
    """The key that each worker of a node showed when it was first reached from here; no other is trusted."""

    def __init__(self, folder: Path, dial: Dial) -> None:
        self._folder = folder
        self._dial = dial

    def keys(self, node: Node) -> Mapping[int, str]:
        """Return the key of each worker that was or can be reached, in base64."""
        make_private_folder(self._folder)
        results = fanout(lambda worker: self._key(node, worker), range(len(node.addresses)))
        return {result.item: result.value for result in results if result.value}

    def _key(self, node: Node, worker: int) -> str:
        """Return a worker's key; empty while it does not answer."""
        path = self._folder / re.sub(r"[^A-Za-z0-9.-]", "-", f"{node.id.uid or node.name}.{worker}")
        if not path.exists():
            try:
                create_file(path, presented_key(self._dial(node, worker)).encode(), mode=PRIVATE)
            except (paramiko.SSHException, EOFError, OSError, HostError):
                return ""
        return path.read_text()
