"""Composing one object from several: which sources a request may name, and what the object then has.

The token of a rewrite in several calls, and how much one call may rewrite.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.json_api.objects import RewriteToken, bytes_per_call
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.store import Store, compose
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.json_values import JsonObject, JsonValue

BUCKET = "acme-data"
NONE = Preconditions()


class Site:
    """A store with a bucket."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.create_bucket(BUCKET, "p", versioning={"enabled": True})

    def put(self, name: str, data: bytes) -> StoredObject:
        with self.store.blobs.create() as writer:
            writer.write([data])
            return self.store.objects.create(BUCKET, name, writer.finish(), {}, NONE, content_type=None)

    def compose(
        self, *sources: JsonValue, name: str = "all", conditions: Preconditions = NONE, **fields: JsonValue
    ) -> StoredObject:
        request: JsonObject = {"sourceObjects": list(sources), **fields}
        return asyncio.run(compose(self.store, BUCKET, name, request, conditions))

    def refusal(self, request: JsonObject) -> tuple[int, str, str]:
        """Return status, reason and text of the error of a request."""
        with pytest.raises(GcsError) as raised:
            asyncio.run(compose(self.store, BUCKET, "all", request, NONE))
        return raised.value.status, raised.value.reason, raised.value.message

    def read(self, stored: StoredObject) -> bytes:
        with self.store.blobs.open(stored.blob) as file:
            return file.read()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "gcs")
    yield made
    made.store.close()


def test_the_bytes_of_the_sources_follow_each_other(site: Site) -> None:
    for name, data in (("a", b"first, "), ("b", b""), ("c", b"second")):
        site.put(name, data)
    composed = site.compose({"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "a"})
    data = b"first, secondfirst, "
    assert site.read(composed) == data
    checksum = base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
    assert (composed.size, composed.crc32c, composed.md5) == (len(data), checksum, None)
    live = site.store.objects.get(BUCKET, "all", None)
    assert (live.generation, live.live) == (composed.generation, True)


def test_an_object_counts_the_parts_that_it_was_composed_from(site: Site) -> None:
    site.put("a", b"a")
    pair = site.compose({"name": "a"}, {"name": "a"}, name="pair")
    assert pair.components == 2
    assert site.compose({"name": "pair"}, {"name": "a"}, {"name": "pair"}).components == 5
    assert site.compose({"name": "a"}, name="one").components == 1


def test_an_object_has_the_fields_of_its_destination(site: Site) -> None:
    site.put("a", b"a")
    composed = site.compose({"name": "a"}, destination={"metadata": {"k": "v"}, "contentType": "text/plain"})
    assert (composed.custom_metadata, composed.text("contentType")) == ({"k": "v"}, "text/plain")
    assert site.compose({"name": "a"}, destination=None).custom_metadata == {}
    assert site.compose({"name": "a"}, destination={}).custom_metadata == {}


def test_a_source_is_of_the_generation_that_is_named(site: Site) -> None:
    old = site.put("a", b"old")
    new = site.put("a", b"new")
    named: list[JsonObject] = [{"name": "a", "generation": stored.generation} for stored in (old, new)]
    assert site.read(site.compose(*named, {"name": "a", "generation": str(old.generation)})) == b"oldnewold"
    assert site.read(site.compose({"name": "a", "generation": None})) == b"new"


def test_a_source_can_have_a_condition(site: Site) -> None:
    stored = site.put("a", b"a")

    def source(generation: int) -> JsonObject:
        return {"name": "a", "objectPreconditions": {"ifGenerationMatch": generation}}

    assert site.read(site.compose(source(stored.generation))) == b"a"
    assert site.read(site.compose({"name": "a", "objectPreconditions": None})) == b"a"
    with pytest.raises(GcsError) as raised:
        site.compose(source(stored.generation + 1))
    assert raised.value.status == 412


def test_the_object_can_have_a_condition_before_its_sources_are_read(site: Site) -> None:
    with pytest.raises(GcsError) as raised:
        site.compose({"name": "none"}, conditions=Preconditions(generation_match=7))
    assert raised.value.status == 412
    site.put("a", b"a")
    site.compose({"name": "a"}, conditions=Preconditions(generation_match=0))
    with pytest.raises(GcsError) as raised:
        site.compose({"name": "a"}, conditions=Preconditions(generation_match=0))
    assert raised.value.status == 412


def test_thirty_two_sources_are_the_most(site: Site) -> None:
    site.put("a", b"a")
    assert site.compose(*[{"name": "a"}] * 32).size == 32
    assert site.refusal({"sourceObjects": [{"name": "a"}] * 33}) == (
        400,
        "invalid",
        "The number of source components provided (33) exceeds the maximum (32)",
    )


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({}, (400, "required", "You must provide at least one source component.")),
        ({"sourceObjects": []}, (400, "required", "You must provide at least one source component.")),
        ({"sourceObjects": "a"}, (400, "required", "You must provide at least one source component.")),
        ({"sourceObjects": ["a"]}, (400, "invalid", "Invalid value for field: sourceObjects")),
        ({"sourceObjects": [{"name": "a"}, 5]}, (400, "invalid", "Invalid value for field: sourceObjects")),
        ({"sourceObjects": [{"name": "b"}]}, (404, "notFound", "No such object: acme-data/b")),
        (
            {"sourceObjects": [{"name": "a", "generation": 5}]},
            (404, "notFound", "No such object: acme-data/a"),
        ),
        (
            {"sourceObjects": [{"name": "a"}], "destination": "b"},
            (400, "invalid", "Invalid value for field: destination"),
        ),
        (
            {"sourceObjects": [{"name": "a", "objectPreconditions": "b"}]},
            (400, "invalid", "Invalid value for field: objectPreconditions"),
        ),
    ],
)
def test_a_request_that_names_no_sources_is_refused(
    site: Site, request_: JsonObject, error: tuple[int, str, str]
) -> None:
    site.put("a", b"a")
    assert site.refusal(request_) == error
    assert len(list(site.store.database.rows(str, "select name from objects", ()))) == 1


