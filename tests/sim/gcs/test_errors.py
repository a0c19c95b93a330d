"""The error documents of both APIs, by status, against Cloud Storage's pages of status and error codes.

What a client is told of an exception that no operation handles, and what the log is.
"""

from __future__ import annotations

import errno
import json
import logging
import sqlite3
from xml.etree import ElementTree

import pytest

from tpuctl.sim.gcs import errors
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.request_faults import as_gcs_error

DOCUMENTED = (
    (304, "notModified", "InternalError"), (400, "invalid", "InvalidArgument"),
    (401, "required", "AuthenticationRequired"), (403, "forbidden", "AccessDenied"),
    (404, "notFound", "NoSuchKey"), (405, "methodNotAllowed", "MethodNotAllowed"),
    (408, "uploadBrokenConnection", "RequestTimeout"), (409, "conflict", "OperationAborted"),
    (410, "gone", "InternalError"), (411, "required", "MissingContentLength"),
    (412, "conditionNotMet", "PreconditionFailed"), (413, "uploadTooLarge", "EntityTooLarge"),
    (416, "requestedRangeNotSatisfiable", "InvalidRange"), (429, "rateLimitExceeded", "SlowDown"),
    (499, "clientClosedRequest", "InternalError"), (500, "backendError", "InternalError"),
    (501, "notImplemented", "NotImplemented"), (502, "backendError", "InternalError"),
    (503, "backendError", "ServiceUnavailable"), (504, "backendError", "InternalError"),
    (507, "insufficientStorage", "InsufficientStorage"),
)  # fmt: skip
"""Status, reason, XML code; 507 is the simulator's own, a status without an XML code has that of 500.

cloud.google.com/storage/docs/json_api/v1/status-codes, cloud.google.com/storage/docs/xml-api/reference-status
"""


@pytest.mark.parametrize(("status", "reason", "code"), DOCUMENTED, ids=[str(row[0]) for row in DOCUMENTED])
def test_an_error_has_the_reason_and_the_code_of_its_status(status: int, reason: str, code: str) -> None:
    error = GcsError(status, "a < b & c")
    document = json.loads(error.to_json())["error"]
    assert (document["code"], document["message"]) == (status, "a < b & c")
    (first,) = document["errors"]
    assert (first["reason"], first["domain"], first["message"]) == (reason, "global", "a < b & c")
    root = ElementTree.fromstring(error.to_xml())
    assert (root.tag, root.findtext("Code"), root.findtext("Message")) == ("Error", code, "a < b & c")


def test_only_what_a_header_says_names_the_header() -> None:
    headers = {}
    for status, *_ in DOCUMENTED:
        (first,) = json.loads(GcsError(status, "so").to_json())["error"]["errors"]
        if "location" in first:
            assert first["locationType"] == "header"
            headers[status] = first["location"]
    assert headers == {401: "Authorization", 412: "If-Match"}


@pytest.mark.parametrize(
    ("error", "status", "reason", "code"),
    [
        (errors.invalid_field("a"), 400, "invalid", "InvalidArgument"),
        (errors.required("b"), 400, "required", "InvalidArgument"),
        (errors.no_such_path(), 404, "notFound", "NoSuchKey"),
        (errors.method_not_allowed("PUT"), 405, "methodNotAllowed", "MethodNotAllowed"),
        (errors.no_such_bucket(), 404, "notFound", "NoSuchBucket"),
        (errors.no_such_object("b", "n"), 404, "notFound", "NoSuchKey"),
        (errors.condition_not_met(), 412, "conditionNotMet", "PreconditionFailed"),
        (errors.not_modified(), 304, "notModified", "InternalError"),
        (errors.disk_full(), 507, "insufficientStorage", "InsufficientStorage"),
    ],
    ids=lambda value: value.message if isinstance(value, GcsError) else None,
)
def test_each_named_error_has_its_status_reason_and_code(
    error: GcsError, status: int, reason: str, code: str
) -> None:
    assert (error.status, error.reason, error.xml_code) == (status, reason, code)


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
