"""Versions compare as by the library `packaging`, which hosts do not have."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version as Pep440

from tpuctl.worker.preparation.versions import Version, accepts

RELEASES = st.lists(st.integers(0, 3).map(str), min_size=1, max_size=4).map(".".join)
PHASES = st.sampled_from(["", "", "", "a1", "b2", "rc1", ".rc1", "-alpha", "c0", "pre2"])
POSTS = st.sampled_from(["", "", "", ".post1", "-2", "r3", ".rev"])
DEVS = st.sampled_from(["", "", "", ".dev1", "dev", "-dev3"])
LOCALS = st.sampled_from(["", "", "", "+1", "+cpu", "+cu11.8", "+1.2", "+cpu-1"])
PUBLIC = st.tuples(st.sampled_from(["", "", "0!", "1!"]), RELEASES, PHASES, POSTS, DEVS).map("".join)
VERSIONS = st.tuples(PUBLIC, LOCALS).map("".join)
OPERATORS = st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "~=", "==.*", "!=.*", "==="])


@given(OPERATORS, PUBLIC, LOCALS, VERSIONS)
def test_a_clause_accepts_what_the_library_accepts(
    operator: str, public: str, local: str, version: str
) -> None:
    local = local if operator in ("==", "!=") else ""
    clause = f"{operator.removesuffix('.*')}{public}{local}{'.*' if operator.endswith('.*') else ''}"
    try:
        expected = SpecifierSet(clause).contains(version, prereleases=True)
    except InvalidSpecifier:
        assume(False)
    assert accepts(clause, version) is expected


@given(VERSIONS, VERSIONS)
def test_the_order_is_the_librarys(first: str, second: str) -> None:
    assert (Version(first).order < Version(second).order) is (Pep440(first) < Pep440(second))
    assert (Version(first).order == Version(second).order) is (Pep440(first) == Pep440(second))


@pytest.mark.parametrize(
    ("specifier", "version", "accepted"),
    [
        ("", "anything", True), ("==1.21.0", "2.4.6", False), ("==1.21", "1.21.0", True),
        (">=1,<2", "1.5", True), (">=1, <2", "2.0", False), ("==2.1.0", "2.1.0+cpu", True),
        (">=2.16", "2.17.0rc1", True),
        (">=2.16", "no-version", False), ("===no-version", "no-version", True), ("~=3.10", "3.11.7", True),
        ("~=3.10.1", "3.11.7", False), ("<3.13", "3.13.0rc1", False),
    ],
)  # fmt: skip
def test_examples(specifier: str, version: str, accepted: bool) -> None:
    assert accepts(specifier, version) is accepted


@pytest.mark.parametrize("specifier", ["1.0", ">=", ">=x", "=>1", "~=1\n", ">=1 --pre", ">1.*"])
def test_a_malformed_specifier_is_an_error(specifier: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        accepts(specifier, "1.0")
