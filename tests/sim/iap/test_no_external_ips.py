"""A simulator whose nodes get no external addresses, whatever they ask for."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from tests.sim.iap.site import Site, in_loop, tunnel
from tests.sim.live_host import PARENT, POLLING, tpu_client


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A simulator with a host that asked for an external address."""
    running = Site(tmp_path_factory.mktemp("inside"), external_ips=False)
    yield running
    running.running.close()


def test_the_api_shows_none_also_after_an_update(site: Site) -> None:
    name = f"{PARENT}/nodes/one"
    with tpu_client(site.url("tpu_grpc")) as client:
        for _ in range(2):
            node = client.get_node(name=name)
            assert not node.network_config.enable_external_ips
            assert [bool(endpoint.access_config.external_ip) for endpoint in node.network_endpoints] == [
                False
            ]
            assert node.network_endpoints[0].ip_address == site.host.address
            node.network_config.enable_external_ips = True
            mask = FieldMask(paths=["network_config.enable_external_ips"])
            client.update_node(node=node, update_mask=mask).result(polling=POLLING)


def test_the_relay_alone_reaches_a_host(site: Site) -> None:
    async def work() -> bytes:
        async with tunnel(site.url("iap_relay"), "connect", site.target()) as opened:
            return await opened.until(4)

    assert in_loop(work)[:4] == b"SSH-"
    host, port = json.loads(Path(site.url("hosts_file")).read_text())[site.host.address]
    with (
        socket.create_connection((host, port), timeout=60) as connection,
        pytest.raises(ConnectionResetError),
    ):
        connection.recv(1)
