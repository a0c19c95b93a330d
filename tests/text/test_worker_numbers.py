"""Numbers of workers: hundreds of them in a few ranges, which `--worker` reads again."""

from __future__ import annotations

import pytest

from tpuctl.flows.remote.targets import parse_workers
from tpuctl.printable import named, ranges

TEXTS = [([0, 1, 2, 3], "0-3"), ([9, 0, 2, 3], "0, 2-3, 9"), ([5], "5"), (range(256), "0-255")]


@pytest.mark.parametrize(("workers", "text"), TEXTS)
def test_numbers_are_ranges_that_the_option_reads(workers: list[int], text: str) -> None:
    assert ranges(workers) == text
    spans = parse_workers(text).ranges
    assert [worker for first, last in spans for worker in range(first, last + 1)] == sorted(workers)


def test_their_noun_is_singular_for_one() -> None:
    assert [named([3]), named(range(64))] == ["worker 3", "workers 0-63"]
