"""The real clients, connected to a simulator in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.provider import Provider
from tpuctl.cloud.ssh import SshSession
from tpuctl.nodes import Node


@pytest.fixture
def provider(cloud: Cloud) -> Provider:
    return cloud.provider


@pytest.fixture
def ready(node: str, provider: Provider) -> Node:
    """A READY v3-8 that has our key."""
    return provider.get_node(provider.node_id("europe-west4-a", node))


@pytest.fixture
def session(cloud: Cloud, ready: Node) -> Iterator[SshSession]:
    """An open connection to its worker."""
    with cloud.ssh.connect(ready, 0, cloud.provider.host_keys(ready.id)[0]) as opened:
        yield opened
