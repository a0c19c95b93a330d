"""Log shipping: numbered chunks, the same bytes again after a failure, nothing changed on the way."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cloud.faulty_wire import FaultyWire
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing
from tpuctl.host.worker import reporting
from tpuctl.host.worker.reporting import CHUNK, LogShipper

FOLDER = "runs/r1/attempts/1/"
TIME = re.compile(r"[0-9]{8}T[0-9]{6}-0003-")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def shipper(worker_bucket: gcs.Bucket, log: Path) -> LogShipper:
    return LogShipper(worker_bucket, FOLDER, 3, str(log))


def shipped(bucket: Bucket) -> dict[str, bytes]:
    """The chunks by their names without the time and the worker."""
    names = [chunk.name for chunk in bucket.objects(FOLDER)]
    assert all(TIME.match(name.removeprefix(f"{FOLDER}log/")) for name in names)
    return {TIME.sub("", name.removeprefix(FOLDER)): bucket.read(name) for name in names}


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as stream:
        stream.write(data)


def test_new_output_becomes_the_next_chunk(shipper: LogShipper, log: Path, bucket: Bucket) -> None:
    append(log, b"one\n")
    shipper.ship()
    shipper.ship()
    append(log, b"two\n")
    shipper.ship()
    assert shipped(bucket) == {"log/000001.log": b"one\n", "log/000002.log": b"two\n"}
    assert shipper.chunks == 2


def test_without_new_output_there_is_no_chunk(shipper: LogShipper, bucket: Bucket, wire: FaultyWire) -> None:
    shipper.ship()
    assert shipped(bucket) == {}
    assert wire.requests == []


def test_bytes_arrive_as_they_are(shipper: LogShipper, log: Path, bucket: Bucket) -> None:
    append(log, b"\xff\xfe\x00 no utf-8 \r\n\n no line end")
    shipper.ship()
    assert shipped(bucket) == {"log/000001.log": b"\xff\xfe\x00 no utf-8 \r\n\n no line end"}


def test_a_chunk_holds_four_mebibytes_at_most(shipper: LogShipper, log: Path, bucket: Bucket) -> None:
    data = bytes(range(256)) * (9 * 4096)
    append(log, data)
    shipper.ship()
    chunks = list(shipped(bucket).values())
    assert CHUNK == 4 << 20
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, len(data) - 2 * CHUNK]
    assert b"".join(chunks) == data


def test_a_chunk_that_failed_is_retried_with_the_same_bytes(
    shipper: LogShipper, log: Path, bucket: Bucket, wire: FaultyWire
) -> None:
    """It may have arrived, and a reader may have read it: it must not grow."""
    append(log, b"one\n")
    wire.plan = ["lose", *[503] * (len(timing.REQUEST_PAUSES) - 1)]
    with pytest.raises(gcs.GcsError):
        shipper.ship()
    assert shipper.chunks == 0
    assert shipped(bucket) == {"log/000001.log": b"one\n"}, "it had arrived"
    append(log, b"two\n")
    shipper.ship()
    assert shipped(bucket) == {"log/000001.log": b"one\n", "log/000002.log": b"two\n"}


def test_a_failure_in_the_middle_loses_and_repeats_nothing(
    shipper: LogShipper, log: Path, bucket: Bucket, wire: FaultyWire
) -> None:
    data = b"x" * CHUNK + b"y" * CHUNK + b"z"
    append(log, data)
    wire.plan = ["", *[503] * len(timing.REQUEST_PAUSES)]
    with pytest.raises(gcs.GcsError):
        shipper.ship()
    assert shipper.chunks == 1
    shipper.ship()
    assert b"".join(shipped(bucket).values()) == data
    assert shipper.chunks == 3


def test_a_script_that_has_printed_nothing_is_looked_at_again_at_once(shipper: LogShipper) -> None:
    """Its first line does not wait for a pause, which is of chunks: they cost money."""
    shipper.ship()
    assert shipper.due()


def test_an_old_job_is_shipped_less_often(
    shipper: LogShipper, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(shipper, "_began", 0.0)
    monkeypatch.setattr(reporting, "time", Clock(now))
    for age, pause in ((0, 1), (59, 1), (61, 5), (599, 5), (601, 15), (1e6, 15)):
        now[0] = age
        append(log, b"line\n")
        shipper.ship()
        assert not shipper.due()
        now[0] = age + pause
        assert shipper.due()


class Clock:
    """A clock that the test moves, in the place of the module `time`."""

    strftime, gmtime = staticmethod(time.strftime), staticmethod(time.gmtime)

    def __init__(self, now: list[float]) -> None:
        self._now = now

    def monotonic(self) -> float:
        return self._now[0]


@pytest.mark.parametrize("answer", [403, "lose"])
def test_a_chunk_that_has_arrived_is_not_written_again(
    shipper: LogShipper, log: Path, bucket: Bucket, wire: FaultyWire, answer: int | str
) -> None:
    """The service account may create chunks, and overwrite none: terraform/'s roles."""
    append(log, b"one\n")
    wire.plan = ["lose", *[503] * (len(timing.REQUEST_PAUSES) - 1), answer]
    with pytest.raises(gcs.GcsError):
        shipper.ship()
    shipper.ship()
    assert shipper.chunks == 1
    assert shipped(bucket) == {"log/000001.log": b"one\n"}


def test_a_chunk_of_another_program_is_left_to_it(
    shipper: LogShipper,
    worker_bucket: gcs.Bucket,
    log: Path,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(worker_bucket, "now", lambda: 0.0)
    bucket.create(f"{FOLDER}log/19700101T000000-0003-000001.log", b"squatter", "text/plain")
    bucket.create(f"{FOLDER}log/19700101T000000-0003-000002.log", b"one!", "text/plain")
    append(log, b"one\n")
    shipper.ship()
    assert capsys.readouterr().err.splitlines() == [
        f"[tpuctl] another program has written gs://sim-project-tpuctl/{FOLDER}log/19700101T000000-0003-"
        f"00000{number}.log: it is skipped"
        for number in (1, 2)
    ]
    append(log, b"two\n")
    shipper.ship()
    assert shipper.chunks == 4
    assert shipped(bucket) == {
        "log/000001.log": b"squatter",
        "log/000002.log": b"one!",
        "log/000003.log": b"one\n",
        "log/000004.log": b"two\n",
    }


def test_an_account_that_may_create_nothing_is_told_so(
    shipper: LogShipper, log: Path, wire: FaultyWire
) -> None:
    append(log, b"one\n")
    wire.plan = [403]
    with pytest.raises(gcs.RefusedError):
        shipper.ship()


def test_a_chunk_is_named_by_the_buckets_time_whatever_the_host_thinks(
    shipper: LogShipper, log: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs, "time", SimpleNamespace(time=lambda: time.time() + 3600))
    for line in (b"one\n", b"two\n"):  # before its first answer a host knows no other time than its own
        append(log, line)
        shipper.ship()
    first, second = sorted(item.name for item in bucket.objects(FOLDER))
    stamps = [bucket.objects(name)[0].updated for name in (first, second)]
    assert first.endswith("-000002.log"), "the second has the true time"
    named = time.strptime(first.removeprefix(f"{FOLDER}log/")[:15], "%Y%m%dT%H%M%S")
    written = time.strptime(stamps[0], "%Y-%m-%dT%H:%M:%SZ")
    assert abs(time.mktime(named) - time.mktime(written)) < 60
