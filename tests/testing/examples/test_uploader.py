"""Tests uploader.py, with the real client in the test's process and faults in the bucket."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from uploader import upload

from tpuctl.testing import Simulator


@pytest.fixture
def client(tpu_simulator: Simulator) -> Iterator[storage.Client]:
    endpoints = tpu_simulator.endpoints
    with storage.Client(
        project=endpoints.project,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": endpoints.storage},
    ) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        (tmp_path / f"shard-{number}").write_bytes(bytes([number]) * 600_000)
    return tmp_path


def test_a_second_run_uploads_nothing(tpu_simulator: Simulator, client: storage.Client, folder: Path) -> None:
    bucket = tpu_simulator.endpoints.bucket
    assert upload(client, bucket, folder, "data") == 3
    assert upload(client, bucket, folder, "data") == 0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gcs-error", {"status": "503", "count": 3}),
        ("gcs-cut", {"bytes": 100_000, "count": 2}),
        ("gcs-reset", {"when": "after", "count": 1}),
    ],
)
def test_files_arrive_complete_despite_faults(
    tpu_simulator: Simulator, client: storage.Client, folder: Path, kind: str, options: dict[str, object]
) -> None:
    endpoints = tpu_simulator.endpoints
    tpu_simulator.faults.add(kind, method="storage.objects.create", object="data/shard-1", **options)
    assert upload(client, endpoints.bucket, folder, "data") == 3
    assert len(tpu_simulator.events.find(kind="fault", what=kind)) == options["count"]
    for path in folder.iterdir():
        blob = client.bucket(endpoints.bucket).blob(f"data/{path.name}")
        assert blob.download_as_bytes() == path.read_bytes()
