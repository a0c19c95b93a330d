"""The parameters of a listing, and the token of its next page."""

from __future__ import annotations

import base64

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import ListQuery, Position


def test_a_listing_without_parameters_is_of_all_live_objects() -> None:
    assert ListQuery.of({}) == ListQuery() == ListQuery(
        prefix="", delimiter="", start_offset="", end_offset="", glob=None, versions=False,
        soft_deleted=False, trailing_delimiter=False, limit=1000, position=Position("", 0, ""),
    )  # fmt: skip


def test_every_parameter_is_read() -> None:
    query = ListQuery.of(
        {
            "prefix": "a/",
            "delimiter": "/",
            "startOffset": "b",
            "endOffset": "c",
            "versions": "true",
            "includeTrailingDelimiter": "TRUE",
            "maxResults": "7",
            "matchGlob": "**.txt",
            "pageToken": Position("a/b", 5, "a/").to_token(),
        }
    )
    assert query.glob is not None
    assert query.glob.fullmatch("a/b.txt")
    assert query == ListQuery("a/", "/", "b", "c", query.glob, True, False, True, 7, Position("a/b", 5, "a/"))
    assert ListQuery.of({"softDeleted": "true"}) == ListQuery(soft_deleted=True)
    assert ListQuery.of({"softDeleted": "1", "versions": "yes", "matchGlob": ""}) == ListQuery()


@pytest.mark.parametrize(
    ("text", "limit"), [("1", 1), ("999", 999), ("1000", 1000), ("1001", 1000), ("0", 1000), ("", 1000)]
)
def test_a_page_has_up_to_a_thousand(text: str, limit: int) -> None:
    assert ListQuery.of({"maxResults": text}).limit == limit


@pytest.mark.parametrize(
    "query",
    [
        {"softDeleted": "true", "versions": "true"},
        {"maxResults": "-1"},
        {"maxResults": "ten"},
        {"pageToken": "!"},
        {"pageToken": base64.urlsafe_b64encode(b"[1]").decode()},
        {"pageToken": base64.urlsafe_b64encode(b'["a", "x", ""]').decode()},
        {"pageToken": base64.urlsafe_b64encode(b"5").decode()},
        {"matchGlob": "[z-a]"},
    ],
)
def test_an_invalid_parameter_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(GcsError) as raised:
        ListQuery.of(query)
    assert raised.value.status == 400


@pytest.mark.parametrize("name", ["maxResults", "pageToken", "matchGlob"])
def test_an_invalid_parameter_is_named(name: str) -> None:
    with pytest.raises(GcsError, match=f"^Invalid value for parameter {name}"):
        ListQuery.of({name: "[z-a]"})


@pytest.mark.parametrize("position", [Position(), Position("é/ü", 1 << 60, "é/"), Position("a")])
def test_a_token_is_the_position(position: Position) -> None:
    assert Position.of_token(position.to_token()) == position
    assert set(position.to_token()) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="
    )


@pytest.mark.parametrize(
    ("prefix", "delimiter", "name", "common"),
    [
        ("", "", "a/b", ""),
        ("", "/", "a", ""),
        ("", "/", "a/b/c", "a/"),
        ("", "/", "/a", "/"),
        ("a/", "/", "a/b", ""),
        ("a/", "/", "a/b/c", "a/b/"),
        ("a", "/", "a/b/c", "a/"),
        ("", "--", "a--b", "a--"),
        ("a/", "a", "a/b", ""),
    ],
)
def test_a_common_prefix_ends_with_the_delimiter_behind_the_prefix(
    prefix: str, delimiter: str, name: str, common: str
) -> None:
    assert ListQuery(prefix=prefix, delimiter=delimiter).common_prefix(name) == common
