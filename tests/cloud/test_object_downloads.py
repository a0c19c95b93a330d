"""Large objects come in ranges side by side, verified on the way, and resume where an answer broke off."""

from __future__ import annotations

import errno
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tpuctl.cloud import downloads
from tpuctl.cloud.downloads import BLOCK, CONNECTIONS
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.errors import DeadlineError, TpuctlError

RANGE = 1 << 20
DATA = random.Random(1).randbytes(5 * RANGE + 12_345)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a size that tests can afford."""
    monkeypatch.setattr(downloads, "RANGE", RANGE)


@pytest.fixture
def item(bucket: Bucket) -> Object:
    return bucket.upload("large", [DATA], "application/octet-stream")


@pytest.fixture
def patient(bucket: Bucket) -> Bucket:
    """A bucket that does not pause between requests."""
    bucket._downloads._sleep = lambda seconds: None
    return bucket


def ranges(simulator: RunningSimulator) -> int:
    return len(simulator.events.find(kind="request", service="storage", what="*objects.get"))


def test_a_large_object_comes_in_ranges(
    bucket: Bucket, item: Object, simulator: RunningSimulator, tmp_path: Path
) -> None:
    arrived: list[int] = []
    bucket.download(item, tmp_path / "large", arrived.append)
    assert (tmp_path / "large").read_bytes() == DATA
    assert sum(arrived) == len(DATA)
    assert ranges(simulator) == 6


def test_an_object_without_bytes_is_an_empty_file(bucket: Bucket, tmp_path: Path) -> None:
    bucket.download(bucket.upload("empty", [b""], "text/plain"), tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "gcs-cut", "bytes": "300kB", "count": 9},
        {"kind": "gcs-reset", "count": 5},
        {"kind": "gcs-error", "status": "503", "count": 9},
        {"kind": "gcs-error", "status": "429", "count": 9},
        {"kind": "gcs-error", "status": "408", "count": 9},
    ],
    ids=lambda fault: fault.get("status", fault["kind"]),
)
def test_what_breaks_off_is_resumed(
    patient: Bucket, item: Object, simulator: RunningSimulator, tmp_path: Path, fault: dict[str, str]
) -> None:
    options = {key: value for key, value in fault.items() if key != "kind"}
    simulator.faults.add(fault["kind"], method="storage.objects.get", object="large", **options)
    arrived: list[int] = []
    patient.download(item, tmp_path / "large", arrived.append)
    assert (tmp_path / "large").read_bytes() == DATA
    assert simulator.faults.all() == []
    assert sum(arrived) == len(DATA), "no byte was kept twice"


def test_a_cut_is_resumed_inside_the_range(
    patient: Bucket, simulator: RunningSimulator, tmp_path: Path
) -> None:
    """Each answer brings 100 kB at most: a range that began anew would never be complete."""
    item = patient.upload("one", [DATA[:RANGE]], "application/octet-stream")
    simulator.faults.add("gcs-cut", method="storage.objects.get", object="one", bytes="100kB", count=10)
    patient.download(item, tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == DATA[:RANGE]
    assert ranges(simulator) == 11


def test_a_byte_that_changed_on_the_way_is_found(
    bucket: Bucket, item: Object, simulator: RunningSimulator, tmp_path: Path
) -> None:
    simulator.faults.add("gcs-corrupt", method="storage.objects.get", object="large", at="7kB", count=1)
    with pytest.raises(DeadlineError, match="large arrived damaged"):
        bucket.download(item, tmp_path / "large")
    assert not list(tmp_path.glob("large*"))


def test_a_bucket_that_never_answers_ends_the_download_with_its_words(
    patient: Bucket,
    item: Object,
    simulator: RunningSimulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(downloads, "PATIENCE", 0.0)
    simulator.faults.add("gcs-error", method="storage.objects.get", object="large")
    with pytest.raises(TpuctlError) as failed:
        patient.download(item, tmp_path / "large")
    assert "gs://sim-project-tpuctl/large" in failed.value.message
    assert not list(tmp_path.glob("large*"))


def test_a_generation_that_is_gone_ends_all_its_ranges(
    bucket: Bucket, item: Object, simulator: RunningSimulator, tmp_path: Path
) -> None:
    bucket.remove(item)
    with pytest.raises(TpuctlError, match="large does not exist"):
        bucket.download(item, tmp_path / "large")


def test_a_report_that_raises_ends_the_download(bucket: Bucket, item: Object, tmp_path: Path) -> None:
    def end(size: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bucket.download(item, tmp_path / "large", end)
    assert not list(tmp_path.glob("large*"))


def test_memory_is_that_of_a_block_for_each_connection(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulator runs in this process, too."""
    monkeypatch.setattr(downloads, "RANGE", 8 << 20)
    item = bucket.upload("huge", (bytes(1 << 20) for _ in range(96)), "application/octet-stream")
    tracemalloc.start()
    try:
        bucket.download(item, tmp_path / "huge")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < CONNECTIONS * BLOCK * 6


def test_a_full_disk_is_told_at_once(
    patient: Bucket, item: Object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No disk is full on request without root's rights: the system's call is played."""

    def fail(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="No space left"):
        patient.download(item, tmp_path / "large")
    assert not list(tmp_path.glob("large*"))


def test_a_token_that_is_refused_is_renewed_once(
    bucket: Bucket, item: Object, simulator: RunningSimulator, tmp_path: Path
) -> None:
    simulator.faults.add("gcs-error", method="storage.objects.get", object="large", status="401")
    credentials = Credentials(simulator)
    bucket._client.credentials = credentials
    bucket.download(item, tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == DATA
    assert credentials.renewed == 1


class Credentials:
    """Credentials whose first token is refused; those of Google need a server of tokens."""

    def __init__(self, simulator: RunningSimulator) -> None:
        self._simulator = simulator
        self.renewed = 0

    def before_request(self, request: object, method: str, url: str, headers: dict[str, str]) -> None:
        headers["Authorization"] = f"Bearer {self.renewed}"

    def refresh(self, request: object) -> None:
        self.renewed += 1
        self._simulator.faults.clear()
