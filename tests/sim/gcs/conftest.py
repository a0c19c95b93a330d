"""Fixtures: a Cloud Storage server and the clients that talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs, client_of


@pytest.fixture(autouse=True)
def no_background_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep google-cloud-storage from looking buckets up in threads that outlive the client."""
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")


@pytest.fixture
def gcs(tmp_path: Path) -> Iterator[RunningGcs]:
    with closing(RunningGcs(tmp_path / "gcs")) as running:
        yield running


@pytest.fixture
def client(gcs: RunningGcs) -> Iterator[storage.Client]:
    with client_of(gcs.url) as client:
        yield client


@pytest.fixture
def bucket(client: storage.Client) -> storage.Bucket:
    return client.bucket(BUCKET)


@pytest.fixture
def http() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session