def test_a_request_that_fails_leaves_no_bytes(site: Site) -> None:
    stored = site.put("a", b"a")
    with pytest.raises(GcsError):
        site.compose({"name": "a"}, destination={"contentType": 5})
    folder = site.store.blobs._folder
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [stored.blob]


MIB = 1 << 20
TOKEN = RewriteToken("b", "dir/ü", 5, "to", "there", MIB)


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def test_a_token_is_read_as_it_was_written() -> None:
    assert RewriteToken.parse(TOKEN.to_text()) == TOKEN
    assert RewriteToken("b", "a", 5, "to", "there").bytes_rewritten == 0


@pytest.mark.parametrize(
    "text",
    ["x", "=", "ü", encoded({}), encoded([]), encoded(5), encoded(["b", "a", 5, "to", "there"]),
     encoded(["b", "a", "x", "to", "there", 0]), encoded(["b", "a", 5, "to", "there", None])],
)  # fmt: skip
def test_another_text_is_no_token(text: str) -> None:
    with pytest.raises(GcsError) as raised:
        RewriteToken.parse(text)
    assert (raised.value.status, raised.value.message) == (400, "Invalid rewrite token.")


@pytest.mark.parametrize(("text", "limit"), [(None, None), (str(MIB), MIB), (str(3 * MIB), 3 * MIB)])
def test_a_call_rewrites_everything_or_whole_mebibytes(text: str | None, limit: int | None) -> None:
    assert bytes_per_call({"maxBytesRewrittenPerCall": text} if text else {}) == limit


@pytest.mark.parametrize("text", ["0", "1", str(MIB - 1), str(MIB + 1), str(MIB // 2)])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(GcsError) as raised:
        bytes_per_call({"maxBytesRewrittenPerCall": text})
    assert (raised.value.status, raised.value.message) == (
        400,
        "maxBytesRewrittenPerCall must be an integral multiple of 1 MiB (1048576).",
    )


def test_a_size_that_is_no_number_is_refused_by_its_name() -> None:
    with pytest.raises(GcsError, match="Invalid value for parameter maxBytesRewrittenPerCall: x"):
        bytes_per_call({"maxBytesRewrittenPerCall": "x"})
