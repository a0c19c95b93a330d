"""Values of the options of faults: what each type reads, what it refuses, and how it says so."""

from __future__ import annotations

import pytest

from tpuctl.errors import UsageError
from tpuctl.faults import Field
from tpuctl.faults.fields import InvalidValue, checked


def read(kind: str, value: object) -> object:
    """Return the value of an option of a type."""
    return Field("x", kind, "what it does", choices=("a", "5")).read(value)


def refusal(kind: str, value: object) -> str:
    """Return what an option of a type has to be, in the words of its refusal."""
    with pytest.raises(InvalidValue) as raised:
        read(kind, value)
    return str(raised.value)


@pytest.mark.parametrize("text", ["true", "yes", "1", "TRUE", "Yes"])
def test_what_is_true(text: str) -> None:
    assert read("flag", text) is True


@pytest.mark.parametrize("text", ["false", "no", "0", "False", "NO"])
def test_what_is_false(text: str) -> None:
    assert read("flag", text) is False


def test_a_flag_in_toml_or_code_is_a_boolean_or_0_and_1() -> None:
    assert [read("flag", value) for value in (True, False, 1, 0)] == [True, False, True, False]
    assert refusal("flag", 2) == "true or false, not 2"
    assert refusal("flag", "on") == "true or false, not 'on'"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0), ("30s", 30.0), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0), ("1.5h", 5400.0),
        (" 2 M ", 120.0), ("0", 0.0), (0, 0.0), (2.5, 2.5),
    ],
)  # fmt: skip
def test_times_have_units(text: object, seconds: float) -> None:
    assert read("seconds", text) == seconds


@pytest.mark.parametrize("wrong", ["", "1d", "1.", "-1", "1 s 2", "1,5", "s", None, True, -1, float("inf")])
def test_other_times_are_refused(wrong: object) -> None:
    assert refusal("seconds", wrong).startswith("a time such as 30, 500ms, 2m or 1h, not ")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7", 7), ("7b", 7), ("2k", 2000), ("64kB", 64_000), ("3m", 3_000_000), ("5MB", 5_000_000),
        ("1g", 10**9), ("2GB", 2 * 10**9), ("1KiB", 1024), ("5MiB", 5 * 1024**2), ("1GiB", 1024**3),
        ("1.5kB", 1500), (0, 0), (12, 12),
    ],
)  # fmt: skip
def test_bytes_have_units(text: object, count: int) -> None:
    size = read("bytes", text)
    assert (size, type(size)) == (count, int)


@pytest.mark.parametrize("wrong", ["1.5", "1.0001kB", "1TB", "ki", "-1", 1.5, True, None])
def test_other_sizes_are_refused(wrong: object) -> None:
    assert refusal("bytes", wrong).startswith("a number of bytes such as 100, 64kB or 5MB, not ")


@pytest.mark.parametrize(("kind", "least"), [("count", 1), ("number", 0)])
def test_whole_numbers_begin_at_their_least(kind: str, least: int) -> None:
    assert [read(kind, least), read(kind, str(least)), read(kind, "12")] == [least, least, 12]
    for wrong in (least - 1, str(least - 1), "1.5", 1.5, True, "", None):
        assert refusal(kind, wrong).startswith(f"a whole number of at least {least}, not ")


def test_a_fraction_is_between_nothing_and_all() -> None:
    assert [read("fraction", value) for value in (0, 1, "0.25", 0.5)] == [0.0, 1.0, 0.25, 0.5]
    for wrong in (1.01, -0.01, "2", "half", True, None, float("nan")):
        assert refusal("fraction", wrong).startswith("a number from 0 to 1, not ")


@pytest.mark.parametrize("kind", ["text", "pattern", "glob"])
def test_a_text_is_not_empty(kind: str) -> None:
    assert read(kind, "n*") == "n*"
    assert refusal(kind, "") == "text, not ''"
    assert refusal(kind, 5) == "text, not 5"


def test_a_choice_may_be_a_number_in_toml() -> None:
    assert [read("choice", "a"), read("choice", 5)] == ["a", "5"]
    assert refusal("choice", "b") == "one of a, 5, not 'b'"


def test_a_regular_expression_is_tried() -> None:
    assert read("regex", r"loss \d+") == r"loss \d+"
    assert refusal("regex", "(").startswith("a regular expression, not '(': ")


def test_pairs_are_a_text_or_a_table() -> None:
    assert read("pairs", "a=1,b=x=y,c=") == {"a": "1", "b": "x=y", "c": ""}
    assert read("pairs", {"a": 1, "b": True}) == {"a": "1", "b": "True"}
    assert refusal("pairs", "a=1,b") == "NAME=VALUE,..., not 'a=1,b'"
    assert refusal("pairs", 3) == "a table of texts, not 3"


@pytest.mark.parametrize(
    ("kind", "metavar"),
    [
        ("text", "TEXT"), ("pattern", "PATTERN"), ("glob", "PATTERN"), ("regex", "REGEX"), ("count", "N"),
        ("number", "N"), ("fraction", "0..1"), ("seconds", "TIME"), ("bytes", "BYTES"), ("flag", ""),
        ("pairs", "NAME=VALUE,..."),
    ],
)  # fmt: skip
def test_the_placeholder_in_help(kind: str, metavar: str) -> None:
    assert Field("x", kind, "what it does").metavar == metavar
    assert Field("x", kind, "what it does").is_pattern == (kind == "pattern")


def test_the_placeholder_of_a_choice_is_its_values() -> None:
    assert Field("x", "choice", "what it does", choices=("a", "b")).metavar == "a|b"


def test_an_error_has_the_options_name_and_what_it_does() -> None:
    with pytest.raises(UsageError) as raised:
        checked("--count", Field("count", "count", "how often it fires"), 0)
    assert raised.value.message == "--count has to be a whole number of at least 1, not 0."
    assert raised.value.hint == "How often it fires."
