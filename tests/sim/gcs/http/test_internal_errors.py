"""What a client is told of an exception that no operation handles, and what the log is."""

from __future__ import annotations

import errno
import logging
import sqlite3

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.request_faults import as_gcs_error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.EFBIG, "File too large"),
        sqlite3.OperationalError("database or disk is full"),
        sqlite3.OperationalError("disk I/O error"),
    ],
)
def test_a_full_disk_is_said_and_is_no_bug(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    assert as_gcs_error(error).status == 507
    assert caplog.records == []


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        OSError(errno.EACCES, "Permission denied"),
        sqlite3.OperationalError("no such table: objects"),
        sqlite3.IntegrityError("full"),
    ],
)
def test_a_bug_is_an_internal_error_and_in_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    answer = as_gcs_error(error)
    assert (answer.status, answer.message) == (
        500,
        "We encountered an internal error. Please try again.",
    )
    (record,) = caplog.records
    assert (record.levelno, record.message) == (logging.ERROR, "an operation failed with an exception")
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_an_error_of_the_api_stays_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    error = GcsError(412, "no")
    assert as_gcs_error(error) is error
    assert caplog.records == []
