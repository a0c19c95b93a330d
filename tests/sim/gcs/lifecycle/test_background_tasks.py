"""When the tasks of Cloud Storage run by themselves, and what they delete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from tpuctl.sim.gcs import background_tasks
from tpuctl.sim.gcs.checksums import ExpectedChecksums
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage import upload_sessions
from tpuctl.sim.gcs.storage.store import Store

WEEK = 7 * 86400
START = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path)) as store:
        store.create_bucket("acme-data", "acme")
        yield store


@pytest.mark.parametrize(("seconds", "is_there"), [(WEEK, True), (WEEK + 1, False)])
def test_an_upload_can_be_resumed_for_a_week(
    store: Store, monkeypatch: pytest.MonkeyPatch, seconds: int, is_there: bool
) -> None:
    now = [START]
    monkeypatch.setattr(upload_sessions, "time", SimpleNamespace(time=lambda: now[0]))
    session = store.upload_sessions.start("acme-data", "a", {}, ExpectedChecksums(), Preconditions())
    now[0] += seconds
    asyncio.run(background_tasks.run_once(store, datetime.now(UTC)))
    if is_there:
        assert store.upload_sessions.get(session.id) == session
        return
    with pytest.raises(GcsError) as raised:
        store.upload_sessions.get(session.id)
    assert (raised.value.status, raised.value.xml_code) == (404, "NoSuchUpload")


def test_the_tasks_run_every_minute_also_after_one_has_failed(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[str] = []

    async def sleep(seconds: float) -> None:
        steps.append(f"sleep {seconds}")
        if len(steps) > 4:
            raise asyncio.CancelledError

    def delete_expired() -> None:  # stands in for a disk that fails once
        steps.append("run")
        if steps.count("run") == 1:
            raise OSError("the disk is gone")

    monkeypatch.setattr(background_tasks, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(store, "delete_expired", delete_expired)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(background_tasks.run_forever(store))
    assert steps == ["sleep 60.0", "run", "sleep 60.0", "run", "sleep 60.0"]
    (record,) = caplog.records
    assert (record.levelno, record.message) == (
        logging.ERROR,
        "a background task failed; it is retried in a minute",
    )
    assert record.exc_info is not None
