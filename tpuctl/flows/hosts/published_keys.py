"""Reads the published host keys of a node's workers: no other key is trusted."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.errors import HostError
from tpuctl.nodes import Node


def published_key(node: Node, host_keys: Mapping[int, str], worker: int) -> str:
    """Return a worker's published host key; raises HostError without one."""
    if worker not in host_keys:
        raise HostError(
            f"worker {worker} of '{node.name}': it has published no host key.",
            hint=f"It does when it boots: tpuctl wait {node.name}. If it never does, an organization policy "
            "may forbid guest attributes: --host-keys first-contact trusts the key that answers first.",
            host_key="missing",
        )
    return host_keys[worker]
