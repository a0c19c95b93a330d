"""Partial responses: the fields that a `fields` parameter selects."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
import requests
from google.cloud import storage
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.gcs.running_server import BUCKET, RunningGcs
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.json_api.resources import select

RESOURCE = {
    "kind": "k",
    "next": "n",
    "items": [{"name": "a", "acl": [{"role": "R", "entity": "e"}]}, {"name": "b"}],
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("kind", {"kind": "k"}),
        ("kind,next", {"kind": "k", "next": "n"}),
        ("items/name", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("items(name)", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("items(name,acl/role),next", {
            "next": "n", "items": [{"name": "a", "acl": [{"role": "R"}]}, {"name": "b"}],
        }),
        ("items(acl(entity))", {"items": [{"acl": [{"entity": "e"}]}, {}]}),
        ("items/*", RESOURCE | {}),
        ("*", RESOURCE),
        ("items/name,items", {"items": RESOURCE["items"]}),
        ("nothing", {}),
        ("kind/below", {"kind": "k"}),
    ],
)  # fmt: skip
def test_a_selection_returns_just_its_fields(fields: str, expected: dict[str, object]) -> None:
    expected = {"items": RESOURCE["items"]} if fields == "items/*" else expected
    assert select(RESOURCE, fields) == expected


METADATA = {"metadata": {"a": {"b": {"c": 1, "d": 2}}, "e": 3, "f": 4}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("metadata/e,metadata/f", {"e": 3, "f": 4}),  # gcloud storage rsync lists so
        ("metadata(e),metadata(f)", {"e": 3, "f": 4}),
        ("metadata/a/b/c,metadata/a/b/d", {"a": {"b": {"c": 1, "d": 2}}}),
        ("metadata/a(b/c),metadata(a/b(d),e)", {"a": {"b": {"c": 1, "d": 2}}, "e": 3}),
        ("metadata/a/b/c,metadata/a", {"a": {"b": {"c": 1, "d": 2}}}),
        ("metadata/a,metadata/a/b/c", {"a": {"b": {"c": 1, "d": 2}}}),
        ("metadata/*/b/c,metadata/a/b/d", {"a": {"b": {"c": 1, "d": 2}}, "e": 3, "f": 4}),
        ("*,metadata/e", METADATA["metadata"]),
        ("metadata( e , f )", {"e": 3, "f": 4}),
    ],
)
def test_paths_through_one_field_add_up(fields: str, expected: dict[str, object]) -> None:
    assert select(METADATA, fields) == {"metadata": expected}


Path: TypeAlias = "tuple[str, ...]"
NAMES = st.sampled_from("abc")
RESOURCES = st.dictionaries(
    NAMES,
    st.recursive(
        st.integers(0, 9),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner),
        max_leaves=9,
    ),
)


def spelled(names: list[str], below: tuple[str, list[Path]] | None) -> tuple[str, list[Path]]:
    """`a/b` or `a/b(LIST)`, with the paths that it selects."""
    before, path = "/".join(names), tuple(names)
    if below is None:
        return before, [path]
    return f"{before}({below[0]})", [path + rest for rest in below[1]]


def joined(parts: list[tuple[str, list[Path]]]) -> tuple[str, list[Path]]:
    return ",".join(text for text, _ in parts), [path for _, paths in parts for path in paths]


PATHS = st.lists(st.sampled_from("abc*"), min_size=1, max_size=3)
SELECTIONS = st.recursive(
    st.lists(st.builds(spelled, PATHS, st.none()), min_size=1, max_size=3).map(joined),
    lambda inner: st.lists(st.builds(spelled, PATHS, st.none() | inner), min_size=1, max_size=3).map(joined),
    max_leaves=4,
)


def selected_by(paths: list[Path], value: Any) -> Any:
    """The plain reference: what any of the paths leads to, whatever is beside it."""
    if () in paths or not isinstance(value, list | dict):
        return value
    if isinstance(value, list):
        return [selected_by(paths, item) for item in value]
    rests = {name: [path[1:] for path in paths if path[0] in (name, "*")] for name in value}
    return {name: selected_by(rest, value[name]) for name, rest in rests.items() if rest}


@given(resource=RESOURCES, selection=SELECTIONS)
def test_a_selection_is_the_union_of_its_paths(
    resource: dict[str, Any], selection: tuple[str, list[Path]]
) -> None:
    fields, paths = selection
    assert select(resource, fields) == selected_by(paths, resource)


@pytest.mark.parametrize(
    "fields", ["", ",", "a,", "a(", "a(b", "a)", "a/", "a(b))", "()", "(" * 5000, "a/" * 5000]
)
def test_an_invalid_selection_is_refused(fields: str) -> None:
    with pytest.raises(GcsError, match="Invalid field selection"):
        select(RESOURCE, fields)


def test_a_selection_has_twenty_levels_below_the_first() -> None:
    assert select(RESOURCE, "/".join("a" * 21)) == select(RESOURCE, "a(" * 20 + "a" + ")" * 20) == {}
    for fields in ("/".join("a" * 22), "a(" * 21 + "a" + ")" * 21):
        with pytest.raises(GcsError, match="Invalid field selection"):
            select(RESOURCE, fields)


def test_fields_apply_to_every_response(gcs: RunningGcs, http: requests.Session) -> None:
    base = f"{gcs.url}/storage/v1/b/{BUCKET}/o"
    upload = f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o"
    response = http.post(
        upload, params={"name": "a", "uploadType": "media", "fields": "name,size"}, data=b"1"
    )
    assert response.json() == {"name": "a", "size": "1"}
    assert http.get(f"{base}/a", params={"fields": "name"}).json() == {"name": "a"}
    for name in ("b", "c/d"):
        http.post(upload, params={"name": name}, data=b"")
    listed = http.get(base, params={"fields": "items(name),nextPageToken", "maxResults": 1}).json()
    assert (listed["items"], set(listed)) == ([{"name": "a"}], {"items", "nextPageToken"})
    refused = http.get(base, params={"fields": "items("})
    assert (refused.status_code, refused.json()["error"]["errors"][0]["reason"]) == (400, "invalidParameter")


def test_the_client_lists_with_fields(client: storage.Client, bucket: storage.Bucket) -> None:
    for number in range(3):
        bucket.blob(f"a/{number}").upload_from_string(b"x")
    listing = bucket.list_blobs(fields="items(name,size),nextPageToken,prefixes", page_size=2)
    assert [(blob.name, blob.size, blob.generation) for blob in listing] == [
        (f"a/{number}", 1, None) for number in range(3)
    ]
