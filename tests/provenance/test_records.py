"""The digest of results, and how many of them one record lists."""

from __future__ import annotations

import msgspec
import pytest

from tpuctl import runs
from tpuctl.provenance import ResultFile, digest_of, first_that_fit

FILE = ResultFile("outputs/a", 3, "AAAAAA==", generation=1)


def test_the_digest_is_of_names_sizes_and_checksums_in_any_order() -> None:
    other = msgspec.structs.replace(FILE, name="outputs/b")
    assert digest_of([FILE, other]) == digest_of([other, FILE])
    assert digest_of([FILE]) == digest_of([msgspec.structs.replace(FILE, generation=2)])
    for change in ({"name": "outputs/c"}, {"bytes": 4}, {"crc32c": "BBBBBA=="}, {"crc32c": None}):
        assert digest_of([msgspec.structs.replace(FILE, **change)]) != digest_of([FILE])  # type: ignore[arg-type]


def test_a_name_cannot_pass_for_two_files() -> None:
    joined = msgspec.structs.replace(FILE, name='a",3,"AAAAAA=="]\n["b')
    pair = [msgspec.structs.replace(FILE, name=name) for name in "ab"]
    assert digest_of([joined]) != digest_of(pair)


@pytest.mark.parametrize("name", ["a", "重" * 340, "\x01" * 1024])
def test_what_is_listed_fits_into_the_record(name: str) -> None:
    shown = tuple(first_that_fit(msgspec.structs.replace(FILE, name=name) for _ in range(20_000)))
    assert 0 < len(shown) <= 10_000
    assert len(runs.encode(shown)) < 4_300_000
    assert len(shown) == 10_000 or len(runs.encode(shown)) > 2_000_000
