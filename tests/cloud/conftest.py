"""The real clients, connected to a simulator in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.cloud.ssh import Session
from tpuctl.cloud.storage import Bucket
from tpuctl.cloud.tpu import TpuApi
from tpuctl.config import load
from tpuctl.nodes import Node


@pytest.fixture
def cloud(simulator: Any) -> Iterator[Cloud]:
    """All clients, built when they are asked for."""
    found = connect(load({}))
    yield found
    found.close()


@pytest.fixture
def tpu(cloud: Cloud) -> TpuApi:
    return cloud.tpu


@pytest.fixture
def bucket(cloud: Cloud) -> Bucket:
    return cloud.bucket


@pytest.fixture
def ready(node: str, tpu: TpuApi) -> Node:
    """A READY v3-8 that has our key."""
    return tpu.node("europe-west4-a", node)


@pytest.fixture
def session(cloud: Cloud, ready: Node) -> Iterator[Session]:
    """An open connection to its worker."""
    with cloud.ssh.connect(ready, 0, cloud.tpu.host_keys(ready)[0]) as opened:
        yield opened
