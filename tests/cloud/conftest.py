"""The real clients, connected to a simulator in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh import Session
from tpuctl.cloud.tpu import TpuApi
from tpuctl.nodes import Node


@pytest.fixture
def tpu(cloud: Cloud) -> TpuApi:
    return cloud.tpu


@pytest.fixture
def ready(node: str, tpu: TpuApi) -> Node:
    """A READY v3-8 that has our key."""
    return tpu.node("europe-west4-a", node)


@pytest.fixture
def session(cloud: Cloud, ready: Node) -> Iterator[Session]:
    """An open connection to its worker."""
    with cloud.ssh.connect(ready, 0, cloud.tpu.host_keys(ready)[0]) as opened:
        yield opened
