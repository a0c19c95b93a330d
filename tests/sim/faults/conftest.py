"""The clients that meet the faults: Google's own, and a user with an SSH key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage, tpu_v2

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import User, tpu_client


@pytest.fixture
def tpu(simulator: RunningSimulator) -> Iterator[tpu_v2.TpuClient]:
    """The official client of the Cloud TPU API."""
    with tpu_client(simulator.simulator.endpoints["tpu_grpc"]) as client:
        yield client


@pytest.fixture
def bucket(simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[storage.Bucket]:
    """The simulator's bucket through the official client."""
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    endpoint = {"api_endpoint": simulator.simulator.endpoints["storage"]}
    client = storage.Client("sim-project", AnonymousCredentials(), client_options=endpoint)
    yield client.bucket("sim-project-tpuctl")
    client.close()


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody with an SSH key."""
    return User(tmp_path)
