"""The parameters of a listing and of other requests, the token of its next page, and matchGlob."""

from __future__ import annotations

import base64

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import ListQuery, Position, compile_glob, is_true, parse_number


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


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("foo*bar", ["foobar", "fooxbar"], ["foo/bar", "xfoobar", "foobarx"]),
        ("foo**bar", ["foobar", "fooxbar", "foo/bar", "foo/x/bar"], ["foobarx"]),
        ("foo?bar", ["fooxbar"], ["foobar", "foo/bar", "fooxxbar"]),
        ("**/foobar", ["foobar", "foo/foobar", "a/b/foobar"], ["xfoobar", "foobar/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("*.{jpg,png}", ["a.jpg", "b.png", ".jpg"], ["a/b.jpg", "a.gif", "a.jpg,png"]),
        ("{a*,b?}", ["a", "axx", "bx"], ["b", "a/x"]),
        ("ba[rz]", ["bar", "baz"], ["ba", "bax", "ba[rz]"]),
        ("ba[a-y]", ["bar"], ["baz"]),
        ("ba[!a-y]", ["baz"], ["bar"]),
        ("ba[^a-y]", ["baz"], ["bar"]),
        ("[a\\]", ["a", "\\"], ["b", "x"]),
        ("a.b+(c)", ["a.b+(c)"], ["axb+(c)", "a.bb(c)"]),
        ("a*", ["a", "a\nb"], ["b"]),
        ("**", ["", "a", "a/b\nc"], []),
        ("a[b", ["a[b"], ["ab"]),
        ("a{b", ["a{b"], ["ab"]),
    ],
)
def test_a_glob_matches_whole_names(glob: str, matching: list[str], others: list[str]) -> None:
    pattern = compile_glob(glob)
    assert [name for name in (*matching, *others) if pattern.fullmatch(name)] == matching


def test_an_invalid_glob_is_named() -> None:
    with pytest.raises(GcsError, match=r"^Invalid value for parameter matchGlob: \[z-a\]$") as raised:
        compile_glob("[z-a]")
    assert raised.value.status == 400


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("1", 1), (7, 7), (" 5 ", 5), (str(2**63 - 1), 2**63 - 1)]
)
def test_a_number_has_63_bits(text: object, number: int) -> None:
    assert parse_number("generation", text) == number


@pytest.mark.parametrize("text", ["-1", str(2**63), "", "x", "1.5", None, [1], "9" * 5000])
def test_another_text_is_refused_with_its_name(text: object) -> None:
    with pytest.raises(GcsError) as raised:
        parse_number("generation", text)
    assert (raised.value.status, raised.value.message) == (
        400,
        f"Invalid value for parameter generation: {text}",
    )


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_a_flag_is_true_in_any_letters(text: str) -> None:
    assert is_true(text)


@pytest.mark.parametrize("text", [None, "", "1", "yes", "false", "truex"])
def test_another_flag_is_false(text: str | None) -> None:
    assert not is_true(text)
