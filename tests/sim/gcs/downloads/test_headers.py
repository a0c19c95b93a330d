"""The headers that describe an object's bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tpuctl.sim.gcs.downloads import object_headers
from tpuctl.sim.gcs.storage.stored_object import StoredObject

PLAIN = StoredObject(
    bucket="acme-data",
    name="a",
    generation=1234,
    live=True,
    metageneration=5,
    blob="blob",
    size=67,
    crc32c="AAAAAA==",
    md5="1B2M2Y8AsgTpgAmY7PhCfg==",
    components=None,
    created="2026-01-01T00:00:00.000Z",
    updated="2026-01-02T03:04:05.678Z",
    deleted=None,
    fields={},
)


def headers(**fields: Any) -> dict[str, str]:
    return object_headers(replace(PLAIN, fields=fields), '"tag"')


def test_an_object_without_fields_is_described_by_what_it_is() -> None:
    assert headers() == {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=0",
        "ETag": '"tag"',
        "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT",
        "X-Goog-Generation": "1234",
        "X-Goog-Hash": "crc32c=AAAAAA==,md5=1B2M2Y8AsgTpgAmY7PhCfg==",
        "X-Goog-Metageneration": "5",
        "X-Goog-Storage-Class": "STANDARD",
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Stored-Content-Length": "67",
    }


def test_a_composed_object_has_no_md5() -> None:
    assert object_headers(replace(PLAIN, md5=None), "t")["X-Goog-Hash"] == "crc32c=AAAAAA=="


@pytest.mark.parametrize(
    ("field", "header", "value"),
    [
        ("contentType", "Content-Type", "text/plain"),
        ("contentEncoding", "Content-Encoding", "gzip"),
        ("contentDisposition", "Content-Disposition", "attachment"),
        ("contentLanguage", "Content-Language", "de"),
        ("cacheControl", "Cache-Control", "no-store"),
    ],
)
def test_a_field_of_an_object_has_its_header(field: str, header: str, value: str) -> None:
    changed = {
        name: value for name, value in headers(**{field: value}).items() if headers().get(name) != value
    }
    encoding = {"X-Goog-Stored-Content-Encoding": "gzip"} if field == "contentEncoding" else {}
    assert changed == {header: value, **encoding}
    assert headers(**{field: ""}) == headers()


def test_the_storage_class_is_that_of_the_object() -> None:
    assert headers(storageClass="NEARLINE")["X-Goog-Storage-Class"] == "NEARLINE"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("color", "red", True),
        ("a-b_c1", "", True),
        ("a-b_c1", "deep vision", True),
        ("a b", "red", False),
        ("a:b", "red", False),
        ("größe", "red", False),
        ("-", "red", False),
        ("color", "red\nX-Evil: 1", False),
    ],
)
def test_metadata_of_the_callers_own_is_shown_where_it_can_be_a_header(
    name: str, value: str, shown: bool
) -> None:
    described = headers(metadata={name: value, "kept": "1"})
    assert described["X-Goog-Meta-kept"] == "1"
    assert described.get(f"X-Goog-Meta-{name}") == (value if shown else None)
    assert len(described) == len(headers()) + 1 + shown
