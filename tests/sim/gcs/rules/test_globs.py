"""matchGlob, by the table of Google's documentation: `*` stays in a folder, `**` does not."""

from __future__ import annotations

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import compile_glob


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
