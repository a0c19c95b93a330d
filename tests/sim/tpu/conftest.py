"""The official clients of a simulated Cloud TPU API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.sim.tpu.api import Api
from tpuctl.sim.settings import profile


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "world.sqlite"


@pytest.fixture
def api(database: Path) -> Iterator[Api]:
    served = Api(database, profile("instant"))
    yield served
    served.close()


@pytest.fixture
def channel(api: Api) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(api.grpc_address, options=[("grpc.enable_http_proxy", 0)]) as opened:
        yield opened


@pytest.fixture(params=["grpc", "rest"])
def client(request: pytest.FixtureRequest, api: Api) -> Iterator[tpu_v2.TpuClient]:
    """The official client, once over each transport."""
    if request.param == "grpc":
        channel = request.getfixturevalue("channel")
        yield tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        return
    with tpu_v2.TpuClient(
        transport="rest",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": api.rest_address},
    ) as opened:
        yield opened


@pytest.fixture
def grpc_client(channel: grpc.Channel) -> tpu_v2.TpuClient:
    """The official client over gRPC, where the transport makes no difference."""
    return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
