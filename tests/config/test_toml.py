"""TOML from elsewhere is refused with one error, whatever is in it."""

from __future__ import annotations

import pytest

from tpuctl.config import files

LONG = ".a" * 16_000


def test_content_is_that_of_the_text() -> None:
    text = "a.'b.c'.d = 1\n[t]\nx = " + repr(LONG.replace(".", " .. "))
    assert files.decode(text)["a"] == {"b.c": {"d": 1}}
    assert files.decode("a = 1\n", dict[str, int]) == {"a": 1}
    assert files.decode(f"a{'.a' * (files.MOST_PARTS - 1)} = 1\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"a{LONG} = 1", "a key has more than 64 parts"),
        (f"[a{LONG.replace('.', ' . ')}]", "a key has more than 64 parts"),
        ("x = {a" + LONG.replace("a", "'a'") + " = 1}", "a key has more than 64 parts"),
        ("a = " + "[" * 30_000, "it is nested too deeply"),
        ("a = " + "9" * 5000, "limit"),
        ("a = ", "Invalid value"),
        ("a = 'x'", "Expected `int`"),
    ],
)
def test_anything_else_is_one_error(text: str, words: str) -> None:
    """A key of so many parts took gigabytes."""
    with pytest.raises(files.TomlError, match=words):
        files.decode(text, dict[str, int])
